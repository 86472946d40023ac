"""The shapes that a portfolio's kernels are timed on."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from types import SimpleNamespace

import pytest

from tilewright.backend import BackendError
from tilewright.hardware.catalogue import catalogue_device
from tilewright.portfolio import measure
from tilewright.portfolio.drawn import KINDS
from tilewright.portfolio.measure import _near_best, interleaved_medians
from tilewright.precision import PRECISIONS

SIDES = {
    "any": (1, 2**14), "short": (1, 500_000), "large": (2048, 8192), "layers": (1, 2**15),
    "thin": (1, 2**14),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_are_of_their_kind_and_the_same_for_a_seed(kind):
    first, again, other = (
        list(islice(KINDS[kind](seed, PRECISIONS["z"]), 200)) for seed in (3, 3, 4)
    )
    assert first == again != other
    least, most = SIDES[kind]
    assert all(least <= side <= most for shape in first for side in shape)
    if kind == "short":
        assert all(min(m, n) <= 128 for m, n, _ in first)
    assert any(side % 2 for shape in first for side in shape)
    assert any(all(side % 8 == 0 for side in shape) for shape in first)


def test_what_disturbs_one_round_of_all_kernels_counts_for_none():
    rounds = []

    def timer(name, *times):
        left = iter(times)

        def run():
            rounds.append(name)
            return next(left)

        return run

    def refused():
        raise BackendError("no such launch")

    slow = 5_000_000
    found = interleaved_medians(
        [
            timer("a", 900, 10, 500, 11),  # the first is a warm-up
            None,
            timer("b", 900, 20, 510, 22),
            timer("c", slow, slow + 2, 7, 7),  # timed once
            refused,
        ]
    )
    assert found == [11, None, 22, slow + 2, None]
    assert rounds == ["a", "b", "c", "a", "b", "c", "a", "b", "a", "b"]


def test_what_is_near_the_best_of_none_is_left_out():
    assert _near_best([[100, 104, 110, None], [60, 70, 64, 61], [None] * 4]) == [0, 1, 3]
    assert _near_best([[None] * 3] * 2) == [0, 1, 2]


def test_a_variant_whose_configs_are_all_refused_is_named_and_left_out(monkeypatch):
    @contextmanager
    def ahead(arch):
        refused = {"TRANS_A": 0, "TRANS_B": 0}.items()
        yield lambda source: lambda: not refused <= source.defines.items()

    monkeypatch.setattr(measure, "compiling_ahead", ahead)
    monkeypatch.setattr(measure, "matrices", lambda *_: {})
    live = SimpleNamespace(
        spec=catalogue_device("h100").spec, arch="sm_90a", driver="", compile=lambda source: source
    )
    with pytest.warns(RuntimeWarning, match=r"skinny s NN: .* refused all of \d+ configs") as said:
        found = measure.measure_family(live, "s", "skinny", 0, 0, 1.0)
    assert len(said) == 1
    assert list(found["cases"]) == ["NT", "TN", "TT"]
