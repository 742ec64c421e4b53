"""Processes that run Python with TensorFlow imported already: forked from one that has done nothing but import it.

`Popen` and `run` take what those of ``subprocess`` take, for commands `[sys.executable, "-m" or "-c", …]`. The process
is a child of the test's with a number, signals, groups and an exit code of its own; only the seconds of importing are
spent once. Tests of the importing itself use ``subprocess``.
"""
import atexit
import ctypes
import functools
import importlib
import json
import os
import pathlib
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import types

import numpy

ROOT = pathlib.Path(__file__).parents[1]
_SET_CHILD_SUBREAPER = 36  # of prctl
_REQUEST_BYTES = 1 << 17
_FORKING = threading.Lock()  # requests and answers of several threads go over one connection


class Popen(subprocess.Popen):
    """As ``subprocess.Popen``, of Python alone and without `preexec_fn`, `pass_fds` and the like."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags,
                       shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid,
                       umask, start_new_session, process_group):
        # pylint: disable=too-many-arguments,too-many-locals,unused-argument  (the signature of Python 3.11)
        assert not any((preexec_fn, executable, shell, pass_fds, gid, gids, uid)) and umask == process_group == -1
        program, *arguments = map(os.fspath, args)
        assert program == sys.executable and arguments[0] in ("-m", "-c"), args
        request = dict(arguments=arguments, cwd=os.fspath(cwd or os.getcwd()), session=start_new_session,
                       environ={**(os.environ if env is None else env)})
        streams = [own if stream == -1 else stream for own, stream in enumerate((p2cread, c2pwrite, errwrite))]
        self.pid = _fork(request, streams)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


def run(command, *, input=None, capture_output=False, timeout=None, check=False, **settings):
    """As ``subprocess.run``."""
    # pylint: disable=redefined-builtin
    if input is not None:
        settings["stdin"] = subprocess.PIPE
    if capture_output:
        settings |= dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with Popen(command, **settings) as process:
        try:
            output, errors = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    finished = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        finished.check_returncode()
    return finished


def _fork(request: dict, streams) -> int:
    """The number of a new child of this process."""
    prctl = ctypes.CDLL(None).prctl
    with _FORKING:
        connection = _parent()
        prctl(_SET_CHILD_SUBREAPER, 1)  # the child is orphaned by who forked it, and so becomes ours
        try:
            socket.send_fds(connection, [json.dumps(request).encode()], streams)
            number = connection.recv(32)
        finally:
            prctl(_SET_CHILD_SUBREAPER, 0)
    if not number:
        raise ChildProcessError("nothing was forked: see what was printed to stderr")
    # Of a process that is no child of ours, subprocess would take 0 for the exit code; this raises.
    os.waitid(os.P_PID, int(number), os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return int(number)


@functools.cache
def _parent() -> socket.socket:
    """A connection to the process that forks; that ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd=ROOT,
                               env=environ, stdin=subprocess.DEVNULL)
    theirs.close()
    atexit.register(lambda: (ours.close(), process.wait()))
    return ours


def _requests(connection) -> dict:
    """In the process that forks: answers until nobody asks. In each child: returns what it was asked to do."""
    while True:
        message, streams, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 3)
        if not message:
            os._exit(0)
        number, writing = os.pipe()
        between = os.fork()
        if not between:
            if child := os.fork():
                os.write(writing, str(child).encode())
                os._exit(0)
            for end in (number, writing, connection.detach()):
                os.close(end)
            for standard, stream in enumerate(streams):
                os.dup2(stream, standard)
                os.close(stream)
            return json.loads(message)
        os.waitpid(between, 0)  # from here on the child has its new parent
        for end in (writing, *streams):
            os.close(end)
        connection.send(os.read(number, 32))  # nothing, where `between` could not fork
        os.close(number)


def _become(arguments, cwd, session, environ):
    """Runs a module or code as the interpreter would."""
    if session:
        os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    tempfile.tempdir = None
    numpy.random.seed()
    sys.path[:0] = [cwd, *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    kind, program, *rest = arguments
    if kind == "-m":
        sys.argv = ["-m", *rest]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *rest]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), main.__dict__)  # pylint: disable=exec-used


def _end(run) -> None:
    """Runs a program and ends with its exit code, without taking down module by module what was imported."""
    code = 0
    try:
        run()
    except SystemExit as ended:
        code = ended.code
        if not isinstance(code, int):
            if code is not None:
                print(code, file=sys.stderr)
            code = int(code is not None)
    except BaseException:  # pylint: disable=broad-exception-caught
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # pylint: disable=protected-access  (waits for threads, as an interpreter at its end)
    atexit._run_exitfuncs()  # pylint: disable=protected-access
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except OSError:
            code = 120  # as an interpreter's that could not write all
    os._exit(code & 0xFF)


if __name__ == "__main__":
    del sys.path[0]  # this folder
    importlib.import_module("tests.preloaded")
    asked = _requests(socket.socket(fileno=int(sys.argv[1])))
    _end(lambda: _become(**asked))
