"""NumPy's matrices travel to a device and back, to where kernels are told that they are."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.serve.lu import arrays


class Device:
    """Memory that is addressed by numbers, as CUDA's is."""

    id, stream = "cuda:0", 7

    def __init__(self):
        self.memory, self.writes = {}, 0

    def current(self):
        return nullcontext()

    def allocate(self, size):
        address = 4096 * (1 + len(self.memory))
        self.memory[address] = bytearray(size)
        return address

    def free(self, address):
        del self.memory[address]

    def write(self, address, array, offset=0):
        self.writes += 1
        self.memory[address][offset : offset + array.nbytes] = array.tobytes()

    def download(self, address, array, offset=0):
        held = self.memory[address][offset : offset + array.nbytes]
        array[...] = np.frombuffer(held, array.dtype).reshape(array.shape)


@pytest.mark.parametrize("n", [1, 5, 130])
def test_a_small_matrix_comes_back_from_where_kernels_found_it(monkeypatch, n):
    device = Device()
    told = []
    found = SimpleNamespace(bytes=64, start=lambda *where: told.append(where))
    monkeypatch.setattr(arrays, "factorisation", lambda *about: found)
    monkeypatch.setattr(arrays, "_first_zero", lambda live, memory, stream: 0)
    a = np.random.default_rng(n).standard_normal((n, n))
    lu, pivots, zero = arrays.factor_numpy(device, a)
    assert (lu == a).all()
    assert (pivots == 0).all()
    assert zero == 0
    assert [type(x) for x in told[0]] == [int] * 4
    assert device.writes == 1
    assert not device.memory
