"""All tables, by name."""
from clrec_tf.errors import UserError
from clrec_tf.lab.paper_tables.auc_table import T9
from clrec_tf.lab.paper_tables.data_sets import DATA_SETS
from clrec_tf.lab.paper_tables.definition import Table
from clrec_tf.lab.paper_tables.encoder_tables import F6
from clrec_tf.lab.paper_tables.encoder_tables import T11
from clrec_tf.lab.paper_tables.encoder_tables import T12
from clrec_tf.lab.paper_tables.loss_tables import T10
from clrec_tf.lab.paper_tables.loss_tables import T3
from clrec_tf.lab.paper_tables.loss_tables import T6
from clrec_tf.lab.paper_tables.loss_tables import T7

TABLES = {table.name: table for table in (T3, T6, T7, T9, T10, T11, T12, F6)}


def table_of(name: str) -> Table:
    """The table of a name; `UserError`, naming all, where there is none."""
    if name not in TABLES:
        raise UserError(f"--table={name}: the tables are {', '.join(TABLES)}; list shows what they need")
    return TABLES[name]


def data_of(table: Table, name: str) -> str:
    """The data set of --table_data, or the table's first; `UserError` where the table is not trained on it."""
    if name and name not in table.data:
        raise UserError(f"--table_data={name}: {table.name} is trained on {', '.join(table.data)}")
    return name or next(iter(table.data))


def overview() -> str:
    """A paragraph for each table: what it shows, on which data, and in which time on two cores."""
    lines = []
    for table in TABLES.values():
        lines.append(f"{table.name}  {table.title}: {len(table.rows)} rows, seeds: {table.seeds}")
        for name, on in table.data.items():
            data = DATA_SETS[name]
            files = f"; --public_dir with {', '.join(filter(None, (data.log, data.items)))}" if data.log else ""
            lines.append(f"      {name}: about {on.minutes / 60:.1f} h; {data.description}{files}")
    return "\n".join(lines)
