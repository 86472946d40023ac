"""Files that a command line names: they are data, and checked before anything is started."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.space import Config
from tilewright.stencil import stencil, unscheduled
from tilewright.stencil.schedule import LEVELS, SCHEDULE

from .cases import variant_of

ARCH = "sm_90a"


def json_file(text: str) -> Path:
    """Return the path of a file that holds JSON, for `argparse`.

    Raises
    ------
    argparse.ArgumentTypeError
        If there is none, or it holds something else.
    """
    path = Path(text)
    try:
        json.loads(path.read_bytes())
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be read: {error.strerror}") from None
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} holds no JSON; give what a run wrote") from None
    return path


def sides(text: str) -> list[int]:
    """Return sides of squares, for `argparse`.

    Raises
    ------
    argparse.ArgumentTypeError
        If one is no positive number.
    """
    found = [int(one) if one.isdecimal() else 0 for one in text.split(",")]
    if 0 in found:
        raise argparse.ArgumentTypeError(f"{text} has no sides; give 512,1024 or the like")
    return found


def named_in(path: Path, letter: str, cases: Iterable[str]) -> dict[str, list[Config]]:
    """Return a file's candidates of a precision by case, rescheduled ones among them.

    Parameters
    ----------
    path : Path
        A list of rows with ``precision``, ``trans``, ``stencil`` and ``config``.
    letter : str
        Precision.
    cases : iterable of str
        Transposes; rows of others are left out.

    Raises
    ------
    ValueError
        If a row has no such names, or its config is no point of its stencil's space.
    """
    found: dict[str, list[Config]] = {trans: [] for trans in cases}
    for number, row in enumerate(json.loads(path.read_bytes())):
        try:
            mine = row["precision"] == letter and row["trans"] in found
            if mine:
                config = Config(row["stencil"], row["config"])
                check(config, letter, row["trans"])
                found[row["trans"]].append(config)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise ValueError(f"{path}, row {number}: {reason}; give rows as races have") from None
    return found


def check(config: Config, letter: str, trans: str) -> None:
    """Raise ValueError for what is no point of its space, at whatever level it is rescheduled."""
    space = stencil(config.stencil).space(variant_of(letter, trans), architecture_spec(ARCH))
    if config.get(SCHEDULE, 0) not in range(len(LEVELS)) or unscheduled(config) not in space:
        raise ValueError(f"{config} is no point of the space of {letter} {trans}")


def named_rows(letter: str, found: Mapping[str, Iterable[Config]]) -> list[dict[str, Any]]:
    """Return candidates of a precision by case as `named_in` reads them."""
    return [
        {"precision": letter, "trans": trans, "stencil": one.stencil, "config": dict(one)}
        for trans, of in found.items()
        for one in of
    ]
