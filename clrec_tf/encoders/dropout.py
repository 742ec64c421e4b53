"""The setting of dropout, which encoders share."""
from clrec_tf.errors import UserError
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


def dropout_setting():
    """--dropout, for a field of a `DropoutSection`."""
    return setting(0.2, "Share of the user encoder's activations that a training step drops, in [0, 1).", lower=0.0)


class DropoutSection(Section):
    """Settings with a `dropout_setting`."""

    def __post_init__(self):
        super().__post_init__()
        if self.dropout >= 1.0:
            raise UserError(f"--dropout={self.dropout}: must be below 1, or nothing is left to learn from")
