"""Many launches of two kernels: one wrong element in one of them is found."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.reschedule.proving import PROBLEMS, Launched, Pair, laid_down, many_launches
from tests.tuning.scheduled import Scheduled
from tilewright.backend import LiveDevice
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import WrongResultError

ROOT = Path(__file__).parents[2]
FAMILY = Scheduled()


def pair_of(live: LiveDevice, problem: Problem, level: int) -> Pair:
    """Return the plain kernel and one of `tests.tuning.scheduled`'s levels."""
    values = {"slow": 0, "block_m": 8, "block_n": 8, "block_k": 8}
    of, kernels = Variant.of(problem), []
    for schedule in (0, level):
        config = Config("scheduled", values | ({"schedule": schedule} if schedule else {}))
        kernels.append(live.compile(FAMILY.source(config, of, "opencl")))
    return Pair(FAMILY, config, *kernels)


def test_equal_kernels_are_compared_in_every_launch(live: LiveDevice) -> None:
    problem, fed = Problem(33, 20, 16, "s"), []
    found = many_launches(
        live, pair_of(live, problem, 1), problem, 16, feed=lambda: fed.append(time.time())
    )
    # Two pairs of scalars, sixteen launches each.
    assert found == Launched(32, 32 * 33 * 20)
    assert len(fed) == 32
    late = time.monotonic() - 1
    assert many_launches(live, pair_of(live, problem, 1), problem, 16, until=late) == Launched()


def test_a_launch_knows_how_long_sums_are(live: LiveDevice, monkeypatch: Any) -> None:
    """Kernels in slices are cut along k."""
    problem, asked = Problem(33, 20, 16, "s"), set()

    def launch(config: Config, m: int, n: int, k: int = 0) -> Any:
        asked.add((m, n, k))
        return Scheduled().launch(config, m, n, k)

    pair = pair_of(live, problem, 1)
    monkeypatch.setattr(FAMILY, "launch", launch, raising=False)
    many_launches(live, pair, problem, 8)
    assert asked == {(33, 20, 16)}


@pytest.mark.parametrize(
    ("level", "words"),
    [(2, r"\d+ words"), (5, "8 words")],
    ids=["sums in another order", "one element is not written"],
)
def test_other_bits_are_found(live: LiveDevice, level: int, words: str) -> None:
    """The element that is not written holds the pattern, not the last launch's right value."""
    problem = Problem(33, 20, 16, "s")
    with pytest.raises(WrongResultError, match=f"{words} of C differ .* in 8 launches"):
        many_launches(live, pair_of(live, problem, level), problem, 16)


def test_the_problems_have_every_class_of_blocks() -> None:
    """For blocks of 128 x 128 x 16: whole and ragged, several waves of 132, a long loop."""
    ragged = [(m % 128 > 0, n % 128 > 0, k % 16 > 0) for m, n, k in PROBLEMS]
    for at in range(3):
        assert {one[at] for one in ragged} == {True, False}
    assert max(m * n for m, n, _ in PROBLEMS) >= 3 * 132 * 128 * 128
    assert any(size % 4 for one in PROBLEMS for size in one)


@pytest.mark.parametrize(
    ("letter", "tma", "laid"),
    [("s", 0, (997, 1013)), ("s", 1, (1000, 1016)), ("c", 1, (998, 1014)), ("z", 1, (997, 1013))],
)
def test_columns_lie_where_both_kernels_can_read_them(
    letter: str, tma: int, laid: tuple[int, int]
) -> None:
    """Boxes want columns at multiples of 16 bytes; those of C begin anywhere all the same."""
    family = SimtAsync()
    problem = Problem(997, 1013, 531, letter, "N", "T")
    config = family.default(Variant.of(problem), architecture_spec("sm_90a"))
    config = config.replace(tma=1) if tma else config
    found = laid_down(problem, Pair(family, config, None, None))  # type: ignore[arg-type]
    assert (found.lda, found.ldb, found.ldc) == (*laid, 997)
    assert (found.m, found.n, found.k) == (997, 1013, 531)
    assert family.takes(config, found)
    padded = Problem(997, 1013, 531, letter, "N", "T", 1200, 1400)
    assert laid_down(padded, Pair(family, config, None, None)) == padded  # type: ignore[arg-type]
