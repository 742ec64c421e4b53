"""The dispatcher in one process, and what TensorFlow's errors are made into."""
import types

import pytest
import tensorflow as tf

from clrec_tf.training.dispatch import Dispatcher
from clrec_tf.training.reasons import reason
from clrec_tf.training.reasons import servers_named
from clrec_tf.training.runtime import LocalRuntime


class Counted:
    """Assignments of single steps, a feed and a call that note the order of events."""

    def __init__(self, total):
        self.taken, self.limit, self.events = 0, total, []
        self.function = self.run

    def next(self, worker, steps):
        assert worker == 0
        steps = min(steps, self.limit - self.taken)
        self.taken += steps
        return steps, (steps,)

    def run(self, steps):
        self.events.append(("run", steps))
        return tf.constant([steps])

    def named(self, values):
        return {"steps": int(values[0])}


def test_each_result_is_there_before_the_next_call_begins():
    work, stop = Counted(100), types.SimpleNamespace(exit_code=None)
    for steps, repeated, worker, result in Dispatcher(work, work, work, LocalRuntime(), 4, 10).results(17, stop):
        assert repeated == worker == 0 and result == {"steps": steps}
        work.events.append(("got", steps))
    expected = [4, 4, 2, 4, 3]  # not past multiples of 10, nor past 17
    assert work.events == [event for steps in expected for event in (("run", steps), ("got", steps))]


def test_a_call_whose_result_is_lost_stays_under_way():
    class Forgetful(LocalRuntime):
        lost = 3

        def fetch(self, result, holder):
            self.lost -= 1
            return None if self.lost >= 0 else super().fetch(result, holder)

    work, stop = Counted(8), types.SimpleNamespace(exit_code=None)
    found = [result for *_, result in Dispatcher(work, work, work, Forgetful(), 4, 10).results(8, stop)]
    assert found == [{"steps": 4}, {"steps": 4}]


def test_a_signal_ends_after_the_call_under_way():
    work, stop, found = Counted(100), types.SimpleNamespace(exit_code=None), []
    for steps, *_ in Dispatcher(work, work, work, LocalRuntime(), 4, 100).results(100, stop):
        found.append(steps)
        if len(found) == 3:
            stop.exit_code = 75
    assert found == [4, 4, 4] and work.taken == 12


LOST = """Graph execution error:

Detected at node while/body/ReadVariableOp defined at (most recent call last):
<stack traces unavailable>
Connection reset by peer
Additional GRPC error information from remote target /job:ps/replica:0/task:1 while calling /tensorflow.WorkerService:
:{"created":"@1","description":"Error received from peer"}
\t [[{{node while/body/ReadVariableOp/_81}}]]
Additional GRPC error information from remote target /job:worker/replica:0/task:0 while calling /tensorflow.eager:"""
ABSENT = """Graph execution error:

Detected at node cond/DatasetToSingleElement defined at (most recent call last):
  File "train.py", line 122, in <module>

2 root error(s) found.
  (0) NOT_FOUND:   /data/train-00003-of-00006.tfrecord; No such file or directory
\t [[{{node cond/DatasetToSingleElement}}]]
Additional GRPC error information from remote target /job:worker/replica:0/task:1 while calling"""
FULL = "{{function_node __wrapped__SaveV2}} /run/step-200_temp/part-00000; No space left on device [Op:SaveV2]"


@pytest.mark.parametrize("message, expected, tasks", [
    (LOST, "Connection reset by peer", "ps 1, worker 0"),
    (ABSENT, "/data/train-00003-of-00006.tfrecord; No such file or directory", "worker 1"),
    (FULL, "/run/step-200_temp/part-00000; No space left on device [Op:SaveV2]", ""),
    ("Socket closed", "Socket closed", ""),
    ("", "UnavailableError", ""),
])
def test_the_reason_of_an_error(message, expected, tasks):
    error = tf.errors.UnavailableError(None, None, message)
    assert reason(error) == expected and servers_named(error) == tasks
