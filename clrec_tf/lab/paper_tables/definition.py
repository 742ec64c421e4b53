"""What a table of the paper is made of."""
import dataclasses
from typing import Callable
from typing import Optional

from clrec_tf.errors import UserError

ANY_DATA = ""  # figures of production data, which nobody else has: only their order is comparable


@dataclasses.dataclass(frozen=True)
class Row:
    """One row: a run with settings, or with `measure` something that is not trained.

    Attributes:
      name: as in the paper.
      settings: of the run by flag, beside the table's.
      data: data sets that it can be trained on; empty: all.
      measure: (config, workdirs of the rows `needs`) -> metrics; of a row without a training.
      needs: rows that are trained before.
    """
    name: str
    settings: dict = dataclasses.field(default_factory=dict)
    data: tuple[str, ...] = ()
    measure: Optional[Callable] = None
    needs: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Column:
    """One metric.

    Attributes:
      metric: its name among those of a run, which states the candidate set.
      digits: decimals shown.
      paper: data set, or `ANY_DATA`, -> row -> the published figure.
      order: rows from the largest to the least, where the paper states an order without figures.
    """
    metric: str
    digits: int = 4
    paper: dict = dataclasses.field(default_factory=dict)
    order: tuple[str, ...] = ()

    def published(self, data: str) -> dict[str, float]:
        """Row -> figure."""
        return self.paper.get(data, self.paper.get(ANY_DATA, {}))


@dataclasses.dataclass(frozen=True)
class On:
    """What a table does on one data set.

    Attributes:
      minutes: of all its runs, on two cores.
      settings: of its runs there by flag.
    """
    minutes: float
    settings: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table, or a figure, of the paper.

    Attributes:
      name: for --table.
      title: what it is about.
      says: what the paper says with it, and what is different here.
      rows, columns: see there.
      data: data set -> `On`; the first is the default.
      settings: of every run, and of its evaluation, by flag.
      measure: (config, `Trained`) -> more metrics of a run.
      seeds: number of seeds.
      picture: whether the degree histograms of the rows are drawn.
    """
    name: str
    title: str
    says: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    data: dict[str, On]
    settings: dict = dataclasses.field(default_factory=dict)
    measure: Optional[Callable] = None
    seeds: int = 3
    picture: bool = False

    def row(self, name: str) -> Row:
        """The row of a name; `UserError` where there is none."""
        found = [row for row in self.rows if row.name == name]
        if not found:
            raise UserError(f"--table_rows={name}: the rows of {self.name} are {', '.join(r.name for r in self.rows)}")
        return found[0]

    def rows_on(self, data: str) -> tuple[Row, ...]:
        """Rows that can be trained on a data set."""
        return tuple(row for row in self.rows if not row.data or data in row.data)
