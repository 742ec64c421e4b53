"""What a training step differentiates: queues and samplers of negatives, and the losses over them, one file each."""
# In the order of --help; each registers itself.
from clrec_tf.objectives import contrastive  # noqa: F401  pylint: disable=unused-import
from clrec_tf.objectives import multi_queue  # noqa: F401  pylint: disable=unused-import
from clrec_tf.objectives import full_softmax  # noqa: F401  pylint: disable=unused-import
from clrec_tf.objectives import sampled_softmax  # noqa: F401  pylint: disable=unused-import
from clrec_tf.objectives import negative_sampling  # noqa: F401  pylint: disable=unused-import
from clrec_tf.objectives import ipw  # noqa: F401  pylint: disable=unused-import
from clrec_tf.objectives import pretext  # noqa: F401  pylint: disable=unused-import
from clrec_tf.objectives import user_to_user  # noqa: F401  pylint: disable=unused-import
