"""The two towers, and what is made of a trained one: vectors, and scores at every setting of the dial."""
from clrec_tf.models import clrec  # noqa: F401  pylint: disable=unused-import  (registers itself)
from clrec_tf.models import multi_clrec  # noqa: F401  pylint: disable=unused-import
