"""Results of `wide.py` as files: each config once, and rows that name it by its number."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["packed", "unpacked"]

Row = dict[str, Any]
# Of a candidate: what is a config.
NAMED = ("config", "fitted")


def packed(made: Row) -> Row:
    """Return results with a list of configs, whose places rows name."""
    places: dict[str, int] = {}

    def place(config: Row) -> int:
        return places.setdefault(json.dumps(config, sort_keys=True), len(places))

    rows = _renamed(made["rows"], place)
    return {**made, "rows": rows, "configs": [json.loads(one) for one in places]}


def unpacked(made: Row) -> Row:
    """Return results whose rows have configs themselves.

    Raises
    ------
    ValueError
        If they are of another program.
    """
    configs = made.get("configs")
    if not isinstance(configs, list) or not all("candidates" in row for row in made["rows"]):
        raise ValueError("no results of wide.py; give a file that it wrote")
    rest = {name: value for name, value in made.items() if name != "configs"}
    return {**rest, "rows": _renamed(made["rows"], lambda place: configs[place])}


def _renamed(rows: list[Row], other: Callable[[Any], Any]) -> list[Row]:
    """Return rows with something else in the place of their candidates' configs."""
    return [
        {**row, "candidates": [
            {name: other(x) if name in NAMED else x for name, x in one.items()}
            for one in row["candidates"]
        ]}
        for row in rows
    ]  # fmt: skip
