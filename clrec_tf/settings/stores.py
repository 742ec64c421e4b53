"""Settings of object stores."""
import dataclasses

from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class StoresConfig(Section):
    """Paths in object stores: s3://, gs:// and hdfs://."""
    cache_dir: str = setting("", "Folder for copies of what is in a store, and for results on their way there, which "
                                 "processes may share (default: clrec_tf in $XDG_CACHE_HOME or ~/.cache).", path=True)
    cache_gb: float = setting(50.0, "Files kept in --cache_dir, in 10^9 bytes, besides those in use.", lower=0.0)
    store_deadline_s: float = setting(120.0, "Seconds that a store has for one request, tries again included.",
                                      lower=1.0)
    lease_s: float = setting(60.0, "Seconds after which a prepare or a training in a store that gave no sign of life "
                                   "counts as dead.", lower=1.0)
