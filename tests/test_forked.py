"""A forked process is one of its own: its code, streams, folder, environment and signals."""
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from tests import forked


def run(code, *arguments, **settings):
    return forked.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, **settings)


def test_arguments_streams_folder_and_environment_are_those_given(tmp_path):
    code = ("import os, sys; print(sys.argv[1:], os.getcwd(), os.environ['A'], 'HOME' in os.environ, sys.stdin.read(), "
            "__name__); print(os.getpid(), file=sys.stderr)")
    done = run(code, "x", "y z", cwd=tmp_path, env={"A": "b"}, input="in")
    assert done.stdout == f"['x', 'y z'] {tmp_path} b False in __main__\n" and int(done.stderr) != os.getpid()


@pytest.mark.parametrize("code, expected", [
    ("", 0), ("import sys; sys.exit(3)", 3), ("import sys; sys.exit('no')", 1), ("1 / 0", 1), ("import os; os._exit(7)", 7),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL)])
def test_exit_codes_are_those_of_an_interpreter(code, expected):
    finished = run(code)
    assert finished.returncode == subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL,
                                                 check=False).returncode == expected
    assert ("ZeroDivisionError" in finished.stderr) == ("/" in code) and (finished.stderr == "no\n") == ("'no'" in code)


def test_what_is_registered_for_the_end_runs_and_threads_are_waited_for():
    code = ("import atexit, threading, time\natexit.register(print, 'last')\n"
            "threading.Thread(target=lambda: (time.sleep(.2), print('thread'))).start()\nprint('first')")
    assert run(code).stdout == "first\nthread\nlast\n"


def test_a_module_runs_by_its_name_and_random_numbers_differ():
    assert forked.run([sys.executable, "-m", "clrec_tf.train", "--help"], stdout=subprocess.PIPE, text=True,
                      check=True).stdout.startswith("python -m clrec_tf.train: ")
    code = "import random, numpy; print(random.random(), numpy.random.random())"
    assert not set(run(code).stdout.split()) & set(run(code).stdout.split())


def test_signals_and_groups():
    process = forked.Popen([sys.executable, "-c", "import os, time; print(os.getpgid(0), flush=True); time.sleep(60)"],
                           stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert int(process.stdout.readline()) == process.pid and process.poll() is None
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM
    process.stdout.close()


def test_what_could_not_be_written_shows_in_the_exit_code():
    command, codes = [sys.executable, "-c", "import sys; sys.stdout = open(1, 'w'); print(1)"], []  # buffered in any case
    for start in (forked.run, subprocess.run):
        with open("/dev/full", "wb") as full:
            codes.append(start(command, stdout=full, stderr=subprocess.DEVNULL, check=False).returncode)
    assert codes == [120, 120]


def test_threads_get_the_exit_codes_of_their_own_processes():
    codes = {}

    def end(code):
        codes[code] = run(f"import sys; sys.exit({code})").returncode

    threads = [threading.Thread(target=end, args=(code,)) for code in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == {code: code for code in range(1, 17)}


@pytest.mark.parametrize("settings", [dict(preexec_fn=print), dict(pass_fds=(0,)), dict(shell=True), dict(umask=7)])
def test_what_is_not_handed_on_is_refused(settings):
    with pytest.raises(AssertionError):
        run("", **settings)


@pytest.mark.parametrize("answer, error", [(b"", "nothing was forked"), (b"1", "No child processes")])
def test_a_process_that_is_none_or_not_ours_is_an_error(monkeypatch, answer, error):
    """Whose exit code would be 0 otherwise."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(forked, "_parent", lambda: ours)
    with ours, theirs:
        theirs.send(answer)
        with pytest.raises(ChildProcessError, match=error):
            run("")
