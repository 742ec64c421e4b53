"""HDFS through pyarrow and Hadoop's own library (libhdfs, which JAVA_HOME, HADOOP_HOME and CLASSPATH find).

HDFS renames a file in one step, and never onto one that is there. So a write goes to a name beside the key and is then
renamed, which makes it whole or absent, and a conditional one too; "in place of that version" is a comparison and a
write, which two writers at the same instant could both pass.
"""
import functools
import os
import pathlib
import secrets

from obstore import exceptions
from pyarrow import fs as arrow

from clrec_tf.errors import UserError
from clrec_tf.stores.folder import Version

_BLOCK = 8 << 20


def _of_the_store(method):
    """A method whose errors have no number, by which those of this machine's files are told from them."""
    @functools.wraps(method)
    def wrapped(self, key, *rest):
        try:
            return method(self, key, *rest)
        except FileNotFoundError as error:
            raise FileNotFoundError(key) from error
        except OSError as error:
            raise OSError(str(error)) from error
    return wrapped


class FileSystem:
    """A ``folder.Backend`` of a file system of pyarrow's.

    Args:
      files: a `pyarrow.fs.FileSystem`.
      root: that keys begin at.
    """

    def __init__(self, files, root: str = "/"):
        self._files, self._root = files, root

    @_of_the_store
    def get(self, key):
        """See `Backend`."""
        version = self.head(key)[1]
        with self._files.open_input_stream(self._path(key)) as stream:
            return stream.read(), version

    @_of_the_store
    def get_range(self, key, start, length):
        """See `Backend`."""
        with self._files.open_input_file(self._path(key)) as file:
            return file.read_at(length, start)

    @_of_the_store
    def head(self, key):
        """See `Backend`."""
        facts = self._files.get_file_info(self._path(key))
        if facts.type != arrow.FileType.File:
            raise FileNotFoundError(key)
        return facts.size, Version(f"{facts.size}-{facts.mtime_ns}", None, facts.mtime_ns / 1e9)

    @_of_the_store
    def put(self, key, content, mode=None):
        """See `Backend`."""
        path, temporary = self._path(key), self._path(f"{key}.{secrets.token_hex(8)}.incomplete")
        self._files.create_dir(os.path.dirname(path), recursive=True)
        try:
            self._write(temporary, content)
            self._show(temporary, path, key, mode)
        except BaseException:
            if self._files.get_file_info(temporary).type == arrow.FileType.File:
                self._files.delete_file(temporary)
            raise
        return self.head(key)[1]

    def _write(self, path, content):
        with self._files.open_output_stream(path) as stream:
            if isinstance(content, pathlib.Path):
                with open(content, "rb") as file:
                    while block := file.read(_BLOCK):
                        stream.write(block)
            else:
                stream.write(content)

    def _show(self, temporary, path, key, mode):
        """Gives what is written its name, if the condition holds."""
        there = self._files.get_file_info(path).type == arrow.FileType.File
        if (mode == "create" and there) or (isinstance(mode, Version) and (
                not there or self.head(key)[1].tag != mode.tag)):
            raise exceptions.PreconditionError(key)
        if there:
            self._files.delete_file(path)
        try:
            self._files.move(temporary, path)
        except OSError as error:
            if self._files.get_file_info(path).type == arrow.FileType.File:  # another's, written in between
                raise exceptions.PreconditionError(key) from error
            raise

    @_of_the_store
    def delete(self, key):
        """See `Backend`."""
        self.head(key)
        self._files.delete_file(self._path(key))

    @_of_the_store
    def list(self, key):
        """See `Backend`."""
        chosen = arrow.FileSelector(self._path(key), allow_not_found=True, recursive=True)
        start = len(self._path(""))
        return [(facts.path[start:], facts.size) for facts in self._files.get_file_info(chosen)
                if facts.type == arrow.FileType.File and not facts.path.endswith(".incomplete")]

    def _path(self, key):
        return f"{self._root.rstrip('/')}/{key}"


def open_backend(host: str, given: str, deadline_s: float) -> FileSystem:
    """The file system of a name node, "" for the configured one; `UserError` where there is no client for it."""
    del deadline_s  # Hadoop's client has its own, in core-site.xml
    name, _, port = host.partition(":")
    try:
        return FileSystem(arrow.HadoopFileSystem(name or "default", int(port or 0)))
    except (OSError, ValueError) as error:
        raise UserError(f"{given}: HDFS cannot be reached ({str(error)[:300]}): install Hadoop's client, set JAVA_HOME, "
                        "HADOOP_HOME and CLASSPATH (hadoop classpath --glob), and check the address") from error
