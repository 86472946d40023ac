"""Configs for a device that nobody tuned for."""

from __future__ import annotations

import pytest

from tests.portfolio.examples import forget
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.portfolio import shortlist as module
from tilewright.portfolio.shortlist import of_other_devices, shortlist
from tilewright.problem import Problem
from tilewright.stencil import Variant, stencil

FAMILY = stencil("simt_async")
VARIANT = Variant.of(Problem(1, 1, 1, "s", "N", "T"))


def test_a_shortlist_has_something_for_large_results_and_for_long_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_DRAWN", 300)
    monkeypatch.setattr(module, "_SHAPES", 2)
    spec = architecture_spec("sm_90a")
    found = shortlist(FAMILY, VARIANT, spec)
    assert found == shortlist(FAMILY, VARIANT, spec)
    assert len(found) == len(set(found)) > 6
    assert all(FAMILY.space(VARIANT, spec).contained(found))
    assert max(one.integer("block_m") for one in found) > min(
        one.integer("block_m") for one in found
    )
    assert any(one.get("parallel_split_k") or one.get("stream_k") for one in found)


def test_a_shortlist_has_small_and_large_blocks_that_share_no_short_sum() -> None:
    found = map(FAMILY.geometry, shortlist(FAMILY, VARIANT, architecture_spec("sm_90a")))
    plain = {
        (one.tile_m, one.tile_n) for one in found
        if one.tile_k <= 8 and one.cluster_k == 1 and not (one.stream_k or one.split_k or one.tma)
    }  # fmt: skip
    assert {(32, 64), (64, 64), (128, 128)} <= plain


def test_an_older_device_is_given_what_it_takes_of_a_newer_ones_portfolio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()  # the package's own portfolios, for once
    forget()
    older, newer = (
        of_other_devices("s", FAMILY, VARIANT, architecture_spec(arch))
        for arch in ("sm_80", "sm_90a")
    )
    assert older
    assert set(older) < set(newer)
    assert not any(one.get("tma") for one in older)
