"""A forked process is one of its own: its code, streams, folder, environment and signals."""
import os
import signal
import subprocess
import sys

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
