"""Kernels that end the process that times them cost their own times and no others."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from types import SimpleNamespace

import pytest

from tilewright.backend import DeviceLostError
from tilewright.portfolio import measure_apart as apart
from tilewright.portfolio.timers import LostToError
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.space import Config
from tilewright.stencil import Variant

LIVE = SimpleNamespace(id="cuda:0")
SIZES = [Config("simt_async", {"block_m": size}) for size in (32, 64, 128)]
ALSO = {Variant(precision("s"), Trans.N, Trans.T): SIZES}
TIMES = {"cases": {"NN": {"shapes": [], "configs": []}}}


@pytest.fixture
def measured(monkeypatch):
    """A family that is measured without a process, and what that would send."""
    family, sent = SimpleNamespace(measure=None), []

    def answer(measure):
        measure(SimpleNamespace(send_bytes=sent.append))
        return json.loads(sent[-1])

    monkeypatch.setattr(apart, "measure_family", lambda *of, **more: family.measure(*of, **more))
    monkeypatch.setattr(apart, "device", lambda _: LIVE)
    monkeypatch.setattr(apart, "CUDADevice", SimpleNamespace)
    monkeypatch.setattr(apart, "_answer", answer)
    return family, sent


def test_times_are_a_familys_and_the_process_says_that_it_is_at_work(measured):
    family, sent = measured

    def measure(
        live, letter, name, count, seed, seconds, also, *, unaligned, sifted, without, observer
    ):
        assert (letter, name, count, seconds, sifted) == ("s", "simt_async", 9, 40.0, True)
        assert unaligned
        assert (also, without) == (ALSO, (SIZES[1],))
        observer()
        return TIMES

    family.measure = measure
    about = LIVE, "s", "simt_async", 9, 40.0, ALSO, [SIZES[1]]
    assert apart.measure_apart(*about, unaligned=True) == TIMES
    assert sent[0] == apart._ALIVE


def test_what_loses_the_device_is_named(measured):
    family, _ = measured

    def measure(*_, **__):
        raise LostToError(SIZES[2], "block_m=128 of 64x32x16: an illegal memory access")

    family.measure = measure
    with pytest.raises(LostToError, match="64x32x16: an illegal") as found:
        apart.measure_apart(LIVE, "s", "simt_async", 9, 1.0, ALSO)
    assert found.value.config == SIZES[2]


def test_what_no_kernel_did_is_told_as_it_is(measured):
    family, _ = measured

    def measure(*_, **__):
        raise DeviceLostError("the device fell off the bus")

    family.measure = measure
    with pytest.raises(RuntimeError, match="fell off the bus"):
        apart.measure_apart(LIVE, "s", "simt_async", 9, 1.0, ALSO)


def sends(text, to):
    for message in (apart._ALIVE, apart._ALIVE, apart._ALIVE, text):
        time.sleep(0.9)  # longer in all than a silence may be
        to.send_bytes(message)


def dies(to):
    os._exit(7)


def breaks_off(to):
    os.write(to.fileno(), (100).to_bytes(4, "big") + b"{")  # so begins a message of 100 bytes
    os._exit(7)


def hangs(to):
    to.send_bytes(apart._ALIVE)
    time.sleep(60)


def test_what_a_process_sends_is_returned_and_its_end_is_told(monkeypatch):
    for ends in (dies, breaks_off):
        with pytest.raises(RuntimeError, match="ended by itself, status 7"):
            apart._answer(ends)
    monkeypatch.setattr(apart, "_SILENT_SECONDS", 3.0)
    assert apart._answer(partial(sends, b'{"times": 3}')) == {"times": 3}
    with pytest.raises(RuntimeError, match=r"a kernel hangs: nothing .* in 3 s"):
        apart._answer(hangs)


def test_a_process_of_its_own_is_given_what_is_timed_and_says_why_it_is_not():
    nowhere = SimpleNamespace(id="cuda:99")
    with pytest.raises(RuntimeError, match="cuda:99"):
        apart.measure_apart(nowhere, "s", "simt_async", 9, 1.0, ALSO, SIZES)
