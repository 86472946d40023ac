"""Launches one after another on a CUDA stream: between two events, held where they are timed."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tilewright.backend import Kernel
from tilewright.library.in_order import in_order
from tilewright.stencil import Launch


class Stream:
    """A device that tells in which order it was given what."""

    stream = 7

    def __init__(self):
        self.order = []

    def prepare(self, kernel, launch, arguments):
        self.order.append(f"prepare {kernel.entry}")
        return SimpleNamespace(
            lock=threading.Lock(), enqueue=lambda stream: self.order.append((kernel.entry, stream))
        )

    def hold(self, launches):
        self.order.append(f"hold {launches}")

    def between_events(self, enqueue, stream, after, keep, name):
        self.order.append("begin")
        enqueue()
        self.order.append("end")
        return name


@pytest.mark.parametrize("timed", [False, True])
def test_all_is_laid_out_before_the_stream_is_held(timed):
    live, grid = Stream(), Launch((1, 1), (32, 1))
    launches = [(Kernel(object(), name, 0.0), grid, ()) for name in ("copy", "gemm")]
    assert in_order(live, None, launches, None, (), "gemm", timed) == "gemm"
    assert live.order == [
        "prepare copy", "prepare gemm", *(["hold 2"] if timed else []),
        "begin", ("copy", 7), ("gemm", 7), "end",
    ]  # fmt: skip
