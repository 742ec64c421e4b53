"""Settings of the command tables."""
import dataclasses

from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class TablesConfig(Section):
    """A table of the paper, trained and measured anew."""
    table: str = setting("list", "The table, such as T12 or F6; list: prints all, with what they need.")
    table_data: str = setting("", "Data set that its rows are trained on (default: the first that the table names).")
    tables_dir: str = setting("", "Folder of prepared data, and of one run for each row and seed. Finished runs there "
                                  "are not trained again, an interrupted one goes on.", path=True)
    public_dir: str = setting("", "Folder of the public data sets, each in a folder of its own, such as "
                                  "ml-1m/ml-1m.txt.gz (packed or not); not needed for generated data.", path=True)
    markdown: str = setting("", "File for the table as Markdown, besides printing it.", path=True)
    table_rows: tuple[str, ...] = setting((), "Names of the rows that are trained (default: all); the others stay as "
                                              "they are in --tables_dir.")
    table_seeds: int = setting(0, "Seeds, from --seed on, of each row (0: the table's own number).", lower=0)
    table_epochs: int = setting(0, "Epochs of each run (0: the table's own number).", lower=0)
