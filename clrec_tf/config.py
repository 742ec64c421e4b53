"""Every setting of every command: frozen dataclasses whose fields become flags (see ``command_line``).

Settings that one command or all models read are sections, in ``settings``. Settings of one tower, user encoder or loss
stand beside its code, and a registry knows them. Nothing below the commands reads flags.
"""
import dataclasses
from typing import Optional

from clrec_tf import encoders  # noqa: F401  pylint: disable=unused-import  (registers what it holds)
from clrec_tf import models  # noqa: F401  pylint: disable=unused-import
from clrec_tf import objectives  # noqa: F401  pylint: disable=unused-import
from clrec_tf.errors import UserError
from clrec_tf.settings.cluster import ClusterConfig
from clrec_tf.settings.data import Paths
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.settings.data import WorldConfig
from clrec_tf.settings.days import DaysConfig
from clrec_tf.settings.diagnosis import DoctorConfig
from clrec_tf.settings.dial import DialConfig
from clrec_tf.settings.model import ModelConfig
from clrec_tf.settings.operations import OperationsConfig
from clrec_tf.settings.paper_tables import TablesConfig
from clrec_tf.settings.proofs import BenchmarkConfig
from clrec_tf.settings.proofs import ExposureWorldConfig
from clrec_tf.settings.proofs import ProofConfig
from clrec_tf.settings.proofs import RandomisedConfig
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.registry import LOSSES
from clrec_tf.settings.registry import PRETEXTS
from clrec_tf.settings.registry import TOWERS
from clrec_tf.settings.service import ServeConfig
from clrec_tf.settings.service import UpdateConfig
from clrec_tf.settings.serving import EvaluateConfig
from clrec_tf.settings.serving import ExportConfig
from clrec_tf.settings.serving import ReportConfig
from clrec_tf.settings.serving import RetrieveConfig
from clrec_tf.settings.stores import StoresConfig
from clrec_tf.settings.training import LossConfig
from clrec_tf.settings.training import TrainConfig

SECTIONS = dict(
    paths=Paths, world=WorldConfig, prepare=PrepareConfig, model=ModelConfig, loss=LossConfig, train=TrainConfig,
    cluster=ClusterConfig, stores=StoresConfig, operations=OperationsConfig, evaluate=EvaluateConfig, dial=DialConfig,
    report=ReportConfig, export=ExportConfig, retrieve=RetrieveConfig, serve=ServeConfig, update=UpdateConfig,
    days=DaysConfig, benchmark=BenchmarkConfig, proof=ProofConfig, exposure_world=ExposureWorldConfig,
    randomised=RandomisedConfig, tables=TablesConfig, doctor=DoctorConfig)
_SECTION_FIELDS = {field.name for section in SECTIONS.values() for field in dataclasses.fields(section)}
# Registries whose settings belong to a section: commands that read it read them too.
PLUGS = dict(model=(TOWERS, ENCODERS), loss=(LOSSES, PRETEXTS))


def plug_sections(key: str) -> dict[str, type]:
    """Settings beside the code that belong to the section `key`: --flag=name -> class, without those that are empty."""
    return {f"--{registry.flag}={name}" + (f" --model={tower}" if tower else ""): cls.Settings
            for registry in PLUGS.get(key, ()) for (name, tower), cls in registry.classes().items()
            if dataclasses.fields(cls.Settings)}


def plug_fields(*keys: str) -> dict[str, dataclasses.Field]:
    """All settings beside the code that belong to these sections (default: to any), by name."""
    fields = {name: field for key in keys or PLUGS for registry in PLUGS.get(key, ())
              for name, field in registry.fields().items()}
    taken = sorted(set(fields) & _SECTION_FIELDS)
    if taken:
        raise ValueError(f"--{taken[0]} is a general setting, which no tower, encoder, loss or pretext may define: "
                         "choose another name for it")
    return fields


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of one command call.

    Attributes:
      plugs: settings given of towers, encoders, losses and pretexts, chosen or not; name -> value.
      tower, encoder, objective, pretext: settings of those that are chosen, each an instance of its class' `Settings`.
      tower_class, encoder_class, loss_class, pretext_class: the classes chosen.
    """
    paths: Paths = Paths()
    world: WorldConfig = WorldConfig()
    prepare: PrepareConfig = PrepareConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    cluster: ClusterConfig = ClusterConfig()
    stores: StoresConfig = StoresConfig()
    operations: OperationsConfig = OperationsConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    dial: DialConfig = DialConfig()
    report: ReportConfig = ReportConfig()
    export: ExportConfig = ExportConfig()
    retrieve: RetrieveConfig = RetrieveConfig()
    serve: ServeConfig = ServeConfig()
    update: UpdateConfig = UpdateConfig()
    days: DaysConfig = DaysConfig()
    benchmark: BenchmarkConfig = BenchmarkConfig()
    exposure_world: ExposureWorldConfig = ExposureWorldConfig()
    proof: ProofConfig = ProofConfig()
    randomised: RandomisedConfig = RandomisedConfig()
    tables: TablesConfig = TablesConfig()
    doctor: DoctorConfig = DoctorConfig()
    plugs: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        _known(self.plugs, plug_fields())
        # Those not chosen too: a value out of bounds is a slip anywhere.
        for registry in (TOWERS, ENCODERS, LOSSES, PRETEXTS):
            for cls in registry.classes().values():
                self.settings_of(cls)
        tower = self.model.model
        tower_class, loss_class = TOWERS.get(tower), LOSSES.get(self.loss.loss, tower)
        encoder_class = ENCODERS.get(tower_class.encoder_name(self.settings_of(tower_class)), tower)
        pretext_class = PRETEXTS.get(self.loss.pretext)
        chosen = dict(tower=tower_class, encoder=encoder_class, objective=loss_class, pretext=pretext_class)
        classes = dict(tower_class=tower_class, encoder_class=encoder_class, loss_class=loss_class,
                       pretext_class=pretext_class)
        settings = {name: self.settings_of(cls) for name, cls in chosen.items()}
        for name, value in (classes | settings).items():
            object.__setattr__(self, name, value)  # frozen for everybody else
        for of_class in (self.train, *settings.values()):
            of_class.check(self)

    @classmethod
    def of(cls, **settings) -> "Config":
        """A configuration from settings by their flags' names (`from_time` for --from), the rest as by default."""
        return cls().but(**settings)

    def but(self, **settings) -> "Config":
        """The same with other values; names as in `of`, each in whatever section it stands."""
        sections = {key: {field.name for field in dataclasses.fields(section)} for key, section in SECTIONS.items()}
        _known(settings, {name for names in sections.values() for name in names} | set(plug_fields()))
        changed = {key: dataclasses.replace(getattr(self, key), **{n: v for n, v in settings.items() if n in names})
                   for key, names in sections.items() if names & set(settings)}
        plugs = {name: value for name, value in settings.items() if name in plug_fields()}
        return dataclasses.replace(self, **changed, plugs={**self.plugs, **plugs})

    def settings_of(self, cls: type):
        """The settings of a registered class, chosen or not."""
        names = {field.name for field in dataclasses.fields(cls.Settings)}
        return cls.Settings(**{name: value for name, value in self.plugs.items() if name in names})

    def refuse_unread(self, *keys: str) -> None:
        """`UserError` where a setting was given that no chosen tower, encoder, loss or pretext reads.

        Args:
          *keys: of `PLUGS`, whose settings are looked at; default: all.
        """
        chosen = self._read()
        for name, field in plug_fields(*keys).items():
            value = self.plugs.get(name, field.default)
            if name not in chosen and value != field.default:
                shown = ",".join(value) if isinstance(value, tuple) else value
                raise UserError(f"--{name}={shown} belongs to {self._owner(name)}: leave it out")

    def without_unread(self) -> "Config":
        """The same without settings that nothing chosen reads, for comparisons over one flagfile."""
        unread = self.unread()
        return dataclasses.replace(
            self, plugs={name: value for name, value in self.plugs.items() if name not in unread})

    def unread(self) -> set[str]:
        """Settings of towers, encoders and losses that no chosen one reads."""
        return set(plug_fields()) - self._read()

    def _read(self):
        """Settings beside the code that the chosen classes read."""
        return {field.name for cls in (self.tower_class, self.encoder_class, self.loss_class, self.pretext_class)
                for field in dataclasses.fields(cls.Settings)}

    def _owner(self, name):
        """Who reads a setting that nobody chosen reads, and who does not."""
        tower = self.model.model
        towers = {known for known in TOWERS.names() if name in _readable(known)}
        if tower not in towers:
            return f"--model={', '.join(sorted(towers))}, not to {tower}"
        if name in LOSSES.fields():
            return f"--loss={', '.join(LOSSES.owners(name))}, not to {self.loss.loss}"
        if name in PRETEXTS.fields():
            return f"--pretext={', '.join(PRETEXTS.owners(name))}, not to {self.loss.pretext}"
        names = [owner for owner in ENCODERS.owners(name) if owner in ENCODERS.names()]
        return f"--user_encoder={', '.join(names)}, not to {self.encoder_class.registered_name}"


def _readable(tower: str) -> set[str]:
    """Settings that some choice of encoder and loss reads with a tower."""
    classes = [TOWERS.get(tower)]
    for registry in (ENCODERS, LOSSES, PRETEXTS):
        names = {name for name, _ in registry.classes()}
        only = {name: registry.classes().get((name, tower)) for name in names}
        shared = {name: registry.classes().get((name, "")) for name in names}
        # A tower with encoders of its own takes no others.
        own = registry is ENCODERS and any(only.values())
        classes += [only[name] or (None if own else shared[name]) for name in names]
    return {field.name for cls in classes if cls for field in dataclasses.fields(cls.Settings)}


def _known(settings, names) -> None:
    unknown = sorted(set(settings) - set(names))
    if unknown:
        raise UserError(f"unknown settings {', '.join(unknown)}: misspelt, written by another version, or of a file of "
                        "your own, which --plugins has to name")


def require(value: Optional[str], flag: str, why: str) -> str:
    """The value of a flag that this command cannot do without."""
    if not value:
        raise UserError(f"--{flag} is not set: {why}")
    return value
