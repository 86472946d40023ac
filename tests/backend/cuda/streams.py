"""A CUDA device that only tells in which order its stream was given what."""

from __future__ import annotations

import threading
from types import SimpleNamespace


class RecordedStream:
    """Compiles, lays out and enqueues nothing, and says so."""

    stream = 7

    def __init__(self):
        self.order = []

    def compile(self, source):
        return SimpleNamespace(entry=source.entry)

    def prepare(self, kernel, launch, arguments):
        self.order.append(f"prepare {kernel.entry}")

        def enqueue(stream):
            assert stream == self.stream
            self.order.append(kernel.entry)

        return SimpleNamespace(lock=threading.Lock(), enqueue=enqueue)

    def between_events(self, enqueue, stream, after, keep, name, held=0):
        self.order += [f"held for {held}"] if held else []
        self.order.append("begin")
        enqueue()
        self.order.append("end")
        return SimpleNamespace(nanoseconds=lambda: 1)
