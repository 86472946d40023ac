"""Kernels that end the process that times them cost their own times and no others."""

from __future__ import annotations

import os
import time
from functools import partial
from types import SimpleNamespace

import pytest

from tilewright.backend import DeviceLostError
from tilewright.portfolio import measure_apart as apart
from tilewright.portfolio.measure import LostToError
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Variant

LIVE = SimpleNamespace(id="cuda:0")
SIZES = [Config("simt_async", {"block_m": size}) for size in (32, 64, 128)]
ALSO = {Variant(precision("s"), Trans.N, Trans.T): SIZES}
TIMES = {"cases": {"NN": {"shapes": [], "configs": []}}}


class Sent:
    """What a process would send, without one."""

    def __init__(self) -> None:
        self.text = b""

    def send_bytes(self, text: bytes) -> None:
        self.text = text


@pytest.fixture
def family(monkeypatch):
    """A family two of whose kernels lose the device; returns what each process was without."""
    begun = []

    def measure_family(live, letter, name, count, seed, seconds, also, *, sifted, without):
        assert (letter, name, count, sifted) == ("s", "simt_async", 9, True)
        begun.append((seconds, list(without)))
        for one in also[next(iter(ALSO))]:
            if one != SIZES[1] and one not in without:
                problem = Problem(64, 32, 16, "s")
                raise LostToError(one, problem, DeviceLostError("an illegal memory access"))
        return TIMES

    def answer(measure, seconds):
        to = Sent()
        measure(to)
        return apart.json.loads(to.text)

    monkeypatch.setattr(apart, "measure_family", measure_family)
    monkeypatch.setattr(apart, "device", lambda _: LIVE)
    monkeypatch.setattr(apart, "CUDADevice", SimpleNamespace)
    monkeypatch.setattr(apart, "_answer", answer)
    return begun


def test_what_loses_the_device_is_left_out_and_the_others_are_timed(family):
    left = iter((40.0, 30.0, 20.0))
    times, lost = apart.measure_apart(LIVE, "s", "simt_async", 9, lambda: next(left), ALSO)
    assert times == TIMES
    assert list(lost) == [SIZES[0], SIZES[2]]
    assert all("64x32x16" in why and "illegal" in why for why in lost.values())
    assert family == [(40.0, []), (30.0, [SIZES[0]]), (20.0, [SIZES[0], SIZES[2]])]


def test_what_no_kernel_did_ends_it(family, monkeypatch):
    def measure_family(*_, **__):
        raise DeviceLostError("the device fell off the bus")

    monkeypatch.setattr(apart, "measure_family", measure_family)
    with pytest.raises(RuntimeError, match="fell off the bus"):
        apart.measure_apart(LIVE, "s", "simt_async", 9, lambda: 1.0, ALSO)


def sends(text, to):
    to.send_bytes(text)


def dies(to):
    os._exit(7)


def hangs(to):
    time.sleep(60)


def test_what_a_process_sends_is_returned_and_its_end_is_told():
    assert apart._answer(partial(sends, b'{"times": 3}'), 60.0) == {"times": 3}
    with pytest.raises(RuntimeError, match="ended by itself, status 7"):
        apart._answer(dies, 60.0)
    with pytest.raises(RuntimeError, match=r"hangs: .* gave nothing in 1 s"):
        apart._answer(hangs, 1.0)


def test_a_process_of_its_own_is_given_what_is_timed_and_says_why_it_is_not():
    nowhere = SimpleNamespace(id="cuda:99")
    with pytest.raises(RuntimeError, match="cuda:99"):
        apart.measure_apart(nowhere, "s", "simt_async", 9, lambda: 1.0, ALSO)
