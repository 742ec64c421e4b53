"""The end of a command: with its exit code and all that it printed, whatever libraries do on the way out."""
import contextlib
import os
import sys
import threading

from clrec_tf.system import termination

GENERATED_CODE = "__autograph_generated_file"  # how the names of AutoGraph's modules and files begin


def end(code: int) -> None:
    """Ends the process with this exit code, as `sys.exit` does, or at once where that would crash."""
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    if _would_crash():
        _remove_generated_code()
        os._exit(code)  # pylint: disable=protected-access
    sys.exit(code)


def _flush(stream):
    """Writes what is buffered; to nowhere if the disk is full or the reader (head, less) has gone.

    Else the interpreter would try once more at its end, fail, and change the exit code to 120.
    """
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _would_crash() -> bool:
    """Whether an ordinary exit may abort the process (exit code 134) after its work was done.

    tensorflow-io does so once an s3:// path was used ("pure virtual method called": destructors of its clients). And a
    daemon thread that returns from TensorFlow or ScaNN after the interpreter has ended aborts the process ("FATAL:
    exception not rethrown"): the server may be loading a version, a cluster's chief may be waiting for a lost server.
    """
    return "tensorflow_io" in sys.modules or any(
        thread.daemon and thread.name != termination.THREAD for thread in threading.enumerate())


def _remove_generated_code():
    """AutoGraph writes each function that it translates, as those of TensorFlow's that save a model, to a temporary
    file, which an ordinary exit would remove."""
    for name, module in list(sys.modules.items()):
        if name.startswith(GENERATED_CODE):
            with contextlib.suppress(OSError):
                os.remove(module.__file__)
