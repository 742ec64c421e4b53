"""Settings of the doctor."""
import dataclasses

from clrec_tf.errors import UserError
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting

ONLY_READ = ("data_dir", "workdir", "export_dir", "days_dir")


@dataclasses.dataclass(frozen=True)
class DoctorConfig(Section):
    """Checks of a deployment."""
    doctor_mode: str = setting("quick",
        "quick: sizes of files, shapes in checkpoints. full: also the sha256 of every file, every record of the data "
        "and every number of the checkpoints.", choices=("quick", "full"))
    doctor_deadline_s: float = setting(60.0, "Seconds for all checks together, after which those that have not ended "
                                             "are faults. Full checks read all data.", lower=1.0)
    address_deadline_s: float = setting(5.0, "Seconds in which each address of TF_CONFIG must answer.", lower=0.1)
    doctor_read_only: tuple[str, ...] = setting((), "Flags of folders that this deployment only reads, of "
                                                    f"{', '.join(ONLY_READ)}: export_dir for a server.")

    def __post_init__(self):
        super().__post_init__()
        unknown = [name for name in self.doctor_read_only if name not in ONLY_READ]
        if unknown:
            raise UserError(f"--doctor_read_only={','.join(self.doctor_read_only)}: choose from {', '.join(ONLY_READ)}")
