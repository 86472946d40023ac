"""What a sweep goes over: sizes, precisions and transposes as people write them.

list   = part {"," part}
part   = side | side "x" side "x" side        cubes, or m x n x k
side   = N | A ":" B | A ":" B ":" STEP | A ":" B ":" "*" FACTOR
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable

from tilewright.precision import PRECISIONS, precision
from tilewright.problem import Problem, pair_of, transposes_of

__all__ = ["MOST", "number", "parse_cases", "parse_sizes", "problems_of"]

# More problems than anybody waits for: a slip of the pen, such as 1:100000:1.
MOST = 10_000

# Ten digits are more than any matrix has rows.
_NUMBER = re.compile(r"0*[1-9][0-9]{0,8}", re.ASCII)
_FACTOR = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?", re.ASCII)


def number(text: str) -> int:
    """Return a size of one or more.

    Raises
    ------
    ValueError
        If it is none.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a size; give a whole number from 1 to 999999999")
    return int(text)


def _stepped(first: int, last: int, step: str) -> list[int]:
    """Return a range whose step is a number, or ``*`` and a factor."""
    if not step.startswith("*"):
        values = range(first, last + 1, number(step))
        return list(values[: MOST + 1])
    if not _FACTOR.fullmatch(step[1:]) or float(step[1:]) <= 1:
        raise ValueError(f"{step!r} is not a factor above 1; write *2 or *1.5")
    factor = float(step[1:])
    count = math.floor(math.log(last / first) / math.log(factor) + 1e-9) + 1
    if count > MOST:
        raise ValueError(f"{step!r} makes {count} steps; take a larger factor")
    grown = (round(first * factor**power) for power in range(count))
    return [value for value in dict.fromkeys(grown) if value <= last]


def _side(text: str) -> list[int]:
    """Return the values of a number or a range."""
    pieces = text.split(":")
    if len(pieces) == 1:
        return [number(text)]
    if len(pieces) > 3:
        raise ValueError(f"{text!r} has too many parts; write A:B, A:B:STEP or A:B:*FACTOR")
    first, last = number(pieces[0]), number(pieces[1])
    if last < first:
        raise ValueError(f"{text!r} goes backwards; write the smaller size first")
    return _stepped(first, last, pieces[2] if len(pieces) == 3 else "*2")


def parse_sizes(text: str) -> list[tuple[int, int, int]]:
    """Return the sizes of a list such as ``512:8192,1000,8192x8192x64:1024:*2``.

    ``A:B`` doubles from A up to B, ``A:B:S`` steps by S, ``A:B:*F`` multiplies by F and
    rounds; ``MxNxK`` is one problem, or all combinations where a side is a range.  What
    comes twice is listed once.

    Raises
    ------
    ValueError
        If a part is none of these, or there are more than `MOST` problems.
    """
    found: dict[tuple[int, int, int], None] = {}
    for part in text.lower().split(","):
        sides = part.strip().split("x")
        try:
            if len(sides) not in (1, 3):
                raise ValueError("give one side, or three as in 512x512x64")
            values = [_side(side) for side in sides]
        except ValueError as error:
            raise ValueError(f"size={part!r}: {error}") from None
        if len(values) == 1:
            every: Iterable[tuple[int, int, int]] = ((n, n, n) for n in values[0])
        else:
            every = itertools.product(values[0], values[1], values[2])
        found.update(dict.fromkeys(itertools.islice(every, MOST + 1)))
        if len(found) > MOST:
            raise ValueError(f"size={part!r} makes more than {MOST} problems; take larger steps")
    return list(found)


def parse_cases(precisions: str, trans: str) -> list[tuple[str, str, str]]:
    """Return (precision, trans_a, trans_b) for lists such as ``s,d`` and ``NN,NT`` or ``all``.

    Raises
    ------
    ValueError
        If a letter is unknown.
    """
    cases = []
    letters = list(PRECISIONS) if precisions == "all" else precisions.split(",")
    for letter in letters:
        row = precision(letter.strip())
        if trans == "all":
            cases += [(row.letter, *pair) for pair in transposes_of(row)]
            continue
        cases += [(row.letter, *pair_of(pair)) for pair in trans.split(",")]
    return list(dict.fromkeys(cases))


def problems_of(
    precisions: str, trans: str, sizes: Iterable[tuple[int, int, int]]
) -> list[Problem]:
    """Return every problem of a sweep, each once."""
    shapes = list(sizes)
    every = (
        Problem(m, n, k, letter, a, b)  # type: ignore[arg-type]
        for letter, a, b in parse_cases(precisions, trans)
        for m, n, k in shapes
    )
    return list(dict.fromkeys(every))
