"""Which portfolios serve a device: the user's own, and those that come with the package."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from tilewright.hardware import DeviceSpec
from tilewright.paths import (
    NoDirectoryError,
    UnsafeDirectoryError,
    data_dir,
    private_directory,
    served_instead,
)
from tilewright.portfolio.portfolio import Portfolio, PortfolioError, read_portfolio

__all__ = [
    "VARIABLE",
    "generation",
    "on_reload",
    "own",
    "own_folder",
    "own_keys",
    "reload",
    "shipped",
    "shipped_folder",
    "shipped_for",
]

VARIABLE = "TILEWRIGHT_PORTFOLIO_DIR"

# What was read stays as it is until `reload`, so that equal calls of a process give equal bits.
_lock = threading.Lock()
_own: dict[tuple[str, str], Portfolio | None] = {}
_generation = 0
_listeners: list[Callable[[], object]] = []


def shipped_folder(compute_capability: int | None) -> Path | None:
    """Return the package's folder for an architecture; None where nothing ships for it."""
    folder = Path(__file__).with_name(f"sm_{compute_capability}")
    return folder if folder.is_dir() else None


@lru_cache(maxsize=32)
def shipped_for(compute_capability: int | None, name: str) -> Portfolio | None:
    """Return the package's portfolio for an architecture, whichever device of it one has."""
    folder = shipped_folder(compute_capability)
    if folder is None or not folder.joinpath(f"{name}.json").is_file():
        return None
    try:
        return read_portfolio(folder, name, trusted=True)
    except PortfolioError as error:
        warnings.warn(f"defaults serve: {error}", RuntimeWarning, stacklevel=2)
        return None


@lru_cache(maxsize=256)
def shipped(device: DeviceSpec, name: str) -> Portfolio | None:
    """Return the package's portfolio of a name for a device; None without one."""
    if device.compute_capability is None:
        return None
    found = shipped_for(device.compute_capability, name)
    return found if found is not None and found.serves(device) else None


def own_keys() -> list[str]:
    """Return what devices have portfolios of their own on this machine."""
    named = os.environ.get(VARIABLE)
    folder = Path(named).expanduser() if named else data_dir() / "portfolios"
    try:
        return sorted(one.name for one in folder.iterdir() if any(one.glob("*.json")))
    except OSError:
        return []


def own_folder(key: str, *, to_write: bool = False) -> Path:
    """Return where a device's own portfolios are: tuned or built on this machine.

    ``$TILEWRIGHT_PORTFOLIO_DIR`` where that is set, else in the user's data directory.

    Parameters
    ----------
    key : str
        What tells the device from others: a fingerprint.
    to_write : bool
        Whether something is to be kept there.

    Raises
    ------
    UnsafeDirectoryError
        If others can write to it: machine code is loaded from what lies there.

    Notes
    -----
    Where it cannot be made, or not be written to, a temporary one serves what is to be kept, with a
    warning.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return private_directory(data_dir(to_write=to_write) / "portfolios" / key)
    try:
        folder = private_directory(private_directory(Path(named).expanduser()) / key)
        if to_write and not os.access(folder, os.W_OK | os.X_OK):
            raise NoDirectoryError(f"{folder} cannot be written to")
    except NoDirectoryError as problem:
        if not to_write:
            raise
        return private_directory(served_instead(problem) / "portfolios" / key)
    except UnsafeDirectoryError as problem:
        raise UnsafeDirectoryError(f"{VARIABLE}: {problem}") from None
    return folder


def own(key: str, name: str) -> Portfolio | None:
    """Return what was tuned or built for a device here; None if nothing was, or it cannot be read.

    Read once: what is added later is seen after `reload`, or by the next process.
    """
    if not key:
        return None
    with _lock:
        if (key, name) not in _own:
            _own[key, name] = _read_own(key, name)
        return _own[key, name]


def _read_own(key: str, name: str) -> Portfolio | None:
    try:
        folder = own_folder(key)
        return read_portfolio(folder, name) if folder.joinpath(f"{name}.json").exists() else None
    except NoDirectoryError:  # nothing can have been kept there
        return None
    except PortfolioError as error:
        _warn_once(f"{error}; move it away, or tune or build anew")
        return None
    except OSError as error:
        _warn_once(str(error))
        return None


@lru_cache(maxsize=16)
def _warn_once(problem: str) -> None:
    warnings.warn(f"tuned kernels are not used: {problem}", RuntimeWarning, stacklevel=3)


def reload() -> None:
    """Let later calls see what was tuned or built since this process first looked."""
    global _generation
    with _lock:
        _own.clear()
        _generation += 1
    for listener in _listeners:
        listener()


def on_reload(listener: Callable[[], object]) -> None:
    """Call a function whenever other kernels may be to serve."""
    _listeners.append(listener)


def generation() -> int:
    """Return a number that changes with `reload`."""
    return _generation
