"""Where portfolios are looked for: the user's own folder, if nobody else can write to it."""

from __future__ import annotations

import warnings

import pytest

from tests.portfolio.examples import H100, Hopper, forget, kernel, write
from tilewright import reload
from tilewright.paths import UnsafeDirectoryError
from tilewright.portfolio import choose, find, own_folder, shipped
from tilewright.portfolio.find import own
from tilewright.problem import Problem

SQUARE = Problem(64, 64, 64, "s")
MINE = kernel(SQUARE, won={(64, 64, 64): 1.0})


def used(*letters: str) -> bool:
    """Whether a kernel of a portfolio serves any of some calls."""
    calls = [Problem(64 + at, 64, 64, letter) for at, letter in enumerate(letters)]
    return any(choose(Hopper(key="here"), one).kernel is not None for one in calls)


def test_ones_own_are_in_the_data_directory_by_device(data):
    assert own_folder("here") == data / "portfolios" / "here"
    assert own_folder("here").stat().st_mode & 0o077 == 0
    assert own("here", "s") is None
    write(own_folder("here"), [MINE])
    assert own("here", "s") is None  # as it was when first looked at
    reload()
    assert own("here", "s").kernels == (MINE,)
    assert own("there", "s") is None
    assert own("here", "d") is None
    assert own("", "s") is None


def test_another_folder_may_be_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_PORTFOLIO_DIR", str(tmp_path / "mine"))
    assert own_folder("here") == tmp_path / "mine" / "here"
    write(own_folder("here"), [MINE])
    assert choose(Hopper(key="here"), SQUARE).kernel == MINE


def test_a_named_folder_that_others_can_write_to_is_refused(tmp_path, monkeypatch):
    """Whoever can write to it can replace what lies there, whosever that is."""
    monkeypatch.setenv("TILEWRIGHT_PORTFOLIO_DIR", str(tmp_path / "mine"))
    write(own_folder("here"), [MINE])
    (tmp_path / "mine").chmod(0o777)
    with pytest.raises(UnsafeDirectoryError, match=r"^TILEWRIGHT_PORTFOLIO_DIR: .*mine can be"):
        own_folder("here")


def test_a_named_folder_that_cannot_be_made_is_served_by_another(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_PORTFOLIO_DIR", "/proc/nope")
    assert own("here", "s") is None
    monkeypatch.setattr("tilewright.paths._warned", [])
    with pytest.warns(RuntimeWarning, match="/proc/nope cannot be made"):
        found = own_folder("here", to_write=True)
    assert found.is_dir()
    assert found.parts[-2:] == ("portfolios", "here")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_a_folder_that_others_can_write_to_is_refused(mode):
    """Machine code is loaded from what lies there: defaults serve, and one warning says why."""
    folder = own_folder("here")
    write(folder, [MINE])
    folder.chmod(mode)
    with pytest.raises(UnsafeDirectoryError, match="chmod 700"):
        own_folder("here")
    with pytest.warns(RuntimeWarning, match="not used: .* can be written to by other") as told:
        assert not used(*"ssd")
    assert len(told) == 1
    folder.chmod(0o700)
    reload()
    assert choose(Hopper(key="here"), SQUARE).kernel == MINE


def test_a_damaged_portfolio_of_ones_own_is_told_once_and_not_used():
    write(own_folder("here"), [MINE])
    (own_folder("here") / "s.json").write_bytes(b"\xff\xfe")
    said = r"not used: /.*/s.json is no portfolio.*; move it away"
    with pytest.warns(RuntimeWarning, match=said) as told:
        assert not used(*"sss")
    assert len(told) == 1


def test_a_damaged_portfolio_of_the_package_is_told_and_defaults_serve(ship, tmp_path):
    ship(MINE)
    (tmp_path / "package" / "s.json").write_text("{}")
    forget()
    with pytest.warns(RuntimeWarning, match=r"defaults serve: .*s.json is no portfolio"):
        assert choose(Hopper(), SQUARE).kernel is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose(Hopper(), Problem(65, 65, 65, "s")).kernel is None


def test_devices_without_a_compute_capability_have_no_portfolio_of_the_package(live):
    assert live.spec.compute_capability is not None or shipped(live.spec, "s") is None
    assert find.shipped_folder(None) is None
    assert find.shipped_folder(10) is None


def test_every_reload_changes_what_choices_depend_on():
    before = find.generation()
    reload()
    assert find.generation() > before
    assert own(Hopper(H100, "here").portfolio_key, "s") is None
