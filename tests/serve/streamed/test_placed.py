"""Matrices on devices, shared by several: on the host's memory, as if it were of devices."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import time
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from tilewright.backend import BackendError, Operand
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.serve.request import Request
from tilewright.serve.streamed import pipeline, progress
from tilewright.serve.streamed.pipeline import multiply
from tilewright.serve.streamed.placed import PlacedMatrix
from tilewright.serve.streamed.tiling import PlacedCuts, Tiling

DEVICES = [SimpleNamespace(backend="cuda", ordinal=n, id=f"cuda:{n}") for n in range(3)]


def seen(address, step, shape):
    """Return lines in memory as an array."""
    size = (shape[0] - 1) * step + shape[1] * 8
    flat = np.frombuffer((ctypes.c_byte * size).from_address(address), np.uint8)
    return as_strided(flat[:8].view("f8"), shape, (step, 8), writeable=True)


def matrix(address, ld, shape, row_major):
    return seen(address, ld * 8, shape) if row_major else seen(address, ld * 8, shape[::-1]).T


class Carrier:
    """A device whose memory is the host's, and where nothing waits."""

    overlaps = True

    def __init__(self, live, fails_at=0):
        self.live, self.fails_at, self.held, self.copied = live, fails_at, [], 0

    def allocate(self, sizes):
        self.held += [np.full(size, 255, np.uint8) for size in sizes]
        return [one.ctypes.data for one in self.held[len(self.held) - len(sizes) :]]

    def part(self, memory, offset):
        return memory + offset

    def upload(self, memory, lines, ld, after):
        self.copied += lines.shape[0] * lines.shape[1]
        seen(memory, ld * 8, lines.shape)[...] = seen(lines.address, lines.step, lines.shape)

    def multiply(self, request, operands, after, lane, parts=()):
        self.fails_at -= 1
        if self.fails_at == 0:
            raise BackendError("gone")
        sizes = (request.m, request.k), (request.k, request.n), (request.m, request.n)
        turned = request.trans_a.transposed, request.trans_b.transposed, False
        a, b, c = (
            matrix(x.memory, x.ld, size[:: -1 if turn else 1], row_major).T
            if turn else matrix(x.memory, x.ld, size, row_major)
            for (x, row_major), size, turn in zip(operands, sizes, turned, strict=True)
        )  # fmt: skip
        c[...] = request.alpha * (a @ b) + (request.beta * c if request.beta else 0)

    def fetch(self, memory, lines, ld, after):
        seen(lines.address, lines.step, lines.shape)[...] = seen(memory, ld * 8, lines.shape)

    def close(self):
        self.held.clear()


def drawn(rng, live, shape, row_major, pad):
    """Return integers in memory, and the matrix as the pipeline has it."""
    lines, length = shape if row_major else shape[::-1]
    ld = length + pad
    held = np.zeros(lines * ld + 2)
    first = held[held.ctypes.data // 8 % 2 :]  # aligned to 16 bytes
    there = as_strided(first, (lines, length), (ld * 8, 8))
    there[...] = rng.integers(-9, 10, there.shape)
    placed = PlacedMatrix(live, Operand(first.ctypes.data, 0, ld), row_major, 8)
    return held, there if row_major else there.T, placed


def called(rng, sizes, trans, orders, where, beta, devices, pads=(0, 0, 0), fails_at=()):
    m, n, k = sizes
    shapes = (k, m) if trans[0] == "T" else (m, k), (n, k) if trans[1] == "T" else (k, n), (m, n)
    drawn_ = [
        drawn(rng, DEVICES[at], shape, order, pad)
        for at, shape, order, pad in zip(where, shapes, orders, pads, strict=True)
    ]
    (_, a, _), (_, b, _), (_, c, _) = drawn_
    if not beta:
        c[...] = np.nan
    x, y = (v.T if t == "T" else v for v, t in zip((a, b), trans, strict=True))
    expected = 2 * (x @ y) + (beta * c if beta else 0)
    request = Request(precision("d"), m, n, k, 2, beta, *map(Trans, trans), a, b, c)
    tiling = Tiling.of(m, n, k, 8, sys.maxsize, PlacedCuts(orders[2]))
    carriers = [Carrier(live, *fails_at[at : at + 1]) for at, live in enumerate(DEVICES[:devices])]
    multiply(request, tiling, carriers, [placed for _, _, placed in drawn_])
    assert np.array_equal(c, expected)
    return tiling, carriers


@settings(max_examples=25)
@given(
    sizes=st.tuples(*[st.sampled_from([1, 40, 700, 1300])] * 2, st.sampled_from([1, 300, 900])),
    trans=st.tuples(*[st.sampled_from("NT")] * 2), orders=st.tuples(*[st.booleans()] * 3),
    where=st.tuples(*[st.integers(0, 2)] * 3), beta=st.sampled_from([0, 3]),
    pads=st.tuples(*[st.integers(0, 3)] * 3), devices=st.integers(1, 3), seed=st.integers(0, 99),
)  # fmt: skip
def test_devices_share_matrices_wherever_these_are(
    sizes, trans, orders, where, beta, pads, devices, seed
):
    called(np.random.default_rng(seed), sizes, trans, orders, where, beta, devices, pads)


def test_each_copies_one_operand_and_its_strips_of_the_other():
    rng = np.random.default_rng(1)
    sizes = m, n, k = 2048, 1500, 1024
    tiling, (first, *others) = called(rng, sizes, "NN", (True,) * 3, (0, 0, 0), 0, 3)
    assert first.copied == 0
    assert all(one.copied < k * n + m * k for one in others)
    assert len(tiling.m) > 3
    assert len(tiling.n) == 1


def test_every_device_begins_before_another_goes_on(monkeypatch):
    began, multiply = [], Carrier.multiply

    def noted(self, *rest):
        began.append(self.live)
        multiply(self, *rest)

    monkeypatch.setattr(Carrier, "multiply", noted)
    called(np.random.default_rng(3), (4096, 300, 600), "NN", (True,) * 3, (0, 0, 0), 0, 3)
    assert [one.ordinal for one in began[:6]] == [0, 1, 2] * 2


@pytest.mark.parametrize("where", list(product((0, 1), repeat=2)))
def test_what_a_lost_device_had_is_computed(where):
    rng = np.random.default_rng(2)
    with pytest.warns(RuntimeWarning, match="cuda:1 failed, and others computed what it had: gone"):
        called(rng, (2048, 700, 600), "NN", (True,) * 3, (*where, 0), 0, 2, fails_at=(0, 2))


@pytest.mark.parametrize("name", ["tilewright-device", "tilewright-download"])
def test_others_compute_what_a_device_had_that_cannot_be_made_current(monkeypatch, name):
    @contextlib.contextmanager
    def refused():
        if threading.current_thread().name.startswith(name):
            raise BackendError("no context")
        yield

    rng, beside = np.random.default_rng(4), ((2048, 700, 600), "NN", (True,) * 3, (0, 0, 0), 0)
    monkeypatch.setattr(DEVICES[1], "staying_current", refused, raising=False)
    with pytest.warns(RuntimeWarning, match="cuda:1 failed, .* had: no context"):
        called(rng, *beside, 2)
    monkeypatch.setattr(DEVICES[0], "staying_current", refused, raising=False)
    with pytest.raises(BackendError, match="no context; "):
        called(rng, *beside, 2)


def test_nothing_goes_on_behind_a_call_where_whoever_is_told_fails(monkeypatch):
    def told(done, of):
        raise ZeroDivisionError

    monkeypatch.setattr(pipeline, "_TELL_SECONDS", 0)
    monkeypatch.setattr(Carrier, "multiply", lambda *_: time.sleep(0.2))
    with progress.told(told), pytest.raises(ZeroDivisionError):
        called(np.random.default_rng(5), (40, 40, 40), "NN", (True,) * 3, (0, 0, 0), 0, 1)
    assert not [one for one in threading.enumerate() if one.name.startswith("tilewright")]
