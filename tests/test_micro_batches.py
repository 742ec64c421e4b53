"""The micro-batcher by itself: what runs together, what is refused, what is late, and that nothing hangs."""
import asyncio
import threading
import time

import pytest

from clrec_tf.server.faults import Late, Unavailable
from clrec_tf.server.micro_batches import MicroBatcher


class Runner:
    """Squares numbers; waits while `held`, fails where a job is an exception, and keeps the batches."""

    def __init__(self, seconds=0.0):
        self.batches, self.open, self.seconds = [], threading.Event(), seconds
        self.open.set()

    def __call__(self, jobs):
        self.batches.append(list(jobs))
        assert self.open.wait(20)
        time.sleep(self.seconds)
        for job in jobs:
            if isinstance(job, BaseException):
                raise job
        return [job * job for job in jobs]


def batcher(run, max_batch=4, max_waiting=10**6, max_wait_s=60.0, timeout_s=20.0, **others):
    return MicroBatcher(run, max_batch, max_waiting, max_wait_s, timeout_s, **others)


def run(coroutine):
    """Runs it; a hang fails."""
    return asyncio.run(asyncio.wait_for(coroutine, 30))


async def behind(batches, runner, *requests):
    """Tasks of requests that came while a batch of one job, 0, was under way; the first task is its."""
    runner.open.clear()
    tasks = [asyncio.create_task(batches.submit([0]))]
    while not runner.batches or runner.batches[-1] != [0]:
        await asyncio.sleep(0.001)
    tasks += [asyncio.create_task(batches.submit(jobs)) for jobs in requests]
    await asyncio.sleep(0.01)
    return tasks


def test_answers_come_to_whom_they_belong_in_the_order_of_the_jobs():
    runner = Runner(0.001)
    batches = batcher(runner, max_batch=5)

    async def client(number):
        await asyncio.sleep(number % 7 / 1000)
        jobs = list(range(number, number + 1 + number % 4))
        assert await batches.submit(jobs) == [job * job for job in jobs]

    async def everybody():
        await asyncio.gather(*(client(number) for number in range(200)))
    run(everybody())
    assert sum(map(len, runner.batches)) == sum(1 + number % 4 for number in range(200))
    assert max(map(len, runner.batches)) == 5 and batches.waiting_jobs == 0


def test_a_lonely_request_goes_at_once_and_what_gathers_goes_in_full_batches():
    runner, measured = Runner(), []
    batches = batcher(runner, observe=lambda *entry: measured.append(entry))

    async def scene():
        tasks = await behind(batches, runner, [1], [2, 3], [4, 5], [6], [7])
        assert runner.batches == [[0]] and batches.waiting_jobs == 7
        runner.open.set()
        return await asyncio.gather(*tasks)
    assert run(scene()) == [[0], [1], [4, 9], [16, 25], [36], [49]]
    # At most 4 jobs, requests undivided and in order: [4, 5] no longer fits beside [1] and [2, 3].
    assert runner.batches == [[0], [1, 2, 3], [4, 5, 6, 7]]
    assert [value for measure, value in measured if measure == "jobs"] == [1, 3, 4]
    assert len([value for measure, value in measured if measure == "wait" and value > 0.005]) == 5


def test_a_request_larger_than_a_batch_goes_alone():
    runner = Runner()
    batches = batcher(runner)

    async def scene():
        tasks = await behind(batches, runner, [1], list(range(9)), [2])
        runner.open.set()
        return await asyncio.gather(*tasks)
    assert run(scene())[2] == [n * n for n in range(9)]
    assert runner.batches == [[0], [1], list(range(9)), [2]]


def test_more_than_may_wait_is_refused_and_told_what_to_do():
    runner = Runner()
    batches = batcher(runner, max_waiting=3)

    async def scene():
        tasks = await behind(batches, runner, [1, 2])
        with pytest.raises(Unavailable, match="3 users are ahead, .*--max_waiting=3 .*try again later") as refusal:
            await batches.submit([3, 4])
        assert refusal.value.status == 503 and refusal.value.retry_s >= 1
        tasks.append(asyncio.create_task(batches.submit([3])))  # one more may wait
        await asyncio.sleep(0.01)
        with pytest.raises(Unavailable):
            await batches.submit([4])
        runner.open.set()
        assert await asyncio.gather(*tasks) == [[0], [1, 4], [9]]
        return await batches.submit(list(range(10)))  # nobody is ahead: even this is tried
    assert run(scene())[-1] == 81 and [4] not in runner.batches


def test_whoever_would_wait_too_long_is_refused_by_what_batches_took_lately():
    runner = Runner(0.4)
    batches = batcher(runner, max_batch=1, max_wait_s=1.1)

    async def scene():
        await batches.submit([0])  # 0.4 s per job, from now on
        results = await asyncio.gather(*(batches.submit([job]) for job in range(6)), return_exceptions=True)
        # Ahead of the third are 2 jobs, 0.8 s of work; ahead of the fourth 3, 1.2 s.
        assert results[:3] == [[0], [1], [4]] and all(isinstance(result, Unavailable) for result in results[3:])
        assert "3 users are ahead, 1" in str(results[3]) and "--max_wait_ms=1100" in str(results[3])
        runner.seconds = 0.0
        for job in range(30):  # it becomes fast, and soon more are accepted
            await batches.submit([job])
        return await asyncio.gather(*(batches.submit([job]) for job in range(6)))
    assert run(scene()) == [[n * n] for n in range(6)]


def test_what_stays_too_long_is_late_and_does_not_run_if_it_has_not_begun():
    runner = Runner()
    batches = batcher(runner, timeout_s=0.2)

    async def scene():
        tasks = await behind(batches, runner, [1], [2])
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, Late) and result.status == 504 for result in results)
        assert "no answer within 0.2 s (--timeout_ms)" in str(results[0])
        runner.open.set()
        assert await batches.submit([3]) == [9]
    run(scene())
    assert runner.batches == [[0], [3]] and batches.waiting_jobs == 0


def test_a_client_that_gave_up_is_left_out():
    runner = Runner()
    batches = batcher(runner)

    async def scene():
        tasks = await behind(batches, runner, [1], [2], [3])
        tasks[0].cancel()  # its job is under way
        tasks[2].cancel()
        runner.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)
    first, *others = run(scene())
    assert isinstance(first, asyncio.CancelledError) and isinstance(others[1], asyncio.CancelledError)
    assert [others[0], others[2]] == [[1], [9]] and runner.batches == [[0], [1, 3]]


def test_answers_stay_with_their_jobs_if_a_client_gives_up_while_its_batch_runs():
    runner = Runner()
    batches = batcher(runner)

    async def scene():
        tasks = await behind(batches, runner, [1, 2], [3], [4])
        runner.open.set()
        await tasks[0]
        runner.open.clear()
        while len(runner.batches) < 2:
            await asyncio.sleep(0.001)
        tasks[1].cancel()  # the first of the three under way
        await asyncio.sleep(0.01)
        runner.open.set()
        return await asyncio.gather(*tasks[2:])
    assert run(scene()) == [[9], [16]] and runner.batches == [[0], [1, 2, 3, 4]]


def test_what_is_late_does_not_run_though_its_client_is_not_told_yet():
    runner = Runner()
    batches = batcher(runner, timeout_s=0.2)

    async def scene():
        tasks = await behind(batches, runner, [1])
        runner.open.set()
        time.sleep(0.3)  # nothing else happens meanwhile, as where the event loop is busy
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[1], Late)
    run(scene())
    assert runner.batches == [[0]]


@pytest.mark.parametrize("error", [RuntimeError("broken"), MemoryError(), SystemExit(3), StopIteration()])
def test_an_exception_reaches_all_of_its_batch_and_the_next_batch_works(error):
    runner = Runner()
    batches = batcher(runner)

    async def scene():
        tasks = await behind(batches, runner, [1], [error], [2, 3], [4])
        runner.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)
    results = run(scene())
    assert results[0] == [0] and results[4] == [16] and runner.batches == [[0], [1, error, 2, 3], [4]]
    assert all(isinstance(result, Exception) for result in results[1:4])
    assert all(type(error).__name__ in f"{type(result).__name__} {result}" for result in results[1:4])


@pytest.mark.parametrize("measure", ["wait", "batch", "jobs"])
def test_what_is_measured_hinders_nobody(measure):
    def observe(what, value):
        del value
        if what == measure:
            raise ValueError(what)
    runner = Runner()
    batches = batcher(runner, observe=observe, timeout_s=5)

    async def scene():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        tasks = await behind(batches, runner, [1], [2])
        runner.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True), await asyncio.gather(
            batches.submit([3]), return_exceptions=True)
    (_, *others), last = run(scene())
    assert others == [[1], [4]] and batches.waiting_jobs == 0
    assert last == [[9]] or measure == "wait" and isinstance(last[0], ValueError)  # who asks is told
    batches.close()  # who was told has not waited for the batch
    assert runner.batches == [[0], [1, 2], [3]]


def test_closing_answers_the_batch_under_way_though_others_wait():
    runner = Runner(0.2)
    batches = batcher(runner, max_batch=1, timeout_s=1)

    async def scene():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        tasks = [asyncio.create_task(batches.submit([job])) for job in (5, 6)]
        await asyncio.sleep(0.05)
        await asyncio.to_thread(batches.close)
        return await asyncio.gather(*tasks, return_exceptions=True)
    first, second = run(scene())
    assert first == [25] and isinstance(second, Late) and runner.batches == [[5]]


def test_closing_waits_for_the_batch_under_way():
    runner = Runner(0.2)
    batches = batcher(runner)

    async def scene():
        task = asyncio.create_task(batches.submit([5]))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(batches.close)
        return await task
    assert run(scene()) == [25]


def test_several_workers_run_as_many_batches_at_a_time_and_no_more():
    running, most, lock = 0, 0, threading.Lock()

    def run(jobs):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(.05)
        with lock:
            running -= 1
        return [job + 1 for job in jobs]

    async def main():
        batches = batcher(run, max_batch=2, workers=2)
        answers = await asyncio.gather(*(batches.submit([job]) for job in range(8)))
        batches.close()
        return answers
    assert asyncio.run(main()) == [[job + 1] for job in range(8)] and most == 2


def test_in_a_pause_only_the_number_that_wait_is_bounded():
    runner, pause = Runner(), [True]
    batches = batcher(runner, max_waiting=4, max_wait_s=1e-9, patient=lambda: pause[0])

    async def scene():
        await batches.submit([1])  # so that there is a wait to predict
        tasks = await behind(batches, runner, [2], [3])
        with pytest.raises(Unavailable):
            await batches.submit([4, 5, 6])
        pause[0] = False
        with pytest.raises(Unavailable):
            await batches.submit([4])
        runner.open.set()
        return await asyncio.gather(*tasks)
    assert run(scene()) == [[0], [4], [9]]
