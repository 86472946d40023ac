"""Where files go, and that half a file never stands in for a whole one."""

import os
import stat

import pytest

from tilewright import paths

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")


@pytest.mark.parametrize(
    ("variable", "directory"),
    [("TILEWRIGHT_DATA_DIR", paths.data_dir), ("TILEWRIGHT_CACHE_DIR", paths.cache_dir)],
)
def test_directories_can_be_chosen_and_are_private(variable, directory, tmp_path, monkeypatch):
    monkeypatch.setenv(variable, str(tmp_path / "new" / "one"))
    found = directory()
    assert found == tmp_path / "new" / "one"
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
    assert directory() == found


def test_an_empty_variable_counts_as_unset(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_DATA_DIR", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert paths.data_dir().name == "tilewright"
    assert paths.data_dir().is_relative_to(tmp_path)


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_directory_others_can_write_to_is_refused_and_left_alone(tmp_path, mode):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    with pytest.raises(paths.UnsafeDirectoryError, match="chmod 700") as refused:
        paths.private_directory(shared)
    assert "\n" not in str(refused.value)
    assert stat.S_IMODE(shared.stat().st_mode) == mode


def test_another_users_directory_is_refused(tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    paths.private_directory(mine)
    monkeypatch.setattr(os, "geteuid", lambda: mine.stat().st_uid + 1)
    with pytest.raises(paths.UnsafeDirectoryError, match="belongs to another user"):
        paths.private_directory(mine)


def test_a_readable_directory_is_accepted(tmp_path):
    readable = tmp_path / "readable"
    readable.mkdir(mode=0o755)
    assert paths.private_directory(readable) == readable


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(paths.UnsafeDirectoryError):
            paths.private_directory(path)


def test_writing_replaces_the_whole_file_and_leaves_nothing_else(tmp_path):
    target = tmp_path / "kernel"
    paths.write_atomically(target, b"old and long")
    paths.write_atomically(target, b"new")
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "kernel"
    paths.write_atomically(target, b"old")

    def full_disk(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space left"):
        paths.write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_directory_is_not_overwritten(tmp_path):
    with pytest.raises(OSError, match="not a plain file"):
        paths.write_atomically(tmp_path, b"")


def test_a_home_that_nobody_has_is_named(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_DATA_DIR", "~no-such-user/x")
    with pytest.raises(paths.UnsafeDirectoryError, match="TILEWRIGHT_DATA_DIR='~no-such-user/x'"):
        paths.data_dir()
