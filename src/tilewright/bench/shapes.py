"""Files of shapes: CSV or plain text, one a line.

m,n,k,precision,trans          with a header, in any order; the last two may be absent,
4096,4096,1024,s,NT            and so may be their values

# or without one: sizes, then precision and transposes, between blanks or commas
4096 4096 1024
512x512x64 d TN
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tilewright.bench.sizes import MOST, number, parse_cases, problems_of
from tilewright.problem import Problem

__all__ = ["read_shapes"]

_COLUMNS = ("m", "n", "k", "precision", "trans")

# A line of `MOST` shapes has some thirty characters; a longer file is something else.
_MOST_BYTES = 1 << 20


def read_shapes(path: str | os.PathLike[str], precisions: str, trans: str) -> list[Problem]:
    """Return the problems of a file.

    Parameters
    ----------
    path : path
        The file; what follows a ``#`` is a comment.
    precisions, trans : str
        Lists for lines that do not say.

    Raises
    ------
    ValueError
        Naming the line that is wrong.
    OSError
        If the file cannot be read.
    """
    found: dict[Problem, None] = {}
    columns: list[str] | None = None
    first = True
    for at, cells in _lines(Path(path)):
        try:
            if first and not cells[0][:1].isdigit():
                columns = _header(cells)
            else:
                found.update(dict.fromkeys(_problems(cells, columns, precisions, trans)))
            if len(found) > MOST:
                raise ValueError(f"there are more than {MOST} problems up to here")
        except ValueError as error:
            raise ValueError(f"shapes={path}, line {at}: {error}") from None
        first = False
    if not found:
        raise ValueError(f"shapes={path} has no shapes; write lines such as 512,512,64")
    return list(found)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and cells of the lines that have any."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"shapes={path} is longer than {_MOST_BYTES} bytes; that is no list")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"shapes={path} is not text in UTF-8") from None
    for at, line in enumerate(text.splitlines(), 1):
        plain = line.partition("#")[0].strip()
        if plain:
            cells = plain.split(",") if "," in plain else plain.split()
            yield at, [cell.strip().strip('"').strip() for cell in cells]


def _header(cells: list[str]) -> list[str]:
    names = [cell.lower() for cell in cells]
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no column; use {', '.join(_COLUMNS)}")
    if len(set(names)) < len(names) or not {"m", "n", "k"} <= set(names):
        raise ValueError("the header needs m, n and k, and each column once")
    return names


def _problems(
    cells: list[str], columns: list[str] | None, precisions: str, trans: str
) -> list[Problem]:
    """Return the problems of one line."""
    if columns is None:
        cells = [*cells[0].lower().split("x"), *cells[1:]]
        columns = list(_COLUMNS[: max(3, len(cells))])
    if len(cells) != len(columns):
        raise ValueError(f"{len(cells)} values do not fit {', '.join(columns)}")
    row = dict(zip(columns, cells, strict=True))
    m, n, k = (number(row[name]) for name in "mnk")
    own = row.get("precision") or precisions, row.get("trans") or trans
    parse_cases(*own)
    return problems_of(*own, [(m, n, k)])
