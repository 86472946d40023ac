"""Launches of factorisations and solutions, done by NumPy: what is launched, where, in what order.

Kernels by themselves are of tests/stencil/lu.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.problem import Trans
from tilewright.serve.lu import factor, solve, steps
from tilewright.serve.lu.streams import Place
from tilewright.stencil.lu import TOP_OF_PIVOTS, Way

LIVE = SimpleNamespace(spec=SimpleNamespace(multiprocessors=132))
_RANGE = 45  # of made-up addresses, in bits


def pretend(monkeypatch):
    """Let launches be noted instead of laid out."""
    for module in (factor, solve, steps):
        monkeypatch.setattr(module, "kernel_of", lambda live, source: source)
    plain, apart = Place(1, 2, 0, 32, 100), Place(3, 4, 16, 16, 116)
    alone = apart._replace(panels=0)
    on = SimpleNamespace(plain=plain, apart=apart, alone=alone, whole=0, left=5)
    monkeypatch.setattr(factor, "streams_of", lambda live: on)
    for module in (factor, solve):
        monkeypatch.setattr(module, "Steps", _Noted)
        monkeypatch.setattr(module, "Plan", lambda live, made, space, name: (made, space))


class _Noted(steps.Steps):
    def multiply(self, c, a, b, sizes, *, adds=False, trans_a=Trans.N, **_):
        if all(sizes):
            self.made.append((None, None, (c, a, b, sizes, adds, trans_a)))


class Queues:
    """Streams with what is enqueued on them: launches, and how far others have to be before."""

    def __init__(self, on):
        self.__dict__.update(vars(on))
        self.queues = {stream: [] for stream in range(6)}

    def after(self, stream, other):
        """Let a stream wait for another one."""
        if stream != other:
            self.queues[stream].append((other, len(self.queues[other])))

    def begin(self, plan, stream):
        """Enqueue launches."""
        if plan is not None:
            self.queues[stream].extend(plan[0])

    def launches(self, first):
        """Yield all, those of streams that are named first as early as they may run."""
        done = dict.fromkeys(self.queues, 0)

        def is_ready(stream):
            queue = self.queues[stream]
            if done[stream] == len(queue):
                return False
            head = queue[done[stream]]
            return len(head) > 2 or done[head[0]] >= head[1]

        while ready := [stream for stream in first if is_ready(stream)]:
            stream = ready[0]
            head = self.queues[stream][done[stream]]
            done[stream] += 1
            if len(head) > 2:
                yield head
        assert all(done[stream] == len(queue) for stream, queue in self.queues.items())


def order_of(pivots, rows):
    """Return the order of rows that exchanges leave."""
    order = np.arange(rows)
    for k, other in enumerate(pivots):
        order[[k, other]] = order[[other, k]]
    return order


class Machine:
    """Memory at made-up addresses, by their bases, and what runs on it."""

    def __init__(self, dtype, width, memory):
        self.dtype, self.width = np.dtype(dtype), width
        self.memory = {at: np.asarray(x).view(np.uint8).reshape(-1) for at, x in memory.items()}

    def _from(self, address):
        base = address >> _RANGE << _RANGE
        return self.memory[base][address - base :]

    def ints(self, address, count):
        return self._from(address)[: 4 * count].view(np.int32)

    def matrix(self, address, ld, rows, columns):
        size = self.dtype.itemsize
        found = self._from(address)
        assert ((rows - 1) * ld + columns) * size <= len(found)
        return as_strided(found[:size].view(self.dtype), (rows, columns), (ld * size, size))

    def part(self, part, rows, columns):
        return self.matrix(part.address, part.ld, rows, columns)

    def run(self, made):
        for source, _, arguments in made:
            if source is None:
                self._multiply(*arguments)
            else:
                getattr(self, source.entry)(source.defines, *map(_plain, arguments))

    def _multiply(self, c, a, b, sizes, adds, op):
        m, n, k = sizes
        x = self.part(a, k, m).T if op.transposed else self.part(a, m, k)
        product = (x.conj() if op.conjugated else x) @ self.part(b, k, n)
        target = self.part(c, m, n)
        target[...] = target - product if adds else product

    def lu_panel(
        self, _, rows, width, a, ld, top, inverse, own, orders, apart, many, begun, pivots, before,
        *__,
    ):  # fmt: skip
        from scipy.linalg import lapack

        here = self.matrix(a, ld, rows, width)
        here[...], found, _ = lapack.get_lapack_funcs("getrf", dtype=self.dtype)(here)
        lower = np.eye(self.width, dtype=self.dtype)
        lower[:width, :width] += np.tril(here[:width], -1)
        self.matrix(inverse, self.width, self.width, self.width)[...] = np.linalg.inv(lower)
        order = order_of(found, rows)
        self._say(own, order, width)
        for level in range(many):
            whole = self.ints(orders + 4 * level * apart, rows)
            if not begun >> level & 1:
                whole[:] = np.arange(rows)
            whole[:] = whole[order]
        self.ints(pivots, width)[:] = found + before

    def _say(self, to, order, top):
        """Write what rows.cuh reads of an order, and nothing else."""
        said = self.ints(to, len(order))
        said[:top] = order[:top]
        moved = [k for k in order[:top] if k >= top]
        said[moved] = order[moved]

    def lu_rows(self, defines, a, ld, columns, top, order, to, to_ld):
        first = self.ints(order, top)
        said = self.ints(order, max(top, int(first.max()) + 1))
        here = self.matrix(a, ld, len(said), columns)
        old = here.copy()
        moved = [k for k in first if k >= top]
        if defines["WAY"] == Way.OUT:
            self.matrix(to, to_ld, top, columns)[...] = old[first]
        elif defines["WAY"] == Way.IN_PLACE:
            here[:top] = old[first]
        if defines["WAY"] == Way.BACK:
            here[first] = old[:top]
            here[said[moved]] = old[moved]
        else:
            here[moved] = old[said[moved]]

    def lu_order(self, _, n, pivots, orders):
        found = self.ints(pivots, n)
        for first in range(0, n, TOP_OF_PIVOTS):
            here = found[first : first + TOP_OF_PIVOTS] - first
            self._say(
                orders + 4 * n * (first // TOP_OF_PIVOTS), order_of(here, n - first), len(here)
            )

    def lu_invert(self, defines, n, a, ld, inverses):
        width, size = self.width, self.dtype.itemsize
        for first in range(0, n, width):
            many = min(width, n - first)
            part = self.matrix(a + (first * ld + first) * size, ld, many, many)
            whole = np.eye(width, dtype=self.dtype)
            whole[:many, :many] = (
                np.triu(part) if defines["UPPER"] else np.tril(part, -1) + np.eye(many)
            )
            to = inverses + first * width * size
            self.matrix(to, width, width, width)[...] = np.linalg.inv(whole)


def _plain(x):
    return x.item() if isinstance(x, np.generic) else x
