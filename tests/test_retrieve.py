"""The retrieve command: every form of input and output, and every way input can be wrong."""
import functools
import io
import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import RetrieveConfig
from clrec_tf.errors import UserError
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.user_requests import read_json_lines
from clrec_tf import retrieve
from tests import exported
from tests import forked

A, B, C = (exported.original_id("string", number) for number in (3, 14, 15))


load_once = functools.cache(load_bundle)  # loading itself is tested in test_bundle


def run(capsys, monkeypatch, kind="string", stdin=None, **settings):
    """Output objects of the command, called in this process."""
    text = b"" if stdin is None else stdin if isinstance(stdin, bytes) else "".join(
        (line if isinstance(line, str) else json.dumps(line)) + "\n" for line in stdin).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    monkeypatch.setattr(retrieve, "load_bundle", load_once)
    paths = Paths(export_dir=settings.pop("export_dir", exported.bundle_folder(kind)))
    try:
        retrieve.main(Config(paths=paths, retrieve=RetrieveConfig(**settings)))
    except UserError:
        assert capsys.readouterr().out == ""
        raise
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def signature(history, k, exclude=(), timestamps=None, request_time=0):
    """ids and scores of the `retrieve` signature on the raw history."""
    result = exported.loaded("string").tower.signatures["retrieve"](
        history=tf.constant([history], tf.string), popularity=tf.zeros([1]), k=tf.constant([k]), exclude=tf.constant([list(exclude)], tf.string),
        timestamps=tf.constant([timestamps or [0] * len(history)], tf.int64),
        request_time=tf.constant([request_time], tf.int64))
    return [name.decode() for name in result["ids"].numpy()[0]], result["scores"].numpy()[0]


def test_one_history_on_the_command_line(capsys, monkeypatch):
    (result,) = run(capsys, monkeypatch, history=f"{A},zzz, {B},zzz", k=5)
    ids, scores = signature([A, B], 5)
    assert result == dict(ids=ids, titles=[name.replace("ä", "Title") for name in ids], unknown=["zzz"],
                          scores=pytest.approx(scores, abs=1e-5))
    (result,) = run(capsys, monkeypatch, kind="int", history="1021,-1,1021", k=2)
    assert result["unknown"] == [-1] and len(result["ids"]) == 2 and "titles" not in result


def test_json_lines(capsys, monkeypatch):
    times, now = [exported.NOW - 900, exported.NOW - 30], exported.NOW
    results = run(capsys, monkeypatch, k=4, stdin=[
        [A, B], "", {"history": [B, C], "user_id": "u7", "timestamps": times, "request_time": now},
        [], {"history": ["?"]},
        {"history": [A, B] * 30, "user_id": 3, "timestamps": [None] * 60, "request_time": now}])
    assert [result.get("user_id") for result in results] == [None, "u7", None, None, 3]
    assert results[0]["ids"] == signature([A, B], 4)[0]
    ids, scores = signature([B, C], 4, timestamps=times, request_time=now)
    assert results[1]["ids"] == ids and results[1]["scores"] == pytest.approx(scores, abs=1e-5)
    assert results[2]["ids"] == results[3]["ids"] == signature([""], 4)[0] and results[2]["scores"] == [0] * 4
    assert results[3]["unknown"] == ["?"] and "unknown" not in results[2]
    assert results[4]["ids"] == signature([A, B] * 30, 4)[0]


def test_seen_items_are_left_out_even_those_the_tower_does_not_see(capsys, monkeypatch):
    history = [exported.original_id("string", number) for number in range(1, 31)]  # the tower sees the last 4
    (result,) = run(capsys, monkeypatch, stdin=[history], k=12, exclude_seen=True)
    assert result["ids"] == signature(history, 12, exclude=history)[0]
    (result,) = run(capsys, monkeypatch, stdin=[history], k=500, exclude_seen=True)
    assert len(result["ids"]) == exported.ITEMS - 30 and not set(result["ids"]) & set(history)
    (result,) = run(capsys, monkeypatch, stdin=[history], k=500)
    assert len(set(result["ids"])) == exported.ITEMS


def test_integer_ids_as_numbers_or_digits(capsys, monkeypatch):
    one, same = run(capsys, monkeypatch, kind="int", stdin=[[1021], ["1021"]], k=3)
    assert one == same and all(isinstance(item, int) for item in one["ids"])


USERS = [{"user_id": number, "history": history, "timestamps": [exported.NOW - 60] * len(history),
          "request_time": exported.NOW} for number, history in enumerate([[A], [B, "zz", C], [], [C, A, B, A, C, B]])]


def write_users(path, users):
    if str(path).endswith(".parquet"):
        pl.DataFrame(users, {"user_id": pl.Int64, "history": pl.List(pl.String), "timestamps": pl.List(pl.Int64),
                             "request_time": pl.Int64}).write_parquet(path)
    else:
        path.write_text("".join(json.dumps(user) + "\n" for user in users))
    return str(path)


@pytest.mark.parametrize("source", ["users.jsonl", "users.parquet"])
@pytest.mark.parametrize("target", ["items.jsonl", "items.parquet"])
def test_bulk_equals_line_by_line(capsys, monkeypatch, tmp_path, source, target):
    expected = run(capsys, monkeypatch, stdin=USERS, k=3)
    output = tmp_path / target
    output.write_text("an older result")
    run(capsys, monkeypatch, k=3, users=write_users(tmp_path / source, USERS), output=str(output), retrieve_batch=3,
        embeddings=str(tmp_path / "vectors.npz"))
    if target.endswith(".jsonl"):
        found = [json.loads(line) for line in output.read_text().splitlines()]
    else:
        table = pl.read_parquet(output)
        assert table.columns == ["user_id", "ids", "titles", "scores", "unknown", "fallback"]
        found = [{name: value for name, value in row.items() if value or name not in ("unknown", "fallback")}
                 for row in table.to_dicts()]
    for row, result in zip(found, expected, strict=True):
        assert row.pop("scores") == pytest.approx(result.pop("scores"), abs=1e-5)
        assert row == result
    assert sorted(os.listdir(tmp_path)) == sorted([source, target, "vectors.npz"])
    with np.load(tmp_path / "vectors.npz", allow_pickle=False) as arrays:
        assert arrays["user_ids"].tolist() == [0, 1, 2, 3] and arrays["user_vectors"].shape == (4, 9)
        scores = arrays["user_vectors"] @ arrays["item_vectors"].T  # what was retrieved follows from the vectors
        assert arrays["item_ids"][scores[3].argmax()] == expected[3]["ids"][0]
        assert not arrays["user_vectors"][2].any()


def test_embeddings_without_a_file_of_users(capsys, monkeypatch, tmp_path):
    path = str(tmp_path / "vectors.npz")
    for history, users in ((A, 1), ("", 0)):
        run(capsys, monkeypatch, history=history, embeddings=path)
        with np.load(path, allow_pickle=False) as arrays:
            assert arrays["user_vectors"].shape == (users, 9) and arrays["item_vectors"].shape == (exported.ITEMS, 9)
            assert arrays["item_ids"].tolist() == exported.loaded("string").item_ids.tolist()


@pytest.mark.parametrize("line, problem", [
    ("{", "is not JSON"), (b"\xff", "is not JSON"), ("[" * 100_000, "is not JSON"), ("3", "has no history"),
    ("{}", "has no history"), ('{"history": null}', "has no history"), ('{"history": "a,b"}', "must be a list"),
    ('{"history": [1]}', "ids of this bundle are strings, got 1"), ("[null]", "are strings, got None"),
    ('["\\ud800"]', "are strings"), ('{"history": [], "user": 1}', "unknown entry 'user'"),
    ('{"history": [], "user_id": true}', "user_id True"), ('{"history": [], "user_id": 1.5}', "user_id 1.5"),
    ('{"history": ["a"], "timestamps": [], "request_time": 1}', "as long as the history, 1"),
    ('{"history": ["a"], "timestamps": ["1"], "request_time": 1}', "time stamp '1'"),
    ('{"history": ["a"], "timestamps": [1]}', "no request_time"),
    ('{"history": ["a"], "timestamps": [1], "request_time": 1700000000000}', "000 is no time in seconds: divide"),
    ('{"history": ["a"], "timestamps": [1700000000000], "request_time": 1}', "000 is no time in seconds: divide"),
    ('{"history": ["a"], "dwell": 3}', "dwell must be a list as long as the history, 1"),
    ('{"history": ["a"], "dwell": [3, 4]}', "dwell must be a list as long as the history, 1"),
    ('{"history": ["a"], "dwell": [3.5]}', "dwell time 3.5 must be an integer"),
    ('{"history": [], "request_time": 1e400}', "request_time inf"),
    ('{"history": [], "request_time": 9223372036854775808}', "request_time 9223372036854775808"),
    (json.dumps(["a"] * 100_001), "at most 100000")])
def test_a_bad_line_is_named(line, problem):
    line = line if isinstance(line, bytes) else line.encode()
    with pytest.raises(UserError, match=f"standard input, line 3.*{problem}"):
        list(read_json_lines([b'["a"]\n', b"\n", line + b"\n", b'["b"]\n'], "string", "standard input"))


def test_nothing_is_printed_before_a_bad_line(capsys, monkeypatch):
    with pytest.raises(UserError, match="standard input, line 2 is not JSON"):
        run(capsys, monkeypatch, stdin=[[A], "nonsense"], retrieve_batch=1)


def test_bad_integer_ids(capsys, monkeypatch):
    for item in ('"x"', '"1.0"', "1.0", "true", '"' + "1" * 19 + '"', "9223372036854775808"):
        with pytest.raises(UserError, match="line 1: item ids of this bundle are integers"):
            list(read_json_lines([f"[{item}]".encode()], "int", "standard input"))
    with pytest.raises(UserError, match="--history: item ids of this bundle are integers, got 'a'"):
        run(capsys, monkeypatch, kind="int", history="1021,a")


@pytest.mark.parametrize("settings, problem", [
    (dict(), "standard input is empty"), (dict(k=0, history="a"), "--k=0"), (dict(k=10_001, history="a"), "--k=10001"),
    (dict(users="u.jsonl", history="a"), "exclude each other"), (dict(output="o.jsonl"), "needs --users"),
    (dict(users="u.jsonl"), "needs --output or --embeddings"),
    (dict(users="u.csv", output="o.jsonl"), "must end in .jsonl"),
    (dict(users="u.jsonl", output="o.csv"), "must end in .jsonl or .parquet"),
    (dict(embeddings="e.npy"), "must end in .npz"),
    (dict(history="a", embeddings="nowhere/e.npz"), "--embeddings=nowhere/e.npz: its folder does not exist"),
    (dict(users="nowhere.jsonl", output="o.jsonl"), "does not exist"),
    (dict(history="a", export_dir="/nowhere"), "no complete bundle"),
    (dict(history="a", export_dir=""), "--export_dir is not set"),
    (dict(history="a", intents=2), "--intents=2: the model of .* has 1"), (dict(intents=-1), "--intents=-1"),
    (dict(merge="mean"), "--merge=mean: must be one of maximum, quota")])
def test_bad_flags(capsys, monkeypatch, settings, problem):
    with pytest.raises(UserError, match=problem):
        run(capsys, monkeypatch, **settings)


@pytest.mark.parametrize("users, problem", [
    (USERS[:3] + [{"user_id": 9}], "line 4 has no history"),
    (USERS[:3] + [{"history": [A]}], "user 4 of --users has no user_id"),
    (USERS[:3] + [{"user_id": "x", "history": [A]}], "user 4 .*'x', the first has 0"), ([], "holds no user")])
@pytest.mark.parametrize("target", ["items.jsonl", "items.parquet"])
def test_a_bad_user_in_a_file_leaves_the_old_output(capsys, monkeypatch, tmp_path, users, problem, target):
    output = tmp_path / target
    output.write_text("an older result")
    with pytest.raises(UserError, match=problem):
        source = write_users(tmp_path / "users.jsonl", users)
        run(capsys, monkeypatch, users=source, output=str(output), retrieve_batch=2)
    assert sorted(os.listdir(tmp_path)) == sorted(["users.jsonl", target]) and output.read_text() == "an older result"


def test_bad_parquet(capsys, monkeypatch, tmp_path):
    path, output = tmp_path / "users.parquet", str(tmp_path / "items.parquet")
    path.write_text("no parquet")
    with pytest.raises(UserError, match="not readable Parquet"):
        run(capsys, monkeypatch, users=str(path), output=output)
    for frame, problem in ((pl.DataFrame({"user_id": [1], "items": [[A]]}), "no column `history`"),
                           (pl.DataFrame({"user_id": [1], "history": [A]}), "no column `history` of lists"),
                           (pl.DataFrame({"user_id": [1, 2], "history": [[A], None]}), "row 2 has no history"),
                           (pl.DataFrame({"user_id": [1], "history": [[1.5]]}), "row 1: item ids .* got 1.5")):
        frame.write_parquet(path)
        with pytest.raises(UserError, match=problem):
            run(capsys, monkeypatch, users=str(path), output=output)
    with pytest.raises(UserError, match="--output=.*nowhere/x.jsonl: its folder does not exist; make it"):
        run(capsys, monkeypatch, users=write_users(path, USERS), output=str(tmp_path / "nowhere" / "x.jsonl"))
    assert os.listdir(tmp_path) == ["users.parquet"]


def test_the_command_in_a_process_of_its_own():
    command = [sys.executable, "-m", "clrec_tf.retrieve", f"--export_dir={exported.bundle_folder('string')}", "--k=2"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    good, bad = (forked.Popen(command, text=True, **pipes) for _ in range(2))
    good.stdin.write(f'["{A}"]\n')
    bad.stdin.write(f'["{A}"]\nnonsense\n')
    (output, _), (nothing, problem) = good.communicate(), bad.communicate()
    assert good.returncode == 0 and json.loads(output)["ids"] == signature([A], 2)[0]
    assert bad.returncode == 2 and nothing == ""
    assert "error: standard input, line 2 is not JSON" in problem and "Traceback" not in problem
