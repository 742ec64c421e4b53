"""--loss=full_softmax: maximum likelihood over all items."""
from clrec_tf.errors import UserError
from clrec_tf.losses import closed_forms
from clrec_tf.losses import contrastive
from clrec_tf.objectives.base import MAX_FULL_SOFTMAX
from clrec_tf.objectives.compared import Compared
from clrec_tf.settings.registry import LOSSES


@LOSSES.register("full_softmax")
class FullSoftmax(Compared):
    """−log softmax over all items: maximum likelihood, e^φ ∝ p(y|x). Costs an encoding of all items per step."""

    summary = "over all items."

    @classmethod
    def make(cls, inputs):
        """`UserError` where the catalogue is too large to be scored in every step."""
        if inputs.schema.num_items > MAX_FULL_SOFTMAX:
            raise UserError(f"--loss=full_softmax scores every item in every step; {inputs.schema.num_items} are more "
                            f"than {MAX_FULL_SOFTMAX}: use sampled_softmax, whose optimum is the same")
        return cls(inputs.model, inputs.items.rows, local_constant=inputs.local_constant)

    @classmethod
    def closed_form(cls, world, settings):
        """p itself."""
        del settings
        return closed_forms.maximum_likelihood(world.clicks)

    def compare(self, batch, training=True):
        """Batch -> (encoded, [B])."""
        encoded = self.model.encode(batch, self.constants["rows"][1:], training)
        logits = self.shared_logits(encoded.users, encoded.distinct)
        return encoded, contrastive.contrastive_loss(
            self.positive_logits(encoded), logits, bound=self.model.logit_bound)
