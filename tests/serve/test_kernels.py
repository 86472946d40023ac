"""Kernels ready to launch: what ships is loaded; what is damaged or refused has a next best."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace

import pytest

from tests.portfolio.examples import EVERY_MODE, H100, Hopper, costs, cubin_of, kernel
from tilewright.backend import BackendError
from tilewright.portfolio import choose, find, held
from tilewright.portfolio.held import refuse
from tilewright.portfolio.triangles import choices_for_triangle
from tilewright.problem import Problem
from tilewright.serve import kernels
from tilewright.serve.kernels import kernel_of, ready, ready_by
from tilewright.stencil import Source, Variant, stencil
from tilewright.stencil.geometry import PLAIN

SQUARE = Problem(4096, 4096, 4096, "s")
NN = Variant.of(SQUARE)
FIRST, SECOND = stencil("simt_async").starts(NN, H100)[:2]


@pytest.fixture(autouse=True)
def afresh(monkeypatch):
    """Nothing was refused before."""
    choosing = sys.modules[choose.__module__]
    holding = sys.modules[held.__module__]
    cached = holding.held_by, choosing._chosen, kernels._warn_once
    monkeypatch.setattr(holding, "_refused", set())
    for one in cached:
        one.cache_clear()
    yield
    for one in cached:
        one.cache_clear()


def two(ship):
    """Ship two kernels, the first of which is expected to be faster."""
    ship(kernel(SQUARE, FIRST, costs=costs(1.0), routed=[PLAIN]),
         kernel(SQUARE, SECOND, costs=costs(9.0)))  # fmt: skip


def test_machine_code_is_loaded_once_and_nothing_compiled(ship):
    two(ship)
    live = Hopper()
    chosen, first = ready(live, SQUARE)
    assert ready(live, SQUARE) == (chosen, first)
    assert live.loaded == [cubin_of(FIRST, NN, PLAIN)]
    assert (first.entry, live.compiled) == ("gemm_plain", [])


def test_what_a_guard_holds_back_is_other_machine_code(ship):
    two(ship)
    live = Hopper()
    ready(live, SQUARE, routed=True)
    assert live.loaded == [cubin_of(FIRST, NN, PLAIN, "routed")]


def test_what_was_refused_since_it_was_chosen_is_compiled_in_its_form(ship):
    config = FIRST.replace(persistent=1)
    square = Problem(4096, 4096, 4096, "s", "N", "T")
    one = kernel(square, config, costs=costs(1.0))
    ship(replace(one, triangle=dict(one.modes)))
    [chosen] = choices_for_triangle(Hopper(), square)
    refuse(chosen.digest())
    assert ready_by(Hopper(), chosen, Variant.of(square)).defines["TRIANGLE"] == 1


def test_what_the_driver_refuses_is_named_once_and_the_next_best_serves(ship):
    two(ship)
    live = Hopper(refused=[cubin_of(FIRST, NN, PLAIN)])
    with pytest.warns(RuntimeWarning, match="cuda:0 refuses machine code of NVRTC 1.2") as told:
        chosen, _ = ready(live, SQUARE)
    assert len(told) == 1
    assert chosen.config == SECOND
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ready(live, SQUARE)[0].config == SECOND
        assert ready(live, Problem(512, 512, 512, "s"))[0].config == SECOND
    assert not live.compiled


def test_a_refused_instance_leaves_its_place_to_another_of_the_same_kernel(ship):
    ship(kernel(SQUARE, FIRST, EVERY_MODE, costs=costs(1.0)))
    odd = Problem(4097, 4097, 5000, "s")
    wanted = stencil("simt_async").geometry(FIRST).mode(odd)
    live = Hopper(refused=[cubin_of(FIRST, NN, wanted)])
    with pytest.warns(RuntimeWarning, match="refuses"):
        chosen, _ = ready(live, odd)
    assert chosen.config == FIRST
    assert chosen.mode != wanted


def test_where_all_is_refused_the_default_is_compiled(ship):
    two(ship)
    live = Hopper(refused=[cubin_of(one, NN, PLAIN) for one in (FIRST, SECOND)])
    with pytest.warns(RuntimeWarning, match="refuses"):
        chosen, source = ready(live, SQUARE)
    assert chosen.kernel is None
    assert live.compiled == [source]


def test_damaged_machine_code_is_named_once_and_the_next_best_serves(ship, tmp_path):
    two(ship)
    made = find.shipped(H100, "s")
    at, size = made.blocks[FIRST.id]
    path = tmp_path / "package" / made.data
    bad = bytearray(path.read_bytes())
    bad[at + size // 2] ^= 1
    path.write_bytes(bad)
    with pytest.warns(RuntimeWarning, match=r"is damaged|cannot be read") as told:
        chosen, _ = ready(Hopper(), SQUARE)
    assert len(told) == 1
    assert chosen.config == SECOND


def test_what_a_manifest_promises_and_lacks_has_a_next_best(keep):
    """Of one's own: it is compiled."""
    promised = kernel(SQUARE, FIRST, won={(4096, 4096, 4096): 1.0})
    made = keep("here", promised)
    path = find.own_folder("here") / "s.json"
    (digest,) = made.codes
    path.write_text(
        path.read_text().replace(f'"codes": {{\n"{digest}"', f'"codes": {{\n"{"0" * 64}"')
    )
    find.reload()
    live = Hopper(key="here")
    with pytest.warns(RuntimeWarning, match="has no machine code"):
        chosen, _ = ready(live, SQUARE)
    assert (chosen.config, chosen.digest()) == (FIRST, "")
    assert len(live.compiled) == 1


def test_a_device_that_nothing_can_be_had_for_says_so(ship):
    class Bare(Hopper):
        def compile(self, source):
            raise BackendError("no compiler")

    with pytest.raises(BackendError, match="no compiler"):
        ready(Bare(), SQUARE)


# -- what has no config ------------------------------------------------------------------


def source(value: int = 1, unit: str = "copies 1") -> Source:
    return Source("text", {"SIZE": value}, "copy", unit=unit)


def test_passes_are_loaded_where_they_ship_and_else_compiled(ship):
    made = kernel(SQUARE, FIRST)
    ship(made, name="passes", sources={source().identity: made.modes[PLAIN]})
    live = Hopper()
    assert kernel_of(live, source()).code == cubin_of(FIRST, NN, PLAIN)
    assert kernel_of(live, source()) is kernel_of(live, source())
    assert live.compiled == []
    for other in (source(2), source(unit="copies 2"), source(unit="")):
        assert kernel_of(live, other) is other
    assert live.loaded == [cubin_of(FIRST, NN, PLAIN)]
    loaded = kernel_of(live, source())
    assert kernel_of(live, loaded) is loaded


def test_refused_passes_are_compiled(ship):
    made = kernel(SQUARE, FIRST)
    ship(made, name="passes", sources={source().identity: made.modes[PLAIN]})
    live = Hopper(refused=[cubin_of(FIRST, NN, PLAIN)])
    with pytest.warns(RuntimeWarning, match="no kernel image"):
        assert kernel_of(live, source()) == source()
