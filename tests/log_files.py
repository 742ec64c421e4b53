"""Small click logs for the tests of reading: five users of eight clicks each on eleven items, written in any form."""
import dataclasses

from clrec_tf.config import Config
from clrec_tf.config import PrepareConfig
from clrec_tf.preparation import assemble
from clrec_tf.preparation import logs
from clrec_tf.preparation import numbered_log
from clrec_tf.preparation.rows import POSITION
from clrec_tf import prepare

USERS, CLICKS, ITEMS, START = 5, 8, 11, 1_700_000_000
ROWS = [(user, (7 * user + 3 * click) % ITEMS, START + 1000 * user + 60 * click)
        for user in range(USERS) for click in range(CLICKS)]  # users and items as numbers, seconds
COLUMNS = dict(user_column="user", item_column="item", timestamp_column="time")


def text(user="u{}", item="i{}", time="{}", mark=",", header="user,item,time", more=""):
    """The log as delimited text; `more` is added to each line."""
    lines = [mark.join((user.format(u), item.format(i), time.format(t))) + more for u, i, t in ROWS]
    return "\n".join(([header.replace(",", mark)] if header else []) + lines) + "\n"


def written(folder, name, content):
    """The path of a file with text, in UTF-8, or bytes."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path, **settings):
    """A `Log`, by the columns user, item and time unless other settings are given."""
    settings = PrepareConfig(**{**COLUMNS, "input": str(path), **settings})
    return in_memory(logs.read_log(logs.open_log(settings), settings))


def in_memory(log):
    """The log with its clicks as a table."""
    return dataclasses.replace(log, clicks=log.clicks.collect().drop(POSITION))


def sequences(log) -> dict[str, list[str]]:
    """User -> items in the order in which they are trained on."""
    names, items = (log.clicks[name].unique(maintain_order=True) for name in ("user", "item"))
    clicks = numbered_log.clicks_of(log.clicks, names, items)
    found = {}
    for user, item in zip(clicks.user, clicks.item):
        found.setdefault(names[int(user)], []).append(items[int(item)])
    return found


def expected(user="u{}", item="i{}") -> dict[str, list[str]]:
    """What `sequences` must be."""
    found = {}
    for u, i, _ in ROWS:
        found.setdefault(user.format(u), []).append(item.format(i))
    return found


def prepared(path, **settings):
    """Schema and report of a dry run of the command."""
    settings = {**COLUMNS, "input": str(path), "min_train_length": 1, "dry_run": True, **settings}
    return prepare.prepare(Config(prepare=PrepareConfig(**settings)))


def feature_values(path, name="category", **settings) -> dict:
    """Item -> value or values of a feature, as they are joined to the log."""
    config = PrepareConfig(**{**COLUMNS, "input": str(path), "min_train_length": 1, **settings})
    log = logs.read_log(logs.open_log(config), config)
    dataset = assemble.assemble(log, config, dict(seed=0))
    place = [feature.name for feature in dataset.schema.features].index(name)
    names = ["", *dataset.feature_values[name]]
    values = [[names[number] for number in row if number] for row in dataset.feature_rows[place].tolist()]
    items = dict(zip(dataset.catalogue.original_ids, (values[item] for item in dataset.catalogue.items)))
    return items
