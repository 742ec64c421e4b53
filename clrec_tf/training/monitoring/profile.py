"""A profile on demand: SIGUSR2 has TensorFlow's profiler watch the next --profile_steps steps of a training.

It begins and ends between two calls, and changes nothing of what they compute. What goes wrong with it is a warning.
"""
import contextlib
import os
import signal
import threading

from absl import logging
import tensorflow as tf

from clrec_tf.errors import UserError
from clrec_tf.system import atomic

FOLDER = "profile"
SIGNAL = signal.SIGUSR2


def refuse(why: str) -> None:
    """Where no steps are trained SIGUSR2, which would end the process, only says why it changes nothing."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(SIGNAL, lambda number, frame: logging.warning("SIGUSR2 changes nothing here: %s", why))


class ProfileSignal:
    """Context in which SIGUSR2 asks for a profile; `at` has to be told of the end of each call.

    On another thread than the main one, which alone may handle signals, it changes nothing.

    Args:
      workdir: of the run; profiles are its folders profile/step-N.
      steps: of a profile, at least: it ends with a call.
    """

    def __init__(self, workdir: str, steps: int):
        self._workdir, self._steps = workdir, steps
        self._asked, self._until, self._before = False, None, None
        self._folder, self._path = contextlib.ExitStack(), ""

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(SIGNAL, self._ask)
        return self

    def _ask(self, number, frame):
        del number, frame
        self._asked = True

    def at(self, step: int) -> None:
        """No call is being computed on this thread, and `step` steps are done: a profile may begin or end."""
        if self._until is not None and step >= self._until:
            self._end()
        if self._asked and self._until is not None:
            logging.warning("a profile is under way until step %d: asking for another changes nothing", self._until)
        elif self._asked:
            self._begin(step)
        self._asked = False

    def _begin(self, step):
        path = os.path.join(self._workdir, FOLDER, f"step-{step}")
        try:
            self._path = self._folder.enter_context(atomic.new_folder(path, f"workdir={self._workdir}"))
            tf.profiler.experimental.start(self._path)
        except Exception as error:  # pylint: disable=broad-except  (whatever the disk or TensorFlow raises)
            self._give_up(error)
            return
        self._until = step + self._steps
        logging.info("profiling from step %d until step %d, into %s", step, self._until, path)

    def _end(self):
        self._until = None
        try:
            tf.profiler.experimental.stop()
            if not any(name.endswith(".xplane.pb") for _, _, names in os.walk(self._path) for name in names):
                raise UserError(f"TensorFlow wrote none into {self._path}")
            self._folder.close()
            logging.info("the profile is written; xprof --logdir=%s shows it", os.path.join(self._workdir, FOLDER))
        except Exception as error:  # pylint: disable=broad-except
            self._give_up(error)

    def _give_up(self, error):
        """Leaves no part of a profile behind, and lets the training go on."""
        with contextlib.suppress(UserError, OSError):
            self._folder.__exit__(type(error), error, error.__traceback__)
        logging.warning("no profile: %s; the training goes on", str(error).partition("\n")[0])

    def __exit__(self, *exception):
        if self._until is not None:
            self._end()
        if self._before is not None:
            signal.signal(SIGNAL, self._before)
