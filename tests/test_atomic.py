"""Places that files and folders cannot take, and what a person can do about each error of the operating system."""
import errno
import os

import pytest

from clrec_tf.errors import UserError
from clrec_tf.system import atomic


@pytest.fixture(name="place")
def fixture_place(tmp_path, monkeypatch):
    """A folder, with a folder and a file in it, that relative names start from."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_places_that_can_be_taken(place):
    for path in ("new.json", "file", "folder/new.json", str(place / "new.json")):
        atomic.check_file_place(path, "json")
    for path in ("folder", "new", "new/er", "folder/new/"):
        atomic.check_folder_place(path, "workdir")
    assert sorted(os.listdir(place)) == ["file", "folder"]  # a check makes nothing


@pytest.mark.parametrize("path, message", [
    ("folder", "--json=folder is a folder: give the name of a file"),
    ("absent/new.json", "--json=absent/new.json: its folder does not exist; make it"),
    ("file/new.json", "--json=file/new.json: its folder does not exist; make it")])
def test_a_file_that_cannot_be_written(place, path, message):
    del place
    with pytest.raises(UserError, match=message):
        atomic.check_file_place(path, "json")


@pytest.mark.parametrize("path, message", [
    ("file", "--workdir=file is a file, not a folder: choose another --workdir"),
    ("file/new", "--workdir=file/new cannot be made or written to: .*/file is not a writable folder")])
def test_a_folder_that_cannot_be_made(place, path, message):
    del place
    with pytest.raises(UserError, match=message):
        atomic.check_folder_place(path, "workdir")


def test_permissions_count(place, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for anybody but root
    with pytest.raises(UserError, match="--json=folder/new.json: folder is not writable; change its permissions"):
        atomic.check_file_place("folder/new.json", "json")
    with pytest.raises(UserError, match=f"--workdir=new .*: {place} is not a writable folder"):
        atomic.check_folder_place("new", "workdir")


@pytest.mark.parametrize("number, remedy", [
    (errno.ENOSPC, "free space"), (errno.EACCES, "change the permissions of .*/folder"),
    (errno.EROFS, "change the permissions"), (errno.EISDIR, "choose another place")])
def test_the_remedy_fits_the_error(place, monkeypatch, number, remedy):
    def fails(old, new):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(UserError, match=rf"--output=folder/new: .*\({os.strerror(number)}\): {remedy}") as caught:
        with atomic.new_file("folder/new", "output=folder/new"):
            pass
    assert ("free space" in str(caught.value)) == (number == errno.ENOSPC)
    assert os.listdir(place / "folder") == []


def test_a_missing_folder_is_to_be_made(place):
    with pytest.raises(UserError, match=rf"make the folder {place}/absent, or choose another place"):
        with atomic.new_file("absent/new", "output=absent/new"):
            pass
