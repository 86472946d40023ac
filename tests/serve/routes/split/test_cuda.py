"""For CUDA: what the compiler makes of the passes, and the product on the emulated tensor cores."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.split import plainly
from tilewright.backend import Operand
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.sass import decode, read_cubin
from tilewright.sass.resources import resources
from tilewright.serve.routes.split.product import HopperProduct, Parts, Work
from tilewright.serve.tensor_cores import config_for
from tilewright.stencil import Variant, stencil
from tilewright.stencil.split import SCHEMES, Sources
from tilewright.stencil.split.sources import Operands, Stored
from tilewright.stencil.wgmma import ARITHMETICS, TensorVariant

SOURCES = Sources("cuda")
# griddepcontrol.wait on Hopper.
WAITS = "ACQBULK"
ORDERS = {
    "along the sides": Operands(Stored(300, 200, False), Stored(300, 200, False)),
    "along k": Operands(Stored(300, 200, True), Stored(300, 200, True)),
    "both ways": Operands(Stored(300, 200, False), Stored(300, 200, True)),
}
needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")


def compiled(source, arch):
    cubin = compile_cubin(source, arch)
    return read_cubin(cubin.code).kernel(cubin.lowered[source.entry])


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("orders", ORDERS)
def test_passes_read_and_write_wide_and_spill_nothing(arch, orders):
    """Four loads of 16 bytes are under way in each of 1024 threads before one is waited for."""
    of = ORDERS[orders]
    largest = SOURCES.largest(of)
    few = SOURCES.split(of, SCHEMES["fp16x3"], guarded=True)
    many = SOURCES.split(of, SCHEMES["bf16x6"], exponents="known", run_if=2)
    for source, stores in ((largest, 0), (few, 8), (many, 12)):
        text = judged(compiled(source, arch))
        loads = [i for i, line in enumerate(text) if re.search(r"\bLDG\.E\.128", line)]
        in_row = [j for i, j in zip(loads, loads[3:], strict=False) if j - i < 20]
        assert in_row
        # Four elements of two bytes: once for each part and step at least.
        assert sum(bool(re.search(r"\bSTG\.E\.64", line)) for line in text) >= stores


def judged(kernel):
    """Return the code of a kernel that spills nothing and leaves room for others."""
    used = resources(kernel)
    assert used.local_loads == used.local_stores == 0
    assert used.registers <= 64  # four blocks of 256 threads
    return [str(one) for one in decode(kernel.code, kernel.arch)]


@needs_nvrtc
@pytest.mark.parametrize("orders", ORDERS)
def test_what_may_begin_early_looks_at_nothing_before_it_may(orders):
    """`griddepcontrol.wait` comes before every load, what is known to be read only included."""
    of = ORDERS[orders]
    assert not of.launch.early
    assert of.second_launch.early
    assert of.small_launch(132).early
    for source in (
        SOURCES.split(of, SCHEMES["fp16x3"], guarded=True),
        SOURCES.split(of, SCHEMES["bf16x6"], exponents="known", run_if=2),
    ):
        kernel = compiled(source, "sm_90a")
        codes = [str(one) for one in decode(kernel.code, kernel.arch)]
        wait = next(i for i, line in enumerate(codes) if WAITS in line)
        assert not any(re.search(r"\b(LDG|LD|ATOM|RED)\b", line) for line in codes[:wait])


@needs_nvrtc
def test_what_is_transposed_is_written_wide():
    scheme = SCHEMES["tf32x3"]
    source = SOURCES.split(ORDERS["both ways"], scheme, transposed=(True, False))
    text = judged(compiled(source, "sm_90a"))
    stores = [line for line in text if re.search(r"\bSTG\.E", line)]
    wide = [line for line in stores if "STG.E.128" in line]
    assert len(wide) >= 8 * scheme.parts
    assert len(stores) - len(wide) <= 2  # an exponent, and the number of blocks done


@needs_nvrtc
def test_every_other_text_compiles():
    sources = [SOURCES.expand(Trans.C, wide=True, other=Trans.R)]
    sources += [SOURCES.model(SCHEMES["bf16x9"], Trans.N, Trans.T)]
    for source in sources:
        used = resources(compiled(source, "sm_90a"))
        assert used.local_loads == used.local_stores == 0
        assert used.shared_bytes <= 48 * 1024


@needs_nvrtc
def test_the_ieee_kernel_can_be_held_back():
    """One word more is looked at; nothing else changes."""
    family, device = stencil("simt_async"), architecture_spec("sm_90a")
    of = Variant(precision("s"), Trans.N, Trans.T)
    source = family.source(family.default(of, device), of, "cuda")
    free, held = (resources(compiled(one, "sm_90a")) for one in (source, source.run_if_zero()))
    assert held.registers <= free.registers + 4
    assert held.local_loads == held.local_stores == 0


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    if compiler() is None:
        pytest.skip("needs g++ or clang++")
    return EmulatedDevice(tmp_path_factory.mktemp("kernels"), words="wgmma_words.h")


def laid(parts, k_first, unit):
    """Return parts by columns, one behind the other, with their leading dimension and stride."""
    transposed = [p.T if k_first else p for p in parts]
    columns, rows = transposed[0].shape[0], transposed[0].shape[1]
    ld = -(-rows // unit) * unit
    whole = np.zeros((len(parts), columns, ld), transposed[0].dtype)
    for at, part in zip(whole, transposed, strict=True):
        at[:, :rows] = part
    return whole, ld, ld * columns


def test_tensor_cores_get_what_the_passes_leave(emulated):
    """Parts, exponents, a piece of k, the route: as the model of the chain gives them."""
    scheme, product = SCHEMES["fp16x3"], HopperProduct()
    assert product.serves(emulated, scheme)
    rng = np.random.default_rng(1)
    m, n, k, k0 = 19, 21, 96, 32
    a = rng.integers(-4000, 4001, (m, k)).astype(np.float32) * np.float32(2.0**-7)
    b = rng.integers(-1000, 1001, (k, n)).astype(np.float32)
    a[3] *= 64
    scales = plainly.exponents(a, 1), plainly.exponents(b, 0)
    parts_a = plainly.parts_of(a, scheme, scales[0][:, None])
    parts_b = plainly.parts_of(b, scheme, scales[1][None])
    # A lies along k, B along n: columns of the one are rows of op(A), of the other of op(B).
    half = [[p.astype(np.float16) for p in x] for x in (parts_a, parts_b)]
    words_a, lda, stride_a = laid([p.T for p in half[0]], True, 8)
    words_b, ldb, stride_b = laid(half[1], False, 8)
    sides = np.zeros(5 * (m + n) + 2, np.int32)
    sides[m + n : 2 * (m + n)] = np.concatenate(scales)
    old = rng.integers(-9, 10, (n, m)).astype(np.float32)
    memory_a, memory_b, memory_sides = map(emulated.upload, (words_a, words_b, sides))
    route = emulated.upload(np.array([1], np.int32))
    for wanted in (1, 2):
        c = emulated.upload(old)
        work = Work(
            scheme, m, n, k0, k, 2.0,
            Parts(memory_a, stride_a, lda, Trans.T, m + n),
            Parts(memory_b, stride_b, ldb, Trans.T, m + n + m),
            -1.0, Operand(c, 0, m), memory_sides, route, wanted,
        )  # fmt: skip
        emulated.launch(*product.step(emulated, work))
        got = np.empty_like(old)
        emulated.download(c, got)
        if wanted == 2:
            np.testing.assert_array_equal(got, old)
            continue
        x, y = a[:, k0:].astype(np.float64), b[k0:].astype(np.float64)
        right = 2 * (x @ y) - old.T
        size = 2 * np.abs(x) @ np.abs(y) + np.abs(old.T)
        assert np.max(np.abs(got.T - right) / size) < 2**-21


@pytest.mark.parametrize(("n", "least"), [(512, 32), (1024, 100), (4096, 500)])
def test_small_results_are_cut_into_small_tiles(n, least):
    """An H100 has 132 multiprocessors: tiles enough for most, where the result has them."""
    device = replace(architecture_spec("sm_90a"), multiprocessors=132)
    scheme = SCHEMES["fp16x3"]
    of = TensorVariant(precision("s"), Trans.N, Trans.T, arithmetic=ARITHMETICS[scheme.name])
    config = config_for(of, device, n, n, n, scheme.promote_k)
    assert config.integer("promote_k") == scheme.promote_k
    tiles = (n // config.integer("block_m")) * (n // config.integer("block_n"))
    assert tiles >= least
