"""Item and user encoders: the layers of the two towers."""
# In the order of --help; each registers itself. What sasrec and bert4rec are made of is in encoders/transformer.py.
from clrec_tf.encoders import multi_att  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import mean  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import sasrec  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import bert4rec  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import gru4rec  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import lstm  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import dien  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import dnn  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import caser  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import shan  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import svdpp  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import mind  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import rum  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import hpmn  # noqa: F401  pylint: disable=unused-import
from clrec_tf.encoders import intents  # noqa: F401  pylint: disable=unused-import
