"""The end of a day: its entry is recorded, and the history printed and drawn."""
from absl import logging

from clrec_tf.days.folders import Days
from clrec_tf.days import history
from clrec_tf.days.history_figure import draw_history
from clrec_tf.days.history_figure import FIGURE_FILE
from clrec_tf.errors import UserError


def record(places: Days, entry: dict) -> None:
    """Closes the day's entry; prints and draws the history."""
    entry["seconds"] = round(sum(entry["stages"].values()), 1)
    history.record(places.days_dir, entry)
    places.keep(history.HISTORY_FILE)
    show(places)


def show(places: Days) -> None:
    """Prints and draws the history. A picture that cannot be written says so, and the day stands all the same."""
    days = history.read(places.days_dir)
    print(history.table(days))
    try:
        logging.info("wrote %s", draw_history(places.days_dir, days))
        places.keep(FIGURE_FILE)
    except UserError as error:
        logging.warning("%s (the day itself is done; the same command draws it)", error)
