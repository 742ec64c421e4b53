"""A small log with contexts and a file of users, and what a plain loop reads of them."""
import csv
import io
import math
import pathlib

import numpy as np

from tests.prepared_data import prepare_text

USERS, ITEMS = 40, 24
COUNTRIES = ("DE", "FR", "US")
SETTINGS = dict(context_columns=("country", "hour:number", "tags:list"),
                user_feature_columns=("gender", "age:number"), feature_columns=("category",), number_bins=4,
                event_column="kind", event_weights=("buy:3", "pv:1"), shard_records=16)


def log_text(seed=0):
    """Users have a home country, whose items they click; some values are missing, one is in a test click only."""
    rng, lines = np.random.default_rng(seed), ["user_id,item_id,timestamp,country,hour,tags,kind,category"]
    for user in range(USERS):
        home, count = rng.integers(3), int(rng.integers(7, 13))
        for click in range(count):
            item = 3 * int(rng.integers(ITEMS // 3)) + home
            country = "" if rng.random() < .1 else COUNTRIES[home]
            country = "XX" if click == count - 1 and user == 5 else country
            hour = "nan" if rng.random() < .1 else str(int(rng.integers(24)))
            tags = "|".join(rng.choice(list("abc"), int(rng.integers(0, 3)), replace=False))
            kind = "buy" if rng.random() < .3 else "pv"
            lines.append(f"u{user},{item + 1},{1_600_000_000 + 400 * click + user},{country},{hour},{tags},{kind},"
                         f"c{item % 5}")
    return "\n".join(lines) + "\n"


def user_text():
    """All users but the last two; genders and ages, of which some are missing."""
    lines = ["user_id,gender,age,note"]
    for user in range(USERS - 2):
        gender = ("f", "m", "")[user % 3]
        lines.append(f"u{user},{gender},{'' if user % 7 == 0 else 20 + user % 30 + .5},n{user}")
    return "\n".join(lines) + "\n"


def prepared(folder: pathlib.Path, seed=0, **settings) -> str:
    """Data folder."""
    path = folder / "users.csv"
    path.write_text(user_text(), encoding="utf-8")
    return prepare_text(folder, log_text(seed), **{**SETTINGS, "user_features": str(path), **settings})


def table(text):
    """Rows of a CSV text."""
    return list(csv.DictReader(io.StringIO(text)))


def naive_rows(seed=0):
    """(schema facts, user id -> list of (time, profile, context)) by loops over the texts.

    Categories by falling number of training clicks, ties by value; numbers by quantiles of training clicks.
    """
    clicks, people = {}, {row["user_id"]: row for row in table(user_text())}
    for row in table(log_text(seed)):
        clicks.setdefault(row["user_id"], []).append(row)
    training = [row for rows in clicks.values() for row in sorted(rows, key=lambda r: int(r["timestamp"]))[:-2]]
    counted = lambda values: [value for value, _ in sorted(
        ((value, values.count(value)) for value in set(values)), key=lambda pair: (-pair[1], pair[0]))]
    of = lambda row, name: people.get(row["user_id"], {}).get(name, "")
    countries = counted([row["country"] for row in training if row["country"]])
    tags = counted([tag for row in training for tag in row["tags"].split("|") if tag])
    genders = counted([of(row, "gender") for row in training if of(row, "gender")])
    hours = naive_bounds([float(row["hour"]) for row in training if row["hour"] != "nan"], 4)
    ages = naive_bounds([float(of(row, "age")) for row in training if of(row, "age")], 4)
    number = lambda names, value: names.index(value) + 1 if value in names else 0
    rows = {}
    for user, own in clicks.items():
        for row in sorted(own, key=lambda r: int(r["timestamp"])):
            labels = [number(tags, tag) for tag in row["tags"].split("|") if tag][:2]
            age, hour = of(row, "age"), float(row["hour"])
            profile = [number(genders, of(row, "gender")), naive_bin(float(age), ages) if age else 0]
            context = [number(countries, row["country"]), 0 if math.isnan(hour) else naive_bin(hour, hours),
                       *(labels + [0, 0])[:2]]
            rows.setdefault(user, []).append((int(row["timestamp"]), profile, context))
    return dict(countries=countries, tags=tags, genders=genders, hours=hours, ages=ages), rows


def naive_bounds(numbers, bins):
    """The least number of each bin but the first: bins begin where at least i/bins of all numbers are smaller."""
    ascending, bounds = sorted(numbers), []
    for i in range(1, bins):
        begin = next((x for x in ascending if sum(y < x for y in ascending) / len(ascending) >= i / bins),
                     ascending[-1])
        if begin != ascending[0] and begin not in bounds:
            bounds.append(begin)
    return bounds


def naive_bin(value, bounds):
    """1 + how many bounds are at most the value."""
    return 1 + sum(bound <= value for bound in bounds)
