"""python -m clrec_tf.report RUN [RUN …] --html=FILE: one page from one or several finished runs of one data set.

  python -m clrec_tf.report runs/quickstart/model --html=report.html
  python -m clrec_tf.report runs/a runs/b runs/c --html=compared.html

RUN is the --workdir of a training that was evaluated (python -m clrec_tf.evaluate). The page has their metrics beside
each other, with candidate sets and intervals; recall against diversity; recommendations by popularity; learning
curves; what the queue held; one user's intents, of models that have several; the settings that differ; data set, seed,
checkpoint and versions. It is one file that loads nothing, for screens, phones and paper."""
from typing import Sequence

from absl import logging

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.errors import UserError
from clrec_tf.reporting.page import page_of
from clrec_tf.reporting.runs import read_runs
from clrec_tf.stores.files import writes_file
from clrec_tf.system import atomic
from clrec_tf.training.stored_run import reads_record


def write_report(folders: Sequence[str], path: str) -> None:
    """Writes the page, in place of one that is there.

    Args:
      folders: of the runs, in the order of the page.
      path: of the page.

    Raises:
      UserError: no --html or a place that cannot be written to; runs that cannot be compared, see `read_runs`.
    """
    if not path:
        raise UserError("--html is not set: give the file to write, such as --html=report.html")
    atomic.check_file_place(path, "html")
    page = page_of(read_runs(folders))
    with atomic.new_file(path, "html") as name, atomic.write_errors(path, "html"):
        # A title may hold half of a surrogate pair, which no file can.
        with open(name, "w", encoding="utf-8", errors="replace") as file:
            file.write(page)
    logging.info("wrote %s", path)


def main(config: Config, folders: Sequence[str]) -> None:
    """Runs the command."""
    write_report(folders, config.report.html)


if __name__ == "__main__":
    command_line.run(main, uses=("report", "stores"), usage=__doc__, takes_words=True,
                     stores={command_line.WORDS: reads_record, "html": writes_file})
