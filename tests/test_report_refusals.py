"""Runs that make no report, places that cannot hold one, and what is said of them."""
import json
import os
import sys

import pytest

from clrec_tf.errors import DataError
from clrec_tf.errors import DiskFullError
from clrec_tf.errors import UserError
from clrec_tf.report import write_report
from clrec_tf.reporting.runs import read_runs
from tests import forked
from tests.finished_runs import make_run, METRICS


class TestRefusals:
    """Which runs make no page, and what is said of them."""

    def refused(self, kind, *folders):
        with pytest.raises(kind) as error:
            read_runs([str(folder) for folder in folders])
        return str(error.value)

    def test_no_run(self):
        assert "no RUN is given" in self.refused(UserError)

    def test_different_data_sets(self, tmp_path):
        said = self.refused(UserError, make_run(tmp_path / "a", data_dir="ONE"),
                            make_run(tmp_path / "b", data_dir="TWO", schema_hash="e" * 64))
        assert f"{tmp_path}/a on ONE (schema dddddddddddd)" in said and f"{tmp_path}/b on TWO (schema eeee" in said

    def test_a_run_without_evaluation(self, tmp_path):
        run = make_run(tmp_path / "a")
        (run / "metrics.json").unlink()
        said = self.refused(DataError, run)
        assert f"not evaluated; run python -m clrec_tf.evaluate --data_dir=DATA --workdir={run}" in said

    @pytest.mark.parametrize("text", ["{", "[]", "\ufffe", '{"split": "test"}', '{"users": 3, "split": 4}', "[" * 10**5,
                                      '{"users": 3, "split": "test", "hr@10/full/popularity=x": 1}'])
    def test_a_damaged_evaluation(self, tmp_path, text):
        run = make_run(tmp_path / "a")
        (run / "metrics.json").write_text(text, encoding="utf-16" if text == "\ufffe" else "utf-8")
        said, command = self.refused(DataError, run), "run python -m clrec_tf.evaluate --data_dir=DATA --workdir="
        assert f"{run}/metrics.json" in said and f"{command}{run}" in said

    def test_the_same_run_twice(self, tmp_path):
        run = make_run(tmp_path / "a")
        (tmp_path / "link").symlink_to(run)
        assert f"{tmp_path}/link is the same run as {run}" in self.refused(UserError, run, tmp_path / "link")

    def test_folders_that_are_no_run(self, tmp_path):
        make_run(tmp_path / "runs" / "a")
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").write_text("")
        assert f"it holds runs: give {tmp_path}/runs/a" in self.refused(UserError, tmp_path / "runs")
        assert "is no run, it has no config.json: give the --workdir" in self.refused(UserError, tmp_path / "empty")
        assert "is a file: give the folder" in self.refused(UserError, tmp_path / "file")
        assert "is not there" in self.refused(UserError, tmp_path / "absent")

    def test_a_damaged_record_and_example(self, tmp_path):
        run = make_run(tmp_path / "a")
        (run / "intents.json").write_text('{"user_id": 3}')
        assert "intents.json is not what evaluate writes" in self.refused(DataError, run)
        (run / "config.json").write_text((run / "config.json").read_text().replace("contrastive", "contrastivf"))
        assert "config.json is damaged" in self.refused(DataError, run)


class TestWriting:
    """The file of the page."""

    def test_a_page_replaces_one_that_is_there(self, tmp_path):
        run, path = make_run(tmp_path / "a"), tmp_path / "page.html"
        path.write_text("old")
        write_report([str(run)], str(path))
        assert path.read_text().startswith("<!doctype html>") and path.read_text().endswith("</html>\n")
        with pytest.raises(UserError):
            write_report([str(tmp_path / "absent")], str(path))
        assert path.read_text().startswith("<!doctype html>")
        assert sorted(os.listdir(tmp_path)) == ["a", "page.html"]

    @pytest.mark.parametrize("place, message", [("", "--html is not set"), (".", "is a folder"),
                                                ("absent/page.html", "its folder does not exist")])
    def test_places_that_cannot_be_written_to(self, tmp_path, place, message):
        with pytest.raises(UserError, match=message):
            write_report([str(make_run(tmp_path / "a"))], place and os.path.join(tmp_path, place))

    def test_a_full_disk(self, tmp_path, monkeypatch):
        run, path = make_run(tmp_path / "a"), tmp_path / "page.html"
        path.write_text("old")
        real = open

        def full(name, *arguments, **options):
            file = real(name, *arguments, **options)
            if "page.html" in str(name) and "w" in arguments:
                file.close()
                return real("/dev/full", *arguments, **options)
            return file

        monkeypatch.setattr("builtins.open", full)
        with pytest.raises(DiskFullError, match="free space"):
            write_report([str(run)], str(path))
        assert path.read_text() == "old" and sorted(os.listdir(tmp_path)) == ["a", "page.html"]

    def test_half_a_surrogate_pair_is_written(self, tmp_path):
        run = make_run(tmp_path / "a")
        (run / "metrics.json").write_text(json.dumps(METRICS | {"warnings": ["\ud800 and more"]}))
        write_report([str(run)], str(tmp_path / "page.html"))
        assert "? and more" in (tmp_path / "page.html").read_text(encoding="utf-8")

    def test_the_command_takes_runs_and_flags_in_any_order(self, tmp_path):
        folders = [str(make_run(tmp_path / name)) for name in ("a", "b")]
        first, second = (f"--html={tmp_path}/{number}.html" for number in (1, 2))
        for arguments in ([*folders, first], [folders[0], second, folders[1]]):
            done = forked.run([sys.executable, "-m", "clrec_tf.report", *arguments], capture_output=True, text=True,
                              timeout=120)
            assert done.returncode == 0, done.stderr
        assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()
