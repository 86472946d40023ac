"""An exported library's launches beside those that `gemm` lays out."""

from __future__ import annotations

import hashlib

import numpy as np

from tests.export.calling import ROWS, nothing
from tilewright.backend import Kernel, Operand
from tilewright.precision import PRECISIONS
from tilewright.problem import Trans
from tilewright.serve.request import Request, column_major_call
from tilewright.serve.routes.lay_out import lay_out
from tilewright.stencil import Source, TensorMap

# Of copies, as `expected` lays them out.
POOL = 4 << 40


class PretendedGPU:
    """What `direct` asks of a device; compiling hands the source back, loading the code."""

    dialect = "cuda"

    def __init__(self, spec, key=""):
        self.spec, self.portfolio_key = spec, key

    def compile(self, source):
        return Kernel(source, source.entry, 0.0)

    def load(self, code, text):
        return Kernel(code, code.symbol, 0.0)


class Space:
    """Where copies lie, from the first one on."""

    def __init__(self):
        self.size = 0

    def need(self, name, size, *, zeroed=False):
        at = self.size
        self.size += -(-size // 256) * 256
        return POOL + at


def expected(gpu, call):
    """Return what `gemm` would launch for arrays on a device, in order; copies are at `POOL`."""
    letter, order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = call
    alpha, beta = complex(*alpha), complex(*beta)
    if 0 in (m, n) or ((k == 0 or alpha == 0) and beta == 1):
        return []
    row = order == ROWS
    placed = tuple((Operand(at, 0, ld), row) for at, ld in ((a, lda), (b, ldb), (c, ldc)))
    request = Request(
        PRECISIONS[letter], m, n, k, alpha, beta, Trans.parse(ta), Trans.parse(tb), None, None, None
    )
    problem, made, _ = column_major_call(request, placed)
    return lay_out(gpu, problem, made, "", Space()).steps


def bits(arguments, pool):
    """Return arguments as the driver reads them, as integers, with copies where they are.

    Numbers begin at the first byte.
    """
    return [
        int.from_bytes(x.tobytes(), "little")
        if isinstance(x, np.generic)
        else x + (pool - POOL if x >= POOL else 0)
        for x in arguments
    ]


def as_made(tensor: TensorMap):
    """Return a tensor map as the fake driver remembers it."""

    def padded(numbers, count):
        return [*numbers, *[0] * (count - len(numbers))]

    return {
        "address": tensor.memory + tensor.offset,
        "type": {"float32": 7, "float64": 8}[tensor.element],
        "rank": len(tensor.sizes),
        "swizzle": {0: 0, 128: 3}[tensor.swizzle],
        "promotion": 2,
        "sizes": padded(tensor.sizes, 3),
        "strides": padded(tensor.strides, 2),
        "box": padded(tensor.box, 3),
    }


def compare(exported, gpu, call, stream, said):
    """Compare a call's launches with those of `gemm`; return the names of what copies operands.

    The same machine code, grid, shared memory, arguments and tensor maps, bit for bit.  Where
    neither A nor B is read the library launches a kernel without tensor maps.
    """
    made = expected(gpu, call)
    if not made:
        assert said == nothing(0)
        return []
    copies = [one for one in made if _symbol(one[0]) == "realign"]
    pieces = made[len(copies) :]
    plans = [planned.on(gpu.spec.multiprocessors) for _, planned, _ in pieces]
    if any(wanted.grid[1] >= 1 << 16 for wanted in plans):
        assert said["status"] == 5
        return []
    assert said["status"] == 0, call
    launches, names = iter(said["launches"]), [one["name"] for one in said["copies"]]
    pool = check_copies(exported, said["copies"], copies, said["launches"], stream)
    reads = call[6] != 0 and complex(*call[7]) != 0
    for (kernel, _, arguments), wanted in zip(pieces, plans, strict=True):
        _compare_piece(exported, kernel, wanted, arguments, launches, pool, stream, reads)
    assert not reads or not list(launches)
    return names


def _symbol(kernel):
    return getattr(kernel.handle, "symbol", None) or kernel.handle.entry


def _compare_piece(exported, kernel, wanted, arguments, launches, pool, stream, reads):
    """Compare the launches of a product, or of a piece of k of it."""
    launch = next(launches)
    assert launch["arguments"][:16] == bits(arguments[:16], pool)
    assert launch["stream"] == stream
    if not reads:
        assert launch["maps"][0]["rank"] == 0
        return
    check_code(exported, launch, kernel, wanted)
    code = exported.kernels.codes[launch["name"]].code
    maps = [as_made(x) for x in arguments[16:]]
    for one in maps:
        one["address"] += pool - POOL if one["address"] >= POOL else 0
    assert launch["maps"][: len(maps)] == maps
    behind = wanted.second if code.second else None
    assert (launch["workspace"] > 0) == (code.part_bytes > 0 and not (code.second and not behind))
    if behind is not None:
        second = next(launches)
        assert second["symbol"] == code.second
        assert second["grid"] == [*behind.grid, 1]
        assert second["block"] == [*behind.block, 1]
        assert (second["shared_bytes"], second["early"], second["stream"]) == (0, 1, stream)
        assert second["arguments"] == launch["arguments"]
        assert second["workspace"] == launch["workspace"]


def compare_batch(exported, gpu, call, steps, stream, said):
    """Compare a batch's launches with those of `gemm`; return whether one computes all products."""
    letter, order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = call
    step_a, step_b, step_c, count = steps
    of = PRECISIONS[letter]
    # Where later products are not aligned, none is.
    a, b = (
        at + of.element_bytes * (at % 16 == 0 and step * of.element_bytes % 16 > 0)
        for at, step in ((a, step_a), (b, step_b))
    )
    placed = tuple((Operand(at, 0, ld), order == ROWS) for at, ld in ((a, lda), (b, ldb), (c, ldc)))
    ops = Trans.parse(ta), Trans.parse(tb)
    request = Request(of, m, n, k, complex(*alpha), complex(*beta), *ops, None, None, None)
    problem, made, exchanged = column_major_call(request, placed)
    sides = (step_b, step_a) if exchanged else (step_a, step_b)
    repeat = count, *sides, step_c
    laid = lay_out(gpu, problem, made, "", Space(), repeats=(repeat,))
    assert said["status"] == 0
    found = said["launches"]
    if laid.repeats:
        kernel, planned, arguments = laid.steps[-1]
        check_code(exported, found[-1], kernel, planned.on(gpu.spec.multiprocessors))
        assert found[-1]["arguments"][13] == c + (count - 1) * step_c * of.element_bytes
        return False
    assert len(found) == len(laid.steps)
    for one, (kernel, planned, arguments) in zip(found, laid.steps, strict=True):
        check_code(exported, one, kernel, planned.on(gpu.spec.multiprocessors))
        numbers = bits(arguments, 0)
        # Offsets are in the addresses there.
        for at in (5, 8, 13):
            first = one["arguments"][at] - numbers[at] - numbers[at + 1] * of.element_bytes
            assert first in (0, -of.element_bytes), "laid out as not aligned"
            one["arguments"][at : at + 2] = numbers[at : at + 2]
        assert one["arguments"] == numbers + [0] * (20 - len(numbers))
        assert numbers[16:19] == list(repeat[1:])
    return True


def check_code(exported, launch, kernel, wanted):
    """Compare a launch's machine code and grid with a kernel of Python's."""
    code = exported.kernels.codes[launch["name"]].code
    handle = kernel.handle
    if isinstance(handle, Source):
        assert code.digest == hashlib.sha256(handle.identity.encode()).hexdigest()
        assert launch["shared_bytes"] == handle.dynamic_shared_bytes
    else:
        assert code.digest == handle.digest
        assert launch["shared_bytes"] == handle.shared_bytes
    assert launch["symbol"] == code.symbol
    assert launch["grid"] == [*wanted.grid, wanted.batch]
    assert launch["block"] == [*wanted.block, 1]
    assert not launch["early"]


def check_copies(exported, found, wanted, launches, stream):
    """Compare the launches that copy operands; return where the first copy is."""
    assert len(found) == len(wanted)
    if not wanted:
        return POOL
    pool = found[0]["arguments"][6]
    assert pool % 256 == 0
    parts = [
        one["grid"][0] * exported.kernels.codes[one["name"]].code.part_bytes
        for one in launches
        if one["workspace"] and one["symbol"] == "gemm"
    ]
    if parts:  # behind all parts of sums
        workspace = next(one["workspace"] for one in launches if one["workspace"])
        assert pool == workspace + 16384 + -(-max(parts) // 256) * 256
    for one, (kernel, planned, arguments) in zip(found, wanted, strict=True):
        check_code(exported, one, kernel, planned)
        assert one["arguments"][:8] == bits(arguments, pool)
        assert one["stream"] == stream
    return pool
