"""Operand patterns of FFMA loops that tell how register ports work, by name.

A pattern is a period of instructions, repeated to fill a loop.  Registers are numbers of a bank's
registers in order: 2 i is register i of bank E (even numbers), 2 i + 1 one of bank O (odd); a
loop's own registers are put in their places (`placed`).  RZ is 255 throughout.

Two families:

- `sequences`: which banks the operands of consecutive instructions lie in, all registers
  different.  A name such as ``"EEO O-E"`` is the pattern: banks of A, B, C of each instruction,
  ``-`` being RZ.
- `named`: reuse flags, one register in several slots, orders of a GEMM's tile, random ones.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from tilewright.microbench.loops import Slot
from tilewright.sass.decode import RZ

__all__ = ["TRIP", "Ffma", "named", "pattern", "placed", "sequences"]

TRIP = 512  # instructions of a loop
EVEN, ODD = range(0, 81, 2), range(1, 81, 2)  # what 96 accumulators left of a thread's registers
POOL = range(81)
A, B, C = 1, 2, 4  # reuse flags
BANKS = "EO"


class Ffma(NamedTuple):
    """FFMA d, a, b, c with its reuse flags."""

    d: int
    a: int
    b: int
    c: int
    reuse: int = 0


def placed(
    body: Iterable[Ffma], even: Sequence[int], odd: Sequence[int], yields: bool = False
) -> list[Slot]:
    """Return a pattern with a loop's own registers."""

    def own(register: int) -> int:
        return RZ if register == RZ else (odd if register % 2 else even)[register // 2]

    return [Slot("FFMA", own(i.d), own(i.a), own(i.b), own(i.c), i.reuse, yields) for i in body]


def pattern(name: str) -> list[Ffma]:
    """Return the whole trip of a pattern of either family.

    Raises
    ------
    ValueError
        If there is no pattern of that name.
    """
    found = named().get(name)
    if found is not None:
        return found
    kinds = name.split()
    if not kinds or any(len(kind) != 3 or set(kind) - set("EO-") for kind in kinds):
        raise ValueError(f'pattern={name!r} is not known; write banks such as "EEO O-E"')
    return _sequence(kinds)


# -- banks of consecutive instructions -----------------------------------------------------


def sequences() -> list[str]:
    """Return the names of the first family: every pair, every x y y and x x y y, random ones."""
    types = ["".join(kind) for kind in itertools.product("EO-", repeat=3)]
    found: dict[tuple[str, ...], None] = {}
    for i, x in enumerate(types):
        for y in types[i:]:
            found[x, y] = found[x, x, y, y] = None
    for x, y in itertools.product(types, repeat=2):
        found[x, y, y] = None
    draw = random.Random(3)  # noqa: S311 - a fixed choice, no secret
    full = [kind for kind in types if "-" not in kind]
    for kinds in (types, full):
        for _ in range(300):
            length = draw.choice([3, 4, 5, 6, 8, 16])
            found[tuple(draw.choice(kinds) for _ in range(length))] = None
    return [" ".join(kinds) for kinds in found]


def _sequence(kinds: Sequence[str]) -> list[Ffma]:
    """Return a trip of these banks; one cursor a bank keeps neighbouring registers different.

    Only whole periods; what is left of the trip names RZ alone.
    """
    cursors = {"E": itertools.cycle(EVEN), "O": itertools.cycle(ODD), "-": itertools.repeat(RZ)}
    whole = TRIP // len(kinds) * len(kinds)
    body = []
    for i in range(TRIP):
        kind = kinds[i % len(kinds)] if i < whole else "---"
        a, b, c = (next(cursors[bank]) for bank in kind)
        body.append(Ffma(c if c != RZ else EVEN[5 * i % len(EVEN)], a, b, c))
    return body


# -- patterns with names of their own ------------------------------------------------------


class _Walk:
    """Registers of a bank for a slot, one after the other; slots begin apart."""

    def __init__(self) -> None:
        self._cursors: dict[tuple[str, str], itertools.cycle[int]] = {}

    def __call__(self, slot: str, bank: str) -> int:
        if bank == "-":
            return RZ
        if (slot, bank) not in self._cursors:
            registers = EVEN if bank == "E" else ODD
            first = 13 * "ABC".index(slot)
            self._cursors[slot, bank] = itertools.cycle([*registers[first:], *registers[:first]])
        return next(self._cursors[slot, bank])


@cache
def named() -> Mapping[str, list[Ffma]]:
    """Return the second family: whole trips by name."""
    return _banks() | _same() | _kept_a() | _kept_others() | _destinations() | _tiles() | _random()


def _banked(kinds: Sequence[str]) -> list[Ffma]:
    walk, body = _Walk(), []
    for i in range(TRIP):
        a, b, c = (
            walk(slot, bank) for slot, bank in zip("ABC", kinds[i % len(kinds)], strict=True)
        )
        body.append(Ffma(c if c != RZ else EVEN[i % len(EVEN)], a, b, c))
    return body


def _banks() -> dict[str, list[Ffma]]:
    """Return homogeneous ones, and such that alternate after some instructions."""
    kinds = ["".join(kind) for kind in itertools.product(BANKS, repeat=3)]
    kinds += ["EE-", "EO-", "OO-", "E--", "O--", "E-E", "E-O", "-EE", "-EO", "---"]
    found = {f"hom {kind}": _banked([kind]) for kind in kinds}
    for times in (1, 2, 3, 4, 6, 8):
        for x, y in (("EEE", "OOO"), ("EEO", "OOE"), ("EE-", "OO-"), ("E--", "O--")):
            found[f"alt {x} {y} x{times}"] = _banked([x] * times + [y] * times)
    for name, mixed in (
        ("EEE ---", ["EEE", "---"]),
        ("EEE -- --", ["EEE", "---", "---"]),
        ("EEE E-- O--", ["EEE", "O--", "O--"]),
        ("EEE EO- EO-", ["EEE", "EO-"]),
        ("EEO EO-", ["EEO", "EO-"]),
        ("EEO OO-", ["EEO", "OO-"]),
        ("EEO O--", ["EEO", "O--"]),
    ):
        found[f"alt {name}"] = _banked(mixed)
    return found


def _same() -> dict[str, list[Ffma]]:
    """Return those with one register in two or three slots."""
    orders: dict[str, Callable[[int, int], tuple[int, int, int]]] = {
        "ab": lambda x, o: (x, x, o),
        "ac": lambda x, o: (x, o, x),
        "bc": lambda x, o: (o, x, x),
        "abc": lambda x, o: (x, x, x),
    }
    found = {}
    cases = [(slots, banks) for slots in ("ab", "ac", "bc") for banks in ("EE", "EO")]
    for slots, banks in [*cases, ("abc", "E")]:
        walk, body = _Walk(), []
        for i in range(TRIP):
            x, other = walk("A", banks[0]), walk("C", banks[-1])
            body.append(Ffma(EVEN[i % len(EVEN)], *orders[slots](x, other)))
        found[f"same {slots} {banks}"] = body
    return found


def _with_a(a: Sequence[int], banks: str, flags: Sequence[int]) -> list[Ffma]:
    """Return a trip that repeats these in slot A with these flags, while B and C walk."""
    walk, body = _Walk(), []
    for i in range(TRIP):
        b, c = walk("B", banks[0]), walk("C", banks[1])
        body.append(Ffma(c, a[i % len(a)], b, c, flags[i % len(flags)]))
    return body


def _kept_a() -> dict[str, list[Ffma]]:
    """Return those that keep something in slot A's reuse cache."""
    e0, e1, o0, o1 = EVEN[0], EVEN[1], ODD[0], ODD[1]
    found = {}
    for banks in ("EE", "EO", "OE", "OO"):
        found[f"a const reuse {banks}"] = _with_a([e0], banks, [A])
        found[f"a const none {banks}"] = _with_a([e0], banks, [0])
    for banks in ("EO", "EE"):
        found[f"a const reuse every 2nd {banks}"] = _with_a([e0], banks, [A, 0])
        found[f"a const reuse 1of4 {banks}"] = _with_a([e0], banks, [A, 0, 0, 0])
        found[f"a const reuse 3of4 {banks}"] = _with_a([e0], banks, [A, A, A, 0])
        found[f"a two banks reuse {banks}"] = _with_a([e0, o0], banks, [A])
        found[f"a same bank reuse {banks}"] = _with_a([e0, e1], banks, [A])
    found["evict: x.r y x EE"] = _with_a([e0, e1], "EE", [A, 0])
    found["other bank gap no flag EE"] = _with_a([e0, o1], "EE", [A, 0])
    for banks in ("EE", "OO"):
        found[f"hit clears? x.r x x {banks}"] = _with_a([e0], banks, [A, 0, 0])
    return found


def _kept_others() -> dict[str, list[Ffma]]:
    """Return those that keep something in B, in C, in two slots, or in another one than read."""
    found = {}
    for banks in ("EE", "EO", "OO"):
        walk, in_b = _Walk(), []
        for _ in range(TRIP):
            a, c = walk("A", banks[0]), walk("C", banks[1])
            in_b.append(Ffma(c, a, ODD[3], c, B))
        found[f"b const reuse {banks}"] = in_b
        walk, in_c = _Walk(), []
        for i in range(TRIP):
            a, b = walk("A", banks[0]), walk("B", banks[1])
            in_c.append(Ffma(ODD[i % len(ODD)], a, b, EVEN[20], C))
        found[f"c const reuse {banks}"] = in_c
    x, crossed = EVEN[5], []
    for i in range(TRIP):
        other, c = ODD[i % len(ODD)], EVEN[10 + i % 20]
        crossed.append(Ffma(c, other, x, c, B) if i % 2 else Ffma(c, x, other, c, A))
    found["cross slots"] = crossed
    for name, sums in (("cE", (EVEN,)), ("cO", (ODD,)), ("c alt", (ODD, EVEN))):
        added = [sums[i % len(sums)][10 + i % 20] for i in range(TRIP)]
        found[f"ab const reuse {name}"] = [Ffma(c, EVEN[0], ODD[0], c, A | B) for c in added]
    return found


def _destinations() -> dict[str, list[Ffma]]:
    """Return those whose destination is none of the sources."""
    found = {}
    for name, banks in (("d bank E, EO-", (EVEN,)), ("d alt, EO-", (ODD, EVEN))):
        found[name] = [
            Ffma(banks[i % len(banks)][i % 40], ODD[i % 40], EVEN[(i + 7) % 40], RZ)
            for i in range(TRIP)
        ]
    return found


# -- a GEMM's register tile ----------------------------------------------------------------

Order = list[tuple[int, int]]
_SIDE = 8


def _tiles() -> dict[str, list[Ffma]]:
    """Return an 8 x 8 tile in three orders, three ways of flags and four of the sums' banks."""
    side = range(_SIDE)
    orders: dict[str, Order] = {
        "row": [(i, j) for i in side for j in side],
        "serp": [(i, _SIDE - 1 - j if i % 2 else j) for i in side for j in side],
        "pair": [(2 * p + q, j) for p in range(_SIDE // 2) for j in side for q in range(2)],
    }
    flags: dict[str, Callable[[list[Ffma]], list[Ffma]]] = {
        "none": lambda body: body,
        "neigh": _flag_neighbours,
        "entry": _flag_entries,
    }
    banks: dict[str, Callable[[int, int], int]] = {
        "alt": lambda i, j: (i + j) % 2,
        "j": lambda i, j: j % 2,
        "i": lambda i, j: i % 2,
        "all0": lambda i, j: 0,
    }
    return {
        f"gemm 8x8 {order} {flag} c{bank}": flags[flag](_tile(orders[order], banks[bank]))
        for order, flag, bank in itertools.product(orders, flags, banks)
    }


def _tile(order: Order, bank: Callable[[int, int], int]) -> list[Ffma]:
    """Return c_ij += a_i b_j in this order; rows and columns alternate between banks."""
    a = [(ODD if i % 2 else EVEN)[i // 2] for i in range(_SIDE)]
    b = [(ODD if j % 2 else EVEN)[20 + j // 2] for j in range(_SIDE)]
    walks = (itertools.cycle([*EVEN[10:], *EVEN[:10]]), itertools.cycle([*ODD[10:], *ODD[:10]]))
    c = {(i, j): next(walks[1 if bank(i, j) else 0]) for i in range(_SIDE) for j in range(_SIDE)}
    trip = itertools.islice(itertools.cycle(order), TRIP)
    return [Ffma(c[i, j], a[i], b[j], c[i, j]) for i, j in trip]


def _flag_neighbours(body: list[Ffma]) -> list[Ffma]:
    """Flag what the next instruction reads through the same slot: what ptxas does."""
    after = [*body[1:], body[0]]
    return [
        now._replace(reuse=A * (now.a == then.a) | B * (now.b == then.b))
        for now, then in zip(body, after, strict=True)
    ]


def _flag_entries(body: list[Ffma]) -> list[Ffma]:
    """Flag what is the next thing read through the same slot and bank, within 40 instructions."""

    def kept(at: int, slot: int) -> bool:
        register = body[at][slot]
        later = (body[(at + ahead) % len(body)][slot] for ahead in range(1, 40))
        return next((r == register for r in later if r % 2 == register % 2), False)

    return [one._replace(reuse=A * kept(at, 1) | B * kept(at, 2)) for at, one in enumerate(body)]


def _random() -> dict[str, list[Ffma]]:
    """Return random operands and flags, some that stay, some sums in place."""
    draw = random.Random(7)  # noqa: S311 - a fixed choice, no secret
    found = {}
    for number in range(60):
        pool = draw.sample(list(POOL), draw.choice([6, 10, 20]))
        flagged = draw.choice([0, 0.3, 0.7, 1])
        in_place = draw.random() < 0.5
        now = [draw.choice(pool) for _ in range(3)]
        stay = draw.choice([0, 0.3, 0.6])
        body = []
        for _ in range(TRIP):
            now = [x if draw.random() < stay else draw.choice(pool) for x in now]
            c = draw.choice(POOL) if in_place else now[2]
            reuse = sum(bit for bit in (A, B, C) if draw.random() < flagged)
            d = c if in_place else draw.choice(POOL)
            body.append(Ffma(d, now[0], now[1], c, reuse))
        found[f"random {number}"] = body
    return found
