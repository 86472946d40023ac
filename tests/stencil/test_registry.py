"""Stencils by name, also for threads that ask at once."""

from __future__ import annotations

import threading
import time

import pytest

from tests.stencil.portable_harness import variant
from tilewright.stencil import registry, stencil, stencils, stencils_for
from tilewright.stencil.portable import Portable


def test_two_first_calls_at_once_get_the_same_stencils(monkeypatch):
    """Each thread's choice is made among all stencils, of which there is one set."""
    imported = registry.import_module

    def slowly(name):
        time.sleep(0.05)
        return imported(name)

    monkeypatch.setattr(registry, "import_module", slowly)
    monkeypatch.setattr(registry, "_made", {})
    found: list[tuple[object, ...]] = []
    threads = [threading.Thread(target=lambda: found.append(stencils())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert {tuple(map(id, one)) for one in found} == {tuple(map(id, found[0]))}


def test_a_device_is_served_by_what_suits_it_first(live):
    fitting = stencils_for(live.spec)
    assert fitting
    assert all(made.suits(live.spec) for made in fitting)
    of = variant("sNN")
    assert stencils_for(live.spec, of) == tuple(one for one in fitting if one.computes(of))


def test_names_are_taken_once():
    assert stencil("portable") is stencil("portable")
    with pytest.raises(ValueError, match="stencil='none' is unknown; use one of mma_f64"):
        stencil("none")

    class Another(Portable):
        name = "simt_async"

    with pytest.raises(ValueError, match="registered already"):
        registry.register(Another())
