"""What is done before a request is admitted, and where it is read."""
import asyncio
import contextlib
import threading
import types

import numpy as np
import pytest

from clrec_tf.config import ServeConfig
from clrec_tf.errors import UserError
from clrec_tf.server.aside import Aside
from clrec_tf.server.engine import Engine
from clrec_tf.server.faults import TooMany, Unavailable
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.server.held_bytes import HeldBytes
from clrec_tf.server.metrics import Metrics
from clrec_tf.server.predictor import Predictor
from tests import exported


def ids(instances=None, size=3):
    return "serving_default", {"history": np.full((1, size), exported.original_id("int", 3))}, ""


@contextlib.contextmanager
def predictor(**settings):
    """A predictor of one version whose batches wait for an event: yields both."""
    opened = threading.Event()
    engine = Engine(exported.loaded("int"), SearchOptions(k=2), lambda stage, seconds: opened.wait(20))
    versions = types.SimpleNamespace(engine=engine, loading=False)
    found = Predictor(ServeConfig(**settings), versions, Metrics())
    yield found, opened
    opened.set()
    found.close()


def test_a_request_that_is_not_admitted_is_not_read():
    async def ask():
        with predictor(max_waiting=1) as (found, opened):
            first = [asyncio.create_task(found.arrays(ids, 10)) for _ in range(2)]  # one runs, one waits
            await asyncio.sleep(0.2)
            with pytest.raises(Unavailable, match="users are ahead"):
                await found.arrays(lambda instances: pytest.fail("read"), 10)
            with pytest.raises(Unavailable, match="users are ahead"):
                await found.json(b"not JSON, and nobody knows", "", "x")
            opened.set()
            assert all(answer["user_vectors"].shape == (1, 1, 9) for answer, _ in await asyncio.gather(*first))
    asyncio.run(ask())


def test_large_requests_are_read_beside_the_event_loop():
    """Over HTTP and gRPC, while the loop goes on; small ones are read where they come."""
    where = []

    def read(instances):
        where.append(threading.current_thread())
        return ids(instances)

    async def ask():
        with predictor(max_listed=10**6) as (found, opened):
            opened.set()
            await found.arrays(read, 1000)
            await found.arrays(read, 10**6)
            assert where[0] is threading.main_thread() and where[1] is not threading.main_thread()
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.001)
                    ticks += 1
            ticking = asyncio.create_task(tick())
            body = b'{"inputs": {"history": [[' + b"1," * 900_000 + b'"1.5"]]}}'
            with pytest.raises(UserError, match="got '1.5'"):  # the last, after a look at all others
                await found.json(body, "", "x")
            ticking.cancel()
            assert ticks >= 3
    asyncio.run(ask())


def test_only_so_many_large_requests_wait_to_be_read():
    async def ask():
        aside, opened = Aside(), threading.Event()
        waiting = [asyncio.create_task(aside(10**6, lambda: opened.wait(20))) for _ in range(40)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
        assert len(done) == 8 and all(isinstance(task.exception(), Unavailable) for task in done)
        assert await aside(5, lambda: "small") == "small"
        opened.set()
        await asyncio.wait(waiting)
        assert await aside(10**6, lambda: "large") == "large"
        aside.close()
    asyncio.run(ask())


def test_what_all_requests_hold_is_bounded():
    held = HeldBytes(100)
    with held.request() as first, held.request() as second:
        first(60)
        second(40)
        with pytest.raises(Unavailable, match="hold 100 bytes, of 100"):
            first(1)
        with contextlib.suppress(KeyError), held.request() as third:
            third(0)
            raise KeyError
    assert held.held == 0


def test_a_clients_requests_are_counted_by_its_address():
    with predictor(max_per_client=2) as (found, _), found.counted("1.2.3.4"), found.counted("1.2.3.4"):
        with found.counted("1.2.3.5"), pytest.raises(TooMany, match="2 requests of this address"):
            with found.counted("1.2.3.4"):
                pass
        with found.counted("2001:db8::1"), found.counted("2001:db8::2"):
            with pytest.raises(TooMany), found.counted("2001:db8::3"):  # a client has 2^64 of these
                pass
            with found.counted("2001:db8:0:1::1"):
                pass


@pytest.mark.parametrize("settings, text", [
    (dict(poll_s=0.01), "--poll_s=0.01: must be ≥ 0.05, or 0 to look only at SIGHUP"), (dict(poll_s=-1.0), "≥ 0"),
    (dict(trusted_proxies=("10.0.0.0/33",)), "--trusted_proxies=10.0.0.0/33: "),
    (dict(trusted_proxies=("*",)), "give addresses or networks, such as 10.0.0.0/8"),
    (dict(serve_version=2**63), "--serve_version=9223372036854775808: must be ≤")])
def test_settings_that_mean_nothing_are_refused(settings, text):
    with pytest.raises(UserError) as error:
        ServeConfig(**settings)
    assert text in str(error.value)
    ServeConfig(poll_s=0.0, trusted_proxies=("10.0.0.0/8", "::1"), serve_version=2**63 - 1)
