"""python -m clrec_tf.tables: a table of the paper from one command, its figures beside ours.

  python -m clrec_tf.tables --table=list
  python -m clrec_tf.tables --table=T12 --tables_dir=TABLES --markdown=T12.md --json=T12.json
  python -m clrec_tf.tables --table=T10 --table_data=beauty --public_dir=PUBLIC --tables_dir=TABLES

Each row is prepared, trained and evaluated as by the commands of these names. The same command goes on where it was
stopped or killed, and repeats nothing that is finished. Hours are of all rows and seeds on 2 cores, shared with other
work."""
import os

from absl import logging

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.data.schema import save_json
from clrec_tf.lab.children import quiet_about_functions
from clrec_tf.lab.paper_tables import data_sets
from clrec_tf.lab.paper_tables import report
from clrec_tf.lab.paper_tables import runs
from clrec_tf.lab.paper_tables.catalogue import data_of
from clrec_tf.lab.paper_tables.catalogue import overview
from clrec_tf.lab.paper_tables.catalogue import table_of
from clrec_tf.lab.paper_tables.definition import Table
from clrec_tf.lab.paper_tables.markdown import markdown
from clrec_tf.system import atomic
from clrec_tf.system.versions import versions


def make(table: Table, data: str, config: Config) -> dict:
    """Runs what is missing of a table; --markdown and --json are written anew after each run.

    Returns:
      See `report.report`, with `picture`, if there is one, and `versions`.

    Raises:
      UserError: bad settings, data or files; `runs.StoppedError`: a signal came.
    """
    for flag, path in (("json", config.benchmark.json), ("markdown", config.tables.markdown)):
        if path:
            atomic.check_file_place(path, flag)
    data_sets.check_files(data, config)
    planned = runs.plan(table, data, config)
    todo = runs.chosen(table, planned, config.tables.table_rows)
    logging.info("%s on %s: %d runs, of which %d are finished; about %.0f min for all on 2 cores", table.name, data,
                 len(todo), sum(bool(run.result) for run in todo), table.data[data].minutes)
    prepared = data_sets.prepared(data, config)
    runs.check_records(todo, prepared)
    result = _write(table, data, planned, config)
    for _ in runs.work(table, planned, todo, prepared):
        result = _write(table, data, planned, config)
    return result


def _write(table, data, planned, config) -> dict:
    """Reports what is finished."""
    result = report.report(table, data, planned) | dict(versions=versions())
    if picture := report.draw(table, data, planned, os.path.join(config.tables.tables_dir, table.name, data)):
        result["picture"] = picture
    if config.benchmark.json:
        save_json(config.benchmark.json, result)
    if config.tables.markdown:
        with atomic.new_file(config.tables.markdown, "markdown") as name, open(name, "w", encoding="utf-8") as file:
            file.write(markdown(result))
    return result


def main(config: Config):
    """Runs the command."""
    if config.tables.table == "list":
        print(overview())
        return
    quiet_about_functions()
    table = table_of(config.tables.table)
    print(markdown(make(table, data_of(table, config.tables.table_data), config)))


if __name__ == "__main__":
    command_line.run(main, uses=("tables", "benchmark.json", "paths.seed", "world", "exposure_world.exposure_size",
                                 "exposure_world.exposure_users", "exposure_world.exposure_items",
                                 "exposure_world.exposure_visits", "exposure_world.exposure_weeks", "train.threads",
                                 "train.parallel_ops"), usage=f"{__doc__}\n\n{overview()}")
