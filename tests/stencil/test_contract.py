"""The kernels that copy asynchronously, run on the CPU: every way through them is right.

The emulator runs the threads of a block in a random order between barriers, and each launch
twice, with copies as early and as late as the source allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stencil.contract import every_start_computes_the_product, faulty, thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.features import FEATURES, Drawn, Fault, Feature
from tests.stencil.portable_harness import variant
from tests.stencil.ways import MMA, SIMT, Way
from tilewright.backend import LaunchError
from tilewright.stencil import Mode, Stencil
from tilewright.tuning.verify import Check, WrongResultError, certify, screen

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def rows(of: Callable[[Feature], Iterable[Any]], *marks: pytest.MarkDecorator) -> list[Any]:
    """Return the cases of all features, named after them."""
    return [
        pytest.param(feature, row, id=f"{name}: {row}", marks=marks)
        for name, feature in FEATURES.items()
        for row in of(feature)
    ]


@pytest.mark.every(5)
@pytest.mark.parametrize(
    ("feature", "way"),
    rows(lambda one: one.certified) + rows(lambda one: one.thorough, pytest.mark.thorough),
)
def test_the_contract_is_kept(emulated: EmulatedDevice, feature: Feature, way: Way) -> None:
    run = way.bench(emulated)
    certify(emulated, run.kernel, way.family, run.config, way.of)


@pytest.mark.every(9)
@pytest.mark.parametrize(("feature", "way"), rows(lambda one: one.ways))
def test_every_way_computes_the_product(
    emulated: EmulatedDevice, feature: Feature, way: Way
) -> None:
    run = way.bench(emulated)
    screen(emulated, run.kernel, way.family, run.config, way.of, Mode.parse(way.mode))
    for check in feature.checks:
        run.exact(check, np.random.default_rng(check.padding))


def problems(drawn: Drawn) -> st.SearchStrategy[tuple[Way, Check]]:
    """Return a strategy of ways, each with a problem."""
    return st.sampled_from(drawn.ways).flatmap(
        lambda way: st.tuples(st.just(way), drawn.problems(way))
    )


@pytest.mark.every(6)
@pytest.mark.parametrize(
    "name",
    thorough_but(
        FEATURES.keys() - {"specialised epilogue", "TMA lines"},
        [name for name, feature in FEATURES.items() if feature.drawn],
    ),
)
def test_any_problem_is_computed_exactly(emulated: EmulatedDevice, name: str) -> None:
    drawn = FEATURES[name].drawn

    @settings(
        max_examples=drawn.examples,
    )
    @given(problems(drawn), st.integers(1, drawn.blocks), st.integers(0, 2**32 - 1))
    def is_exact(pair: tuple[Way, Check], blocks: int, seed: int) -> None:
        way, check = pair
        stays = blocks if "persistent" in way.changes else None
        way.bench(emulated, stays).exact(check, np.random.default_rng(seed))

    is_exact()


def passes(live: EmulatedDevice, fault: Fault, family: Stencil) -> None:
    """Check a kernel with and without a fault, of a right family or a wrong one."""
    way = fault.way
    if not fault.runs:
        run = way.bench(live, family=family)
        screen(live, run.kernel, family, run.config, way.of, Mode.parse(way.mode))
    for check, seed, blocks in fault.runs:
        way.bench(live, blocks, family).exact(check, np.random.default_rng(seed))


@pytest.mark.every(8)
@pytest.mark.parametrize(("feature", "name"), rows(lambda one: one.faults))
def test_the_emulator_finds(emulated: EmulatedDevice, feature: Feature, name: str) -> None:
    """Each fault, put into the source, fails checks that the source passes."""
    fault = feature.faults[name]
    if fault.runs:  # a tuner's own are passed by every way above
        passes(emulated, fault, fault.way.family)
    with pytest.raises((WrongResultError, LaunchError)) as found:
        passes(emulated, fault, faulty(type(fault.way.family), fault.old, fault.new))
    if name == "nobody says that a stage is read":  # so that who asks waits for ever
        assert "a barrier is not met by all" in str(found.value)


SHIPPED = [(SIMT, name) for name in ("sNN", "zNR", "sNT", "sTN", "sTT", "dTN", "cCN")]
SHIPPED += [(MMA, name) for name in ("dNN", "dTT", "zNT", "zCN")]


@pytest.mark.parametrize(
    ("family", "name"),
    [*SHIPPED[:2], *(pytest.param(*one, marks=pytest.mark.thorough) for one in SHIPPED[2:])],
    ids=lambda x: getattr(x, "name", x),
)
def test_what_ships_is_right(emulated: EmulatedDevice, family: Stencil, name: str) -> None:
    every_start_computes_the_product(emulated, family, variant(name))
