"""Every command's flags, help, exit codes and errors, in processes of their own as a user meets them."""
from importlib import metadata
import os
import pathlib
import re
import subprocess
import sys

import pytest

import clrec_tf
from clrec_tf.config import Config
from clrec_tf import doctor
from tests import forked

ROOT = pathlib.Path(__file__).parents[1]
LATER = metadata.version("tensorflow").startswith("2.20.")
INSTALL = "pip install -c constraints-tf220.txt -e " if LATER else "pip install -c constraints.txt -e "
WITH_SERVICE = INSTALL + ("'.[serve]'" if LATER else "'.[serve,io]'")


def command(module, *arguments, **kwargs):
    run = subprocess.run if module == "doctor" else forked.run  # doctor is there to import
    return run([sys.executable, "-m", f"clrec_tf.{module}", *arguments], capture_output=True, text=True, cwd=ROOT,
               timeout=120, **kwargs)


@pytest.mark.parametrize("module, own, other", [
    ("prepare", "--min_train_length  [5]", "--learning_rate  ["),
    ("train", "--queue (auto|in_batch|raw|cached|all_clicks)  [auto]", "--suite  ["),
    ("evaluate", "--filter_seen  [True]", "--learning_rate  ["),
    ("report", "--html  []", "--learning_rate  ["),
    ("export", "--target_recall  [0.95]", "--learning_rate  ["),
    ("retrieve", "--exclude_seen  [False]", "--learning_rate  ["),
    ("serve", "--max_wait_ms  [50]", "--learning_rate  ["),
    ("update_index", "--withdraw  []", "--learning_rate  ["),
])
def test_help_explains_the_flags_of_the_command(module, own, other):
    result = command(module, "--help")
    assert result.returncode == 0 and own in result.stdout and other not in result.stdout
    assert "--flagfile=FILE" in result.stdout


@pytest.mark.parametrize("module, own, others", [
    ("serve", ("export_dir", "workdir", "k", "exclude_seen", "intents", "merge"),
     ("history", "users", "output", "embeddings", "retrieve_batch", "seed", "data_dir")),
    ("retrieve", ("export_dir", "workdir", "history", "users"), ("seed", "data_dir")),
    ("update_index", ("export_dir", "target_recall"), ("data_dir", "workdir", "seed", "index")),
])
def test_help_leaves_out_what_the_command_does_not_use(module, own, others):
    text = command(module, "--help").stdout
    assert all(f"  --{name} " in text for name in own) and not any(f"  --{name} " in text for name in others)
    assert "one version inside it" not in text and "export fails" not in text


def test_help_begins_with_what_the_command_is_about():
    result = command("benchmark", "--help")
    own = [result.stdout.index(f"  --{name}") for name in ("suite", "json", "data_dir", "embedding_dim", "batch_size")]
    assert own == sorted(own) and "takes 9 GB" in result.stdout


@pytest.mark.parametrize("arguments, message", [
    (["--bogus=1"], "Unknown command line flag 'bogus'"),
    (["--queue=other"], "--queue=other: value should be one of <auto|in_batch|raw|cached|all_clicks>"),
    (["--batch_size=0"], "--batch_size=0: must be ≥ 1"),
    (["--batch_size=x"], "--batch_size=x"),
    (["--temperature=nan"], "--temperature=nan: must be ≥ 1e-06"),
    (["--queue_size=10"], "--queue_size=10 is smaller than --batch_size=256"),
    (["--stages=fly"], "--stages=fly: choose from generate,prepare,train,evaluate,export,show"),
    (["stray"], "unexpected argument 'stray'"),
    ([], "--data_dir is not set: a folder made by python -m clrec_tf.prepare"),
    (["--data_dir=nowhere", "--workdir=elsewhere"], "nowhere holds no complete data set"),
    (["--data_dir=nowhere", "--workdir=nowhere/"], "--workdir=nowhere/ is equal to --data_dir=nowhere: a data set and"),
    (["--data_dir=nowhere", "--workdir=README.md"], "--workdir=README.md is a file, not a folder: choose another"),
    (["--stages=prepare,train", "--data_dir=nowhere", "--workdir=nowhere/run"],
     "--workdir=nowhere/run is inside --data_dir=nowhere: a data set and"),
    (["--stages=prepare,evaluate", "--data_dir=nowhere", "--ks=0"], "--ks=0: cut-offs must be ≥ 1"),
    (["--stages=generate,prepare,train,evaluate", "--data_dir=nowhere", "--workdir=elsewhere",
      "--candidate_sets=pop10"], "--candidate_sets=pop10: choose from full, pop100, uniform100"),
    (["--stages=prepare,train", "--data_dir=nowhere", "--workdir=elsewhere", "--validation_metric=hr@0/full"],
     "--validation_metric=hr@0/full: must be hr@K"),
    (["--data_dir=nowhere", "--workdir=elsewhere", "--adam_beta2=1"], "--adam_beta2=1.0: must be below 1"),
    (["--stages=generate,prepare", "--data_dir=README.md/data"], "--data_dir=README.md/data cannot be made"),
    (["--flagfile=nowhere.flags"], "error: Unable to open flagfile: "),
])
def test_wrong_flags_name_flag_value_and_remedy(arguments, message):
    result = command("train", *arguments)
    assert result.returncode == 2 and message in result.stderr and "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not any((ROOT / name).exists() for name in ("nowhere", "elsewhere", "nowhere-log"))


def test_a_flagfile_named_by_another_is_looked_for_from_here(tmp_path):
    outer = tmp_path / "outer.flags"
    outer.write_text("--flagfile=inner.flags\n")
    (tmp_path / "inner.flags").write_text("--epochs=3\n")
    result = command("train", f"--flagfile={outer}")
    assert result.returncode == 2 and "'inner.flags' (flagfiles, also those that a flagfile names, are" in result.stderr


def test_a_flag_after_the_flagfile_overrides_it_and_unused_flags_are_named(tmp_path):
    flagfile = tmp_path / "some.flags"
    flagfile.write_text("\ufeff# a record\n--epochs=3\n--format=sequence\n--input=missing.txt\n--learning_rate=0.5\n")
    result = command("prepare", f"--flagfile={flagfile}", "--input=other.txt", f"--data_dir={tmp_path}/data")
    assert result.returncode == 2 and "other.txt" in result.stderr and "missing.txt" not in result.stderr
    assert "does not use: --epochs --learning_rate" in result.stderr


@pytest.mark.parametrize("arguments, message", [
    (["--ks=1,ten"], "--ks=1,ten: cut-offs must be integers"),
    (["--candidate_sets=all"], "--candidate_sets=all: choose from full, pop100, uniform100")])
def test_evaluate_checks_its_settings_before_it_looks_for_a_run(arguments, message):
    result = command("evaluate", "--data_dir=nowhere", "--workdir=nowhere", *arguments)
    assert result.returncode == 2 and message in result.stderr and "Traceback" not in result.stderr


def test_doctor_finds_every_package_in_order_and_leaves_no_files_behind(tmp_path):
    result = command("doctor", env={**os.environ, "TMPDIR": str(tmp_path)})
    assert result.returncode == 0, result.stdout
    assert os.listdir(tmp_path) == []
    assert result.stdout.count("ok  ") == (9 if LATER else 10) and "FAIL" not in result.stdout


def test_doctor_says_how_to_get_the_service_and_does_without(monkeypatch, capsys):
    found = doctor.metadata.version

    def version(package):
        if package == "msgspec":
            raise doctor.metadata.PackageNotFoundError(package)
        return found(package)
    monkeypatch.setattr(doctor.metadata, "version", version)
    monkeypatch.setattr(doctor, "CHECKS", {"polars": doctor.CHECKS["polars"]})
    assert doctor.main(Config()) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("none  the service") and "not installed: msgspec;" in last
    assert last.endswith(WITH_SERVICE)
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "CHECKS", {})
    monkeypatch.setattr(doctor, "_service", lambda: 1 / 0)
    assert doctor.main(Config()) == 1
    told = capsys.readouterr()
    assert told.out.startswith("FAIL  the service") and told.err.endswith(f"{WITH_SERVICE}\n")


@pytest.mark.parametrize("hidden, package", [
    ("tensorflow", "tensorflow"), ("tf_keras", "tf-keras"), ("absl", "absl-py"), ("numpy", "numpy"), ("polars", "polars")])
def test_doctor_reports_a_package_that_cannot_be_imported_and_the_remedy(tmp_path, hidden, package):
    (tmp_path / "sitecustomize.py").write_text(f"""
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {hidden!r}:
            raise ImportError("hidden: undefined symbol")
sys.meta_path.insert(0, Hide())
""")
    result = command("doctor", env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert result.returncode == 1 and "Traceback" not in result.stderr, result.stderr
    assert re.search(rf"^FAIL  {package} +\d\S+ +ImportError: hidden: undefined symbol$", result.stdout, re.MULTILINE)
    assert result.stderr.endswith(f"remedy: install the tested set: {INSTALL}" + (".\n" if LATER else "'.[io]'\n"))


def test_doctor_does_not_call_a_fault_of_ours_one_of_a_package(monkeypatch):
    monkeypatch.setattr(doctor, "main", lambda config: 0)
    monkeypatch.setitem(sys.modules, "clrec_tf.command_line", None)
    monkeypatch.delattr(clrec_tf, "command_line", raising=False)
    with pytest.raises(ImportError):
        doctor.run()


@pytest.mark.parametrize("error, code, words", [
    ("OSError(28, 'No space left on device', 'file')", 74, "error: No space left on device: file"),
    ("RuntimeError('saved_model.pb; No space left on device')", 74, "error: saved_model.pb; No space left on device: free"),
    ("OSError(13, 'Permission denied', 'file')", 2, "error: Permission denied: file"),
    ("RuntimeError('a fault of ours')", 1, "RuntimeError: a fault of ours"),
    ("BusyError('in use')", 75, "error: in use")])
def test_errors_become_exit_codes(error, code, words):
    script = ("from clrec_tf import command_line\nfrom clrec_tf.errors import BusyError\n"
              f"def main(config):\n    raise {error}\ncommand_line.run(main, uses=(), usage='')")
    result = forked.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == code and words in result.stderr and ("Traceback" in result.stderr) == (code == 1)
