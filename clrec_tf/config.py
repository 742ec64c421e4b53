"""Every setting of every command: frozen dataclasses whose fields become flags (see ``command_line``).

The sections are in ``settings``: a field's default, help text, choices and bounds stand in one place, there. Nothing
below the commands reads flags.
"""
import dataclasses
from typing import Optional

from clrec_tf.errors import UserError
from clrec_tf.settings.cluster import ClusterConfig
from clrec_tf.settings.data import Paths
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.settings.data import WorldConfig
from clrec_tf.settings.dial import DialConfig
from clrec_tf.settings.model import ModelConfig
from clrec_tf.settings.proofs import BenchmarkConfig
from clrec_tf.settings.proofs import ExposureWorldConfig
from clrec_tf.settings.proofs import ProofConfig
from clrec_tf.settings.proofs import RandomisedConfig
from clrec_tf.settings.service import ServeConfig
from clrec_tf.settings.service import UpdateConfig
from clrec_tf.settings.serving import EvaluateConfig
from clrec_tf.settings.serving import ExportConfig
from clrec_tf.settings.serving import RetrieveConfig
from clrec_tf.settings.training import LossConfig
from clrec_tf.settings.training import TrainConfig

SECTIONS = dict(
    paths=Paths, world=WorldConfig, prepare=PrepareConfig, model=ModelConfig, loss=LossConfig, train=TrainConfig,
    cluster=ClusterConfig, evaluate=EvaluateConfig, dial=DialConfig, export=ExportConfig, retrieve=RetrieveConfig,
    serve=ServeConfig, update=UpdateConfig, benchmark=BenchmarkConfig, proof=ProofConfig,
    exposure_world=ExposureWorldConfig, randomised=RandomisedConfig)


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of one command call."""
    paths: Paths = Paths()
    world: WorldConfig = WorldConfig()
    prepare: PrepareConfig = PrepareConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    cluster: ClusterConfig = ClusterConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    dial: DialConfig = DialConfig()
    export: ExportConfig = ExportConfig()
    retrieve: RetrieveConfig = RetrieveConfig()
    serve: ServeConfig = ServeConfig()
    update: UpdateConfig = UpdateConfig()
    benchmark: BenchmarkConfig = BenchmarkConfig()
    exposure_world: ExposureWorldConfig = ExposureWorldConfig()
    proof: ProofConfig = ProofConfig()
    randomised: RandomisedConfig = RandomisedConfig()

    def __post_init__(self):
        if self.model.queue != "in_batch" and self.model.queue_size < self.train.batch_size:
            raise UserError(
                f"--queue_size={self.model.queue_size} is smaller than --batch_size={self.train.batch_size}: "
                "a batch enters the queue whole, so raise --queue_size or lower --batch_size")
        if self.model.model == "multi_clrec" and self.loss.loss == "contrastive" and (
                self.model.queue_size % 2 or self.model.queue_size < 2 * self.train.batch_size):
            raise UserError(
                f"--queue_size={self.model.queue_size} with --model=multi_clrec: half of it is the main queue, which a "
                f"batch enters whole; give an even number of at least twice --batch_size={self.train.batch_size}")
        if self.prepare.from_time and self.prepare.from_time == self.prepare.to_time:
            raise UserError(f"--from={self.prepare.from_time} equals --to: no click remains")


def section_from_dict(section: type, values: dict):
    """Rebuilds a section from JSON, tuples from lists; unknown keys raise `UserError`."""
    names = {field.name for field in dataclasses.fields(section)}
    unknown = sorted(set(values) - names)
    if unknown:
        raise UserError(f"unknown settings {', '.join(unknown)} for {section.__name__}; written by another version?")
    return section(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def require(value: Optional[str], flag: str, why: str) -> str:
    """The value of a flag that this command cannot do without."""
    if not value:
        raise UserError(f"--{flag} is not set: {why}")
    return value
