"""What takes seconds to import, imported: in processes that others are forked from. Imports nothing that starts threads,
as polars does, and no ScaNN, whose operations some tests want absent."""
import gc

import fastapi  # noqa: F401  pylint: disable=unused-import
import grpc  # noqa: F401  pylint: disable=unused-import
import msgspec  # noqa: F401  pylint: disable=unused-import
import prometheus_client  # noqa: F401  pylint: disable=unused-import
import uvicorn  # noqa: F401  pylint: disable=unused-import

import clrec_tf  # noqa: F401  pylint: disable=unused-import  (before tf.keras is used: Keras 2 for TFRS)
import tf_keras  # noqa: F401  pylint: disable=unused-import

gc.freeze()  # the collector of a child would otherwise copy every page on which an object is
