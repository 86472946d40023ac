"""Choices of the C library beside those of `choose`, and grids, without any driver."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.export.building import build_choosing, named, needs_c, pretended, written
from tests.export.conftest import HERE, OTHER, SPEC, THERE, Served, served_by
from tests.export.portfolios import OWN, SIZES, tuned
from tilewright.export import KernelSet, find_target, kernel_set, variants_of
from tilewright.export.target import Target
from tilewright.hardware import DeviceSpec
from tilewright.portfolio import choose
from tilewright.portfolio.find import shipped_for
from tilewright.portfolio.held import held_rows
from tilewright.portfolio.instances import NOT_CLAMPED, NOT_SCALAR, NOT_STAGED
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem, Trans, transposes_of
from tilewright.stencil import Variant
from tilewright.stencil.geometry import PLAIN, Geometry

pytestmark = needs_c

OPERATIONS = (Trans.N, Trans.T, Trans.C)
LETTERS = "sdcz"

# Of matrices beyond which no time is expected (model.c): no device holds them.
MOST_ELEMENTS = 2**38


class CProblem(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_int)
            for name in ("element_bytes", "is_single", "trans_a", "trans_b", "aligned")
        ),
        *((name, ctypes.c_int64) for name in ("m", "n", "k", "lda", "ldb", "ldc", "batch")),
    )


class CPlace(ctypes.Structure):
    _fields_ = (
        ("multiprocessors", ctypes.c_int64), ("names", ctypes.c_uint64),
        ("memory", ctypes.c_uint64),
    )  # fmt: skip


class CChoice(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("mode", ctypes.c_int),
        ("code", ctypes.c_int),
        ("ns", ctypes.c_double),
    )


class CGrid(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("second", ctypes.c_uint))


@dataclass(frozen=True)
class Choosing:
    """The part of a library that chooses, and the kernels in it."""

    kernels: KernelSet
    library: ctypes.CDLL

    def place(self, device: Served) -> CPlace:
        """Return a device as the library sees it."""
        here = device.spec.name, device.spec.multiprocessors
        bits = sum(1 << i for i, one in enumerate(self.kernels.devices) if one == here)
        return CPlace(device.spec.multiprocessors, bits)

    def __call__(
        self, device: Served, problem: Problem, aligned: bool = True
    ) -> tuple[str, float | None, CGrid | None]:
        """Return the name of the machine code, the time that is expected, and the grid."""
        asked, place = c_problem(problem, aligned), self.place(device)
        choice, grid = CChoice(), CGrid()
        found = self.library.tilewright_choose(
            rows_of(self, problem), ctypes.byref(asked), ctypes.byref(place), ctypes.byref(choice)
        )
        assert found
        one = next(
            x for x in self.kernels.kernels.values() if self.name(choice) in x.codes.values()
        )
        ns = None
        if one.costs:
            ns = self.library.tilewright_expected(
                choice.kernel, ctypes.byref(asked), device.spec.multiprocessors
            )
            if sizes_of(problem) not in one.kernel.won:
                stored = problem.m * problem.n * 1e-6 * NOT_STAGED
                assert any(
                    choice.ns == pytest.approx(ns * times + more, rel=1e-12)
                    for times in (1, NOT_SCALAR, NOT_CLAMPED)
                    for more in (0, stored)
                )
                ns = choice.ns
        # A kernel begins with its geometry.
        laid = self.library.tilewright_lay_out(
            choice.kernel, ctypes.byref(asked), device.spec.multiprocessors, ctypes.byref(grid)
        )
        return self.name(choice), ns, grid if laid else None

    def name(self, choice: CChoice) -> str:
        """Return the name of a choice's machine code."""
        return list(self.kernels.codes)[choice.code]


def c_problem(p: Problem, aligned: bool = True) -> CProblem:
    ops = p.trans_a.transposed, p.trans_b.transposed
    one = p.precision
    return CProblem(
        one.element_bytes, one.letter == "s", *ops, aligned, p.m, p.n, p.k, p.lda, p.ldb, p.ldc
    )


def sizes_of(p: Problem) -> tuple[int, int, int]:
    return p.m, p.n, p.k


def built(kernels: KernelSet, directory: Path, *flags: str) -> Choosing:
    sources = written(named(kernels), directory / "c")
    library = ctypes.CDLL(str(build_choosing(sources, directory / "choosing.so", *flags)))
    library.tilewright_choose.argtypes = [ctypes.c_void_p] * 4
    library.tilewright_expected.restype = ctypes.c_double
    library.tilewright_expected.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    library.tilewright_lay_out.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    ]  # fmt: skip
    return Choosing(kernels, library)


@pytest.fixture(scope="module")
def choosing(kernels: KernelSet, tmp_path_factory: pytest.TempPathFactory) -> Choosing:
    return built(kernels, tmp_path_factory.mktemp("choosing"))


def problems(letter: str, count: int, seed: int) -> Iterator[tuple[Problem, bool]]:
    """Yield problems of all kinds, and whether they begin aligned."""
    rng = np.random.default_rng(seed)
    pairs = transposes_of(PRECISIONS[letter])
    for _ in range(count):
        a, b = pairs[rng.integers(len(pairs))]
        how = rng.random()
        sizes = [int(x) for x in np.exp(rng.uniform(0, 10.5, 3))]
        if how < 0.2:
            sizes = list((SIZES + OWN)[rng.integers(len(SIZES + OWN))])
        elif how < 0.6:
            sizes = [-(-x // 64) * 64 for x in sizes]
        elif how < 0.63:
            sizes[2] = 0
        elif how < 0.66:
            sizes[rng.integers(3)] *= 1000
        m, n, k = sizes
        if max(m * n, m * k, n * k) > MOST_ELEMENTS:
            continue
        p = Problem(*sizes, letter, a, b)
        if rng.random() < 0.3:
            more = (int(x) for x in rng.choice([0, 1, 2, 4, 64], 3))
            p = replace(p, lda=p.lda + next(more), ldb=p.ldb + next(more), ldc=p.ldc + next(more))
        yield p, bool(rng.random() < 0.9)


def compare(choosing: Choosing, device: Served, p: Problem, aligned: bool) -> str:
    """Compare a choice, its time and its grid with Python's; return its name."""
    choice = choose(device, p, aligned)
    name, ns, grid = choosing(device, p, aligned)
    one = choosing.kernels.kernels[name_of(choosing.kernels, p, choice)]
    assert name == one.codes[choice.mode], (p, aligned)
    if choice.ns is not None and p.m * p.n * p.k and not raced(choice, p):
        assert ns == choice.ns, (p, aligned)
    launch = choice.launch(p).on(device.spec.multiprocessors)
    if grid is None:  # more than CUDA launches
        assert launch.grid[0] >= 2**31 or launch.grid[1] >= 2**16
        return name
    assert ((grid.x, grid.y), one.geometry.threads) == (launch.grid, launch.block)
    if launch.second_blocks:
        assert grid.second == launch.second.grid[0]
    return name


def raced(choice: Any, p: Problem) -> bool:
    return choice.kernel is not None and (p.m, p.n, p.k) in choice.kernel.won


def name_of(kernels: KernelSet, p: Problem, choice: Any) -> str:
    """Return the exported kernel that a choice is."""
    rows = kernels.rows[Variant.of(p)]
    own = choice.kernel is None or choice.portfolio.folder.name.startswith("sm_90a-")
    (found,) = (x for x in rows.every if x.kernel.config == choice.config and x.own == own)
    return found.name


@pytest.mark.parametrize("device", [HERE, THERE], ids=["measured", "another"])
@pytest.mark.parametrize("letter", list("sdz"))
def test_choices_agree_with_pythons(drawn_portfolios, choosing, letter, device):
    """Kernel, launch mode, expected time to the last bit, grid and the reduction's grid."""
    seen = {compare(choosing, device, *drawn) for drawn in problems(letter, 1500, ord(letter))}
    assert len(seen) > 40


@pytest.mark.every(2)
@pytest.mark.parametrize("letter", list("sdcz"))
def test_choices_among_what_ships_agree(letter, tmp_path, monkeypatch):
    """The very kernels of the package, where it has some."""
    portfolio = shipped_for(90, letter)
    if portfolio is None:
        pytest.skip(f"nothing ships for sm_90a in precision {letter}")
    target = find_target("sm_90a", defaults=True)
    choosing = built(pretended(monkeypatch, target, variants_of(letter, "all")), tmp_path)
    served = target.serving(letter)
    assert (served.spec.name, served.spec.multiprocessors) == (
        portfolio.device,
        portfolio.multiprocessors,
    )
    fewer = Served("", replace(served.spec, name="H100 PCIe", multiprocessors=114))
    for device in (Served("", served.spec), fewer):
        for p, aligned in problems(letter, 700, 7):
            compare(choosing, device, p, aligned)
        for one in portfolio.kernels:
            ops = one.variant.trans_a, one.variant.trans_b
            for sizes in one.won if Trans.R not in ops else ():
                compare(choosing, device, Problem(*sizes, letter, *ops), True)


def test_where_nothing_has_costs_the_nearest_size_serves(tmp_path, monkeypatch):
    """What was tuned on an architecture for which nothing ships."""
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    spec = replace(SPEC, compute_capability=80)
    key = "sm_80-a-gpu-of-tests"
    tuned(own / key, "s", variants_of("s", "NN,NT"), spec)
    with served_by(tmp_path):
        _nearest(key, spec, tmp_path, monkeypatch)


def _nearest(key: str, spec: DeviceSpec, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    target = Target("sm_80", spec, key, spec.name)
    choosing = built(pretended(patch, target, variants_of("s", "all")), tmp_path)
    device = Served(key, spec)
    seen = set()
    for p, aligned in problems("s", 400, 5):
        choice = choose(device, p, aligned)
        name, ns, grid = choosing(device, p, aligned)
        rows = choosing.kernels.rows[Variant.of(p)]
        (one,) = (x for x in rows.every if x.kernel.config == choice.config)
        assert name == one.codes[choice.mode]
        assert ns is None
        assert (grid.x, grid.y) == choice.launch(p).on(spec.multiprocessors).grid
        seen.add(one.name)
    assert len(seen) >= 6


def test_times_of_every_kernel_have_pythons_bits(drawn_portfolios, choosing):
    """Not of the chosen one only: kernels of all kinds, by the address of each row."""
    size = kernel_bytes(choosing)
    for letter in "sdz":
        for p, _ in problems(letter, 60, 3):
            model = held_rows(HERE, Variant.of(p)).model
            expected = model.expected(p, 132)
            at = first_kernel(choosing, p)
            for place, ns in enumerate(expected):
                found = choosing.library.tilewright_expected(
                    at + place * size, ctypes.byref(c_problem(p)), 132
                )
                assert found == ns, (p, place)


# Of a row of the table: where its kernels are, their number, and what serves where none does.
ROW_BYTES = 24


def rows_of(choosing: Choosing, p: Problem) -> int:
    """Return the address of a variant's row of the table."""
    table = (ctypes.c_uint64 * (3 * 36)).in_dll(choosing.library, "tilewright_rows_of")
    letter = LETTERS.index(p.precision.letter)
    a, b = OPERATIONS.index(p.trans_a), OPERATIONS.index(p.trans_b)
    return ctypes.addressof(table) + ROW_BYTES * (9 * letter + 3 * a + b)


def first_kernel(choosing: Choosing, p: Problem) -> int:
    """Return the address of a variant's first kernel."""
    return int(ctypes.c_uint64.from_address(rows_of(choosing, p)).value)


def kernel_bytes(choosing: Choosing) -> int:
    """Return how far apart kernels lie: from the first to the fallback behind the last."""
    words = (ctypes.c_uint64 * (3 * 36)).in_dll(choosing.library, "tilewright_rows_of")
    for at in range(0, len(words), 3):
        count, last = words[at + 1] & 0xFFFFFFFF, words[at + 2]
        if count and last:
            return (int(last) - int(words[at])) // int(count)
    choices = set()
    for p, aligned in problems("s", 300, 1):
        choice, asked, place = CChoice(), c_problem(p, aligned), choosing.place(HERE)
        choosing.library.tilewright_choose(
            rows_of(choosing, p), ctypes.byref(asked), ctypes.byref(place), ctypes.byref(choice)
        )
        if (p.trans_a, p.trans_b) == (Trans.N, Trans.N):
            choices.add(int(choice.kernel))
    gaps = np.diff(sorted(choices))
    return int(np.gcd.reduce(gaps))


def test_no_size_divides_by_zero_or_overflows(kernels, tmp_path, drawn_portfolios):
    """The process dies where arithmetic is undefined."""
    try:
        watched = built(
            kernels, tmp_path, "-fsanitize=undefined", "-fno-sanitize-recover=undefined"
        )
    except (AssertionError, OSError):
        pytest.skip("the compiler watches no arithmetic")
    rng = np.random.default_rng(0)
    edge = [1, 2, 63, 64, 65, 2**31 - 1, 2**31, 2**38, 2**40, 2**61, 2**63 - 1]
    for _ in range(4000):
        m, n, k, *lds = (int(x) for x in rng.choice(edge, 6))
        k *= int(rng.integers(0, 2))
        letter = rng.choice(list("sdz"))
        pairs = transposes_of(PRECISIONS[letter])
        p = Problem(1, 1, 1, letter, *pairs[rng.integers(len(pairs))])
        asked = c_problem(p, bool(rng.integers(2)))
        for name, value in zip(("m", "n", "k", "lda", "ldb", "ldc"), (m, n, k, *lds), strict=True):
            setattr(asked, name, value)
        place = CPlace(int(rng.choice([1, 114, 132, 1000])), int(rng.integers(2)))
        choice, grid = CChoice(), CGrid()
        assert watched.library.tilewright_choose(
            rows_of(watched, p), ctypes.byref(asked), ctypes.byref(place), ctypes.byref(choice)
        )
        watched.library.tilewright_lay_out(
            choice.kernel, ctypes.byref(asked), place.multiprocessors, ctypes.byref(grid)
        )


def test_every_field_of_a_geometry_is_exported():
    """One that is added to Python's has to be added to C's, and this number raised.

    All but `products`: of batches, which exports do not compute in one launch.
    """
    assert len(Geometry.__dataclass_fields__) == 23


@pytest.mark.parametrize(
    ("facts", "falls_back"), [({}, False), ({"most_k": 4}, True), ({"tma": True}, True)]
)
def test_where_no_kernel_takes_any_problem_there_is_a_default(monkeypatch, facts, falls_back):
    geometry = Geometry(64, 64, (64, 1), **facts)
    only = SimpleNamespace(geometry=geometry, modes={PLAIN: "a"})
    held = SimpleNamespace(kernels=[only], model=None, portfolios=[None], own=[True])
    monkeypatch.setattr(kernel_set, "held_rows", lambda *_: held)
    monkeypatch.setattr(kernel_set, "_exported", lambda _, kernel, *__, own: (kernel, []))
    rows, _ = kernel_set._rows(SimpleNamespace(spec=SPEC), Variant.of(Problem(1, 1, 1, "s")))
    assert rows.kernels == (only,)
    assert (rows.fallback is not None) == falls_back


def test_another_device_is_another(choosing):
    assert choosing.place(HERE).names != choosing.place(THERE).names == 0
    assert OTHER.compute_capability == SPEC.compute_capability
