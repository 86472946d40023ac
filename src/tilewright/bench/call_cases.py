"""The products that benchmarks of whole calls go over, by the name of a kind of shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.bench.sizes import number, parse_sizes
from tilewright.problem import Trans, pair_of

__all__ = [
    "GPU_MOST",
    "KINDS",
    "Case",
    "Side",
    "cases_of",
    "drawn_sides",
    "kind_of",
    "skinny_sides",
]

KINDS = ("random", "skinny", "long", "layers", "squares", "cliffs", "flat")

Side = tuple[int, int, int]
Case = tuple[Side, tuple[Trans, Trans], str]
"""m, n and k; the operations; the storage order, "F" or "C"."""

# The longest side, and the most operations (2 m n k): 0.04 s of an H100's SGEMM.
GPU_MOST = (16384, 2**41)

_LONGEST_K, _SHORT_SIDE = 500_000, 128

# Long sums, whose roundings differ by how they are cut: m and n, and k.
_LONG_SIDES, _LONG_K = (16, 4096), (1024, 2**18)

# Linear layers of language models: output and input features of Llama 2 and 3 of 7 and 8 billion
# parameters (attention, up, down, vocabulary), and tokens of a step.
_FEATURES = ((4096, 4096), (11008, 4096), (4096, 11008), (14336, 4096), (32000, 4096))
_TOKENS = (1, 8, 16, 64, 256, 1024, 2048)

_SQUARES = (512, 1024, 2048, 4096, 8192, 16384)

# Multiples of the sides of all tiles, powers of two and others; one more is the cliff's edge.
_CLIFFS = (512, 1024, 2048, 3072, 4096, 6144, 8192)

# Of Nakasato's flat curve, whose step was 128: that many products take minutes.
_FLAT, _FLAT_STEP = (2048, 16384), 1024


def cases_of(size: str, name: str, trans: str = "", seed: int = 0, count: int = 100) -> list[Case]:
    """Return the products of a kind.

    Parameters
    ----------
    size : str
        One of `KINDS`; of flat also with a step of the side, ``flat:128``; or sizes, as
        `tilewright.bench.sizes.parse_sizes` takes them.
    name : str
        Of a precision: complex ones are conjugated, too.
    trans : str
        Pairs of operations of squares and sizes, with commas; every pair of N and T (flat: NN) by
        default.
    seed, count : int
        Of what is drawn.

    Raises
    ------
    ValueError
        If `size` or `trans` is none of these.
    """
    kind, step = kind_of(size), size.partition(":")[2]
    if kind not in (*KINDS, "sizes") or (step and kind not in ("flat", "sizes")):
        raise ValueError(
            f"size={size!r} is unknown here; use {', '.join(KINDS)}, flat:STEP or sizes: MxNxK"
        )
    if kind in ("random", "skinny", "long", "layers"):
        if trans:
            raise ValueError(f"trans={trans!r} has no say in {kind} shapes; leave it out")
        return _layers() if kind == "layers" else _drawn(kind, name, seed, count)
    sides: Sequence[int] = _SQUARES
    if kind == "flat":
        sides = range(_FLAT[0], _FLAT[1] + 1, number(step) if step else _FLAT_STEP)
    named = trans or ("NN" if kind == "flat" else "NN,NT,TN,TT")
    pairs = [*map(pair_of, named.split(","))]
    if kind == "sizes":
        return [(one, pair, "F") for one in parse_sizes(size) for pair in pairs]
    if kind == "cliffs":  # the two side by side, so that both meet the same clock
        return [((n,) * 3, pair, "F") for at in _CLIFFS for pair in pairs for n in (at, at + 1)]
    return [((n,) * 3, pair, "F") for n in sides for pair in pairs]


def kind_of(size: str) -> str:
    """Return the kind of shapes that is asked for; "sizes" where these are told."""
    return "sizes" if size[:1].isdecimal() else size.partition(":")[0]


def _layers() -> list[Case]:
    """Return rows of tokens times the transpose of the weights, as PyTorch has them."""
    return [
        ((tokens, out, features), (Trans.N, Trans.T), "C")
        for tokens in _TOKENS
        for out, features in _FEATURES
    ]


def _drawn(kind: str, name: str, seed: int, count: int) -> list[Case]:
    rng = np.random.default_rng(seed + 1)
    letters = "NTC"[: 3 if name in ("c", "z") else 2]

    def one(side: Side) -> Case:
        a, b = (Trans(letters[rng.integers(len(letters))]) for _ in "ab")
        return side, (a, b), "FC"[rng.integers(2)]

    if kind == "random":
        sides = drawn_sides(seed, count, GPU_MOST)
    else:
        sides = skinny_sides(seed, count) if kind == "skinny" else _long_sides(seed, count)
    return [one(side) for side in sides]


def drawn_sides(seed: int, count: int, most: tuple[int, int]) -> list[Side]:
    """Return m, n and k of shapes, each side log-uniform from 1 on, every third shape all odd.

    Parameters
    ----------
    seed, count : int
        The same shapes whenever both are the same.
    most : tuple of int
        The longest side, and the most operations; what has more is drawn anew.
    """
    rng = np.random.default_rng(seed)
    side, operations = most
    found: list[Side] = []
    while len(found) < count:
        m, n, k = (round(x) for x in np.exp(rng.uniform(0, math.log(side), 3)))
        if len(found) % 3 == 2:
            m, n, k = (x - 1 + x % 2 for x in (m, n, k))
        if 2 * m * n * k <= operations:
            found.append((m, n, k))
    return found


def _long_sides(seed: int, count: int) -> list[Side]:
    """Return m, n and k of which k is long, each log-uniform, every third m and n equal."""
    rng = np.random.default_rng(seed)
    (low, high), lengths = np.log(_LONG_SIDES), np.log(_LONG_K)
    found: list[Side] = []
    while len(found) < count:
        m, n = (round(x) for x in np.exp(rng.uniform(low, high, 2)))
        k = round(math.exp(rng.uniform(*lengths)))
        n = m if len(found) % 3 == 2 else n
        if (m + n) * k <= 2**28 and 2 * m * n * k <= GPU_MOST[1]:
            found.append((m, n, k))
    return found


def skinny_sides(seed: int, count: int) -> list[Side]:
    """Return m, n and k of which m or n is 1 to 128, log-uniform; k is up to 500,000."""
    rng = np.random.default_rng(seed)

    def drawn(most: int) -> int:
        return round(math.exp(rng.uniform(0, math.log(most))))

    found: list[Side] = []
    while len(found) < count:
        short, long, k = drawn(_SHORT_SIDE), drawn(GPU_MOST[0]), drawn(_LONGEST_K)
        if (short + long) * k <= 2**30 and short * long * k <= GPU_MOST[1]:
            found.append((short, long, k) if len(found) % 2 else (long, short, k))
    return found
