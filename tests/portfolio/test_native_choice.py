"""The core's choice beside NumPy's: the same kernel, launch mode and time, to the last bit."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.export.building import ARITHMETIC, COMPILER, WARNINGS, needs_c
from tests.portfolio.examples import (
    EVERY_MODE,
    H100,
    Hopper,
    costs,
    forget,
    geometries,
    kernel,
    problems,
)
from tilewright.core import library
from tilewright.hardware import DeviceSpec
from tilewright.portfolio import Portfolio, choose, native_choice
from tilewright.portfolio.choose import Found, by_arrays
from tilewright.portfolio.held import Held, held_of, held_rows
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.model import TERMS
from tilewright.precision import DOUBLE_DOUBLE, PRECISIONS
from tilewright.problem import Problem, Trans
from tilewright.stencil import Variant
from tilewright.stencil.geometry import PLAIN, Geometry

needs_core = pytest.mark.skipif(library() is None, reason="the core is not here")

LETTERS = [*PRECISIONS, *DOUBLE_DOUBLE]
OTHER = replace(H100, name="NVIDIA H100 PCIe", multiprocessors=114)


def compare(table: Held, spec: DeviceSpec, p: Problem, aligned: bool, routed: bool) -> Found | None:
    """Compare both choices; return the one."""
    native = table.native[routed]
    assert native is not None
    assert native.takes(p)
    found, wanted = native(p, aligned), by_arrays(spec, table, p, aligned, routed)
    assert found == wanted, (p, aligned, routed)
    if found is not None and found[2] is not None:
        assert found[2].hex() == wanted[2].hex(), (p, aligned, routed)
    return found


# -- what ships --------------------------------------------------------------------------


def variants(letter: str) -> list[tuple[Trans, Trans]]:
    """Return all pairs of operations; conjugates that are not transposed, too."""
    is_complex = (PRECISIONS | DOUBLE_DOUBLE)[letter].is_complex
    ops = list(Trans) if is_complex else [Trans.N, Trans.T]
    return [(a, b) for a in ops for b in ops]


def side(rng: np.random.Generator) -> int:
    """Draw a side of a matrix: any up to 16384, whole tiles, few, or more than memory holds."""
    kind, x = rng.random(), int(np.exp(rng.uniform(0, 9.7)))
    if kind < 0.1:
        return int(rng.integers(1, 9))
    if kind < 0.15:
        return int(np.exp(rng.uniform(10, 21.5)))
    if kind < 0.18:
        return int(rng.choice([1, 2**31 - 1, 2**31, 2**31 + 1]))
    return -(-x // 64) * 64 if kind < 0.5 else x


def drawn(letter: str, count: int) -> Sequence[tuple[Problem, bool, bool]]:
    """Draw problems, whether their operands begin aligned, and whether the kernel is routed."""
    rng, made = np.random.default_rng(LETTERS.index(letter)), []
    pairs = variants(letter)
    for _ in range(count):
        a, b = pairs[rng.integers(len(pairs))]
        m, n, k = (side(rng) for _ in "mnk")
        p = Problem(m, n, 0 if rng.random() < 0.02 else k, letter, a, b)
        if rng.random() < 0.4:
            more = [int(x) for x in rng.choice([0, 1, 2, 4, 64, 2**40], 3, p=[0.3, *[0.14] * 5])]
            p = replace(p, lda=p.lda + more[0], ldb=p.ldb + more[1], ldc=p.ldc + more[2])
        if rng.random() < 0.15:
            many = int(2 ** rng.uniform(1, 14))
            p = replace(p, batch=many, step_a=None, step_b=None, step_c=None)
        made.append((p, bool(rng.random() < 0.8), bool(rng.random() < 0.2)))
    return made


@pytest.mark.every(2)
@needs_core
@pytest.mark.parametrize("spec", [H100, OTHER], ids=["measured", "another"])
@pytest.mark.parametrize("letter", LETTERS)
def test_choices_among_what_ships_agree(letter, spec):
    live, seen, there = Hopper(spec), set(), set()
    for p, aligned, routed in drawn(letter, 1500):
        of = Variant.of(p)
        table = held_rows(live, of)
        there |= {(of, at) for at in range(len(table.kernels))}
        found = compare(table, spec, p, aligned, routed)
        if found is not None:
            seen.add((of, found[0]))
    assert len(seen) >= len(there) / 4  # of all that ships, some serve few sizes


@needs_core
@pytest.mark.parametrize("letter", "sdcz")
def test_sizes_of_races_agree(letter):
    """On the model of device where they were, and on another, where they do not count."""
    for a, b in variants(letter):
        of = Variant(PRECISIONS[letter], a, b)
        for spec in (H100, OTHER):
            table = held_rows(Hopper(spec), of)
            for m, n, k in table.won:
                p = Problem(m, n, k, letter, a, b)
                for x in (p, replace(p, ldc=p.ldc + 4)):
                    for aligned in (True, False):
                        compare(table, spec, x, aligned, False)


# -- kernels of all kinds ----------------------------------------------------------------

SIZES = [(64, 64, 64), (100, 200, 300), (4096, 4096, 4096), (1, 5000, 7), (2**31, 2**31, 8)]
RACES = st.dictionaries(st.sampled_from(SIZES), st.sampled_from([1e4, 2e4, 3e5]), max_size=3)
COSTS = st.lists(st.floats(0, 1e4), min_size=len(TERMS), max_size=len(TERMS)).map(tuple)


@st.composite
def tables(draw: Any, of: Variant) -> tuple[Held, DeviceSpec]:
    """Draw kernels of a variant, the user's own first, and a device."""
    spec = replace(draw(st.sampled_from([H100, OTHER])), multiprocessors=draw(st.integers(1, 200)))
    some = st.lists(st.sampled_from(EVERY_MODE), max_size=5, unique=True)
    timed, rows = draw(st.sampled_from([True, True, False])), []
    measured = Portfolio("", "", spec.name, 90, spec.multiprocessors, ())
    theirs = draw(st.sampled_from([measured, replace(measured, device="another")]))
    for is_own in sorted(draw(st.lists(st.booleans(), max_size=7)), reverse=True):
        mine = draw(st.sampled_from([measured, theirs])) if is_own else theirs
        of_costs = draw(COSTS) if timed and (not is_own or draw(st.booleans())) else ()
        facts = {"geometry": draw(geometries()), "won": draw(RACES), "costs": of_costs}
        modes, routed = draw(some), draw(some)
        one = kernel(of, None, modes, "portable", routed, **facts)
        rows.append((one, mine, is_own))
    return held_of(rows, of, spec), spec


@needs_core
@settings(max_examples=400)
@given(st.data())
def test_choices_among_kernels_of_all_kinds_agree(data):
    p = data.draw(problems())
    if data.draw(st.booleans()):
        m, n, k = data.draw(st.sampled_from(SIZES))
        p = Problem(m, n, k, p.precision, p.trans_a, p.trans_b)
    table, spec = data.draw(tables(Variant.of(p)))
    for aligned in (True, False):
        for routed in (True, False):
            compare(table, spec, p, aligned, routed)


@needs_core
def test_both_leave_aligned_operands_where_kernels_copy_single_elements():
    p, theirs = Problem(64, 64, 64, "s"), Portfolio("", "", H100.name, 90, 132, ())
    of, copies = Variant.of(p), Geometry(64, 64, (64, 1), any_alignment=True)
    one = kernel(of, None, EVERY_MODE, "portable", geometry=copies, costs=costs(3.0))
    table = held_of([(one, theirs, False)], of, H100)
    assert compare(table, H100, p, True, False) is None
    assert compare(table, H100, p, False, False) is not None


@needs_core
@settings(max_examples=150)
@given(st.lists(geometries(), min_size=1, max_size=6), problems(most=2**31), st.integers(1, 200))
def test_extreme_sizes_agree(several, p, many):
    of, spec = Variant.of(p), replace(H100, multiprocessors=many)
    theirs = Portfolio("", "", spec.name, 90, many, ())
    rows = [
        (
            kernel(of, None, EVERY_MODE, "portable", geometry=one, costs=costs(3.0 + at)),
            theirs,
            False,
        )
        for at, one in enumerate(several)
    ]
    compare(held_of(rows, of, spec), spec, p, True, False)


# -- through the public function ---------------------------------------------------------


@needs_core
def test_choose_decides_alike_without_the_core(monkeypatch):
    chosen = {}
    cases = [case for letter in "sz" for case in drawn(letter, 150)]
    for core in (library, lambda: None):
        monkeypatch.setattr(native_choice, "library", core)
        forget()
        chosen[core] = [choose(Hopper(), p, aligned, routed=to) for p, aligned, to in cases]
        table = held_rows(Hopper(), Variant.of(cases[0][0]))
        assert (table.native[0] is None) == (core is not library)
    first, second = chosen.values()
    assert first == second


@needs_core
@pytest.mark.parametrize(
    "p", [Problem(0, 5, 5, "s"), Problem(5, 0, 5, "d"), Problem(5, 2**63, 5, "s")], ids=str
)
def test_what_c_does_not_take_numpy_decides(p):
    native = held_rows(Hopper(), Variant.of(p)).native[0]
    assert native is not None
    assert not native.takes(p)


@needs_core
def test_a_table_is_laid_out_only_of_numbers_that_c_holds():
    of = Variant.of(Problem(1, 1, 1, "s"))
    theirs = Portfolio("", "", H100.name, 90, 132, ())
    large = {"tile_m": 1 << 16}, {"stages_k": 2**63}, {"most_k": 2**63}
    for changes, fits in (({}, True), *((one, False) for one in large)):
        geometry = replace(Geometry(64, 64, (64, 1)), **changes)
        rows = [(kernel(of, None, [PLAIN], "portable", geometry=geometry), theirs, False)]
        assert (held_of(rows, of, H100).native[0] is not None) == fits


def test_every_field_of_a_kernel_that_decides_is_laid_out():
    """One that is added to Python's has to be added to the table, and these numbers raised.

    Whether launches begin early decides nothing, nor how many products of a batch a block computes.
    """
    assert len(Geometry.__dataclass_fields__) == 23
    assert len(PortfolioKernel.__dataclass_fields__) == 11


# -- structures --------------------------------------------------------------------------

STRUCTURES = ("geometry", "won", "kernel", "rows", "problem", "place", "choice")


@needs_c
def test_structures_lie_as_in_c(tmp_path: Path):
    """Size of each, and where its fields begin."""
    names = {"is_": "is"}
    lines, wanted = [], []
    for name in STRUCTURES:
        of = getattr(native_choice, f"_{name.title()}")
        lines.append(f"(int)sizeof(tilewright_{name})")
        wanted.append(ctypes.sizeof(of))
        for field, _ in of._fields_:
            lines.append(f"(int)offsetof(tilewright_{name}, {names.get(field, field)})")
            wanted.append(getattr(of, field).offset)
    text = ", ".join(lines)
    (tmp_path / "sizes.c").write_text(
        f'#include <stdio.h>\n#include "choice.h"\nint main(void)\n{{\n    int x[] = {{{text}}};\n'
        f'    for (int i = 0; i < {len(lines)}; ++i)\n        printf("%d ", x[i]);\n}}\n'
    )
    folder = Path(native_choice.__file__).parent.parent / "core/native"
    made = tmp_path / "sizes"
    command = [COMPILER, *WARNINGS, ARITHMETIC, f"-I{folder}", tmp_path / "sizes.c", "-o", made]
    subprocess.run(command, check=True, timeout=100)
    said = subprocess.run([made], capture_output=True, check=True, timeout=100, text=True).stdout
    assert [int(x) for x in said.split()] == wanted
