"""The undocumented names of gRPC that the server uses are there, and do what it expects."""
import asyncio
import logging

from grpc._cython import cygrpc

from clrec_tf.config import ServeConfig
from clrec_tf.server import grpc_server
from clrec_tf.server import private_grpc


def test_an_answer_that_comes_too_late_is_counted_and_logs_no_traceback(caplog):
    """As gRPC logs it, if the client's end was not yet known; that takes a busy machine and luck."""
    logger = logging.getLogger(private_grpc.LOGGER)
    assert private_grpc.LOGGER == cygrpc.__name__ and private_grpc.UNSENT == cygrpc.ExecuteBatchError.__name__

    def unsent(kind, *arguments):
        try:
            raise kind(*arguments)
        except kind:
            logger.exception("raised in core")

    async def listen():
        async with grpc_server.listening(ServeConfig(grpc_port=0), None, None):
            unsent(cygrpc.ExecuteBatchError, "execute_batch", ())
            unsent(cygrpc.ExecuteBatchError, "execute_batch", ())
            unsent(ValueError)
            logger.error("another")
    asyncio.run(listen())
    assert [record.getMessage() for record in caplog.records] == [
        "raised in core", "another", "2 gRPC calls ended before their answer could be sent"]
    unsent(cygrpc.ExecuteBatchError, "execute_batch", ())
    assert caplog.records[-1].exc_info  # who is no server of ours is told all
