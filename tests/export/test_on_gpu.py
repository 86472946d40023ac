"""An exported library on a GPU: the bits of `gemm`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.export.building import needs_c
from tests.export.caller import GEMM, scalar
from tilewright.backend import LiveDevice, Operand
from tilewright.bench.benchmarks.blas_calls import cblas_call, served_library
from tilewright.cli.app import run as tilewright
from tilewright.export.compiling import link
from tilewright.precision import PRECISIONS
from tilewright.problem import Trans
from tilewright.serve.calls import launch_gemm, planned, wanted_of
from tilewright.serve.request import Request

pytestmark = [needs_c, pytest.mark.gpu, pytest.mark.timeout(900)]

ROWS, COLUMNS = 101, 102
LETTERS = "sdcz"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ctypes.CDLL]:
    """Return what the command exports for a device, which is compiled once."""

    @lru_cache(maxsize=1)
    def library_of(device: str) -> ctypes.CDLL:
        folder = tmp_path_factory.mktemp("exported") / "files"
        arguments = ["export", "--device", device, "--precision", ",".join(LETTERS)]
        assert tilewright([*arguments, "--format", "c", "-o", str(folder)]) == 0
        made = folder / "libtilewright-gemm.so"
        link(sorted((folder / "c").glob("*.c")), made, "-shared")
        return _opened(made)

    return library_of


@pytest.fixture
def library(cuda: LiveDevice, built: Callable[[str], ctypes.CDLL]) -> ctypes.CDLL:
    """The library for the first CUDA device."""
    return built(cuda.id)


def _opened(path: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(str(path))
    found.tw_gemm.argtypes = [ctypes.c_char, *GEMM]
    found.tw_gemm_strided_batched.argtypes = [ctypes.c_char, *GEMM, *[ctypes.c_int64] * 4]
    found.tw_strerror.restype = ctypes.c_char_p
    return found


def _call(rng: np.random.Generator) -> dict[str, Any]:
    """Draw a call, often of whole tiles and aligned columns, now and then one worth copies."""
    letter = str(rng.choice(list(LETTERS)))
    ta, tb = (str(x) for x in rng.choice(list("NTC"), 2))
    sizes = [int(x) for x in np.exp(rng.uniform(0, 7, 3))]
    if rng.random() < 0.1:
        sizes[int(rng.integers(3))] *= 20
    elif rng.random() < 0.2:
        letter = str(rng.choice(["s", "c"]))
        sizes = [int(x) for x in rng.integers(2000, 3500, 3)]
    if rng.random() < 0.5:
        sizes = [-(-x // 64) * 64 for x in sizes]
    pad = int(rng.choice([0, 0, 1, 2, 64]))
    m, n, k = sizes
    order = int(rng.choice([ROWS, COLUMNS]))
    lds = []
    for rows, columns, op in ((m, k, ta), (k, n, tb), (m, n, "N")):
        stored = (columns, rows) if op != "N" else (rows, columns)
        lds.append(stored[order == ROWS] + pad)
    return {
        "letter": letter, "order": order, "ta": ta, "tb": tb, "m": m, "n": n, "k": k, "lds": lds,
        "begin": int(rng.choice([0, 0, 0, 1])),
        "alpha": complex(rng.choice([1, -0.5, 0])), "beta": complex(rng.choice([0, 1, 0.25])),
    }  # fmt: skip


def test_exported_calls_give_gemms_bits(cuda, library):
    """200 random calls, of kernels for operands as they lie and for copies."""
    rng = np.random.default_rng(20)
    launches = set()
    for call in [_call(rng) for _ in range(200)]:
        of = PRECISIONS[call["letter"]]
        (m, n, k), lds = (call[x] for x in "mnk"), call["lds"]
        elements = [
            ld * (columns if call["order"] == COLUMNS else rows) + call["begin"]
            for ld, (rows, columns) in zip(
                lds,
                (
                    (m, k) if call["ta"] == "N" else (k, m),
                    (k, n) if call["tb"] == "N" else (n, k),
                    (m, n),
                ),
                strict=True,
            )
        ]
        arrays = [_numbers(rng, count, of.dtype_name) for count in elements]
        a, b, ours, theirs = (cuda.upload(x) for x in (*arrays, arrays[2]))
        try:
            first = call["begin"] * of.element_bytes
            row = call["order"] == ROWS
            placed = tuple(
                (Operand(x + first, 0, ld), row) for x, ld in zip((a, b, ours), lds, strict=True)
            )
            ops = Trans.parse(call["ta"]), Trans.parse(call["tb"])
            request = Request(of, m, n, k, call["alpha"], call["beta"], *ops, None, None, None)
            with cuda.current():
                status = library.tw_gemm(
                    call["letter"].encode(), call["order"], call["ta"].encode(),
                    call["tb"].encode(), m, n, k, _pair(call, "alpha"), a + first, lds[0],
                    b + first, lds[1], _pair(call, "beta"), theirs + first, lds[2], cuda.stream,
                )  # fmt: skip
            assert status == 0, (call, library.tw_strerror(status))
            if not (call["alpha"] == 0 and call["beta"] == 1):
                launch_gemm(cuda, request, placed).wait()
                launches.add(len(planned(cuda, wanted_of(request, placed)).laid.steps))
            found = [np.empty_like(arrays[2]) for _ in "12"]
            for memory, array in zip((ours, theirs), found, strict=True):
                cuda.download(memory, array)
            assert np.array_equal(*(x.view(np.uint8) for x in found)), call
        finally:
            for memory in (a, b, ours, theirs):
                cuda.free(memory)
    with cuda.current():
        assert library.tw_unload() == 0
    assert max(launches) > 1, "some operands are copied first"


def test_exported_batches_give_gemms_bits(cuda, library):
    """60 random batches, some with an operand in common, of sides above 1: their order is told."""
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(21)
    for _ in range(60):
        letter = str(rng.choice(list(LETTERS)))
        of = PRECISIONS[letter]
        ta, tb = (str(x) for x in rng.choice(list("NNTC"), 2))
        m, n, k = (int(x) for x in np.exp(rng.uniform(0.7, 5.5, 3)))
        many, pad = int(rng.choice([2, 7, 200])), int(rng.choice([0, 0, 1, 4]))
        same = str(rng.choice(["", "", "a", "b"]))
        shapes = (m, k) if ta == "N" else (k, m), (k, n) if tb == "N" else (n, k), (m, n)
        arrays = [
            cupy.asarray(
                _numbers(rng, count * rows * (columns + pad), of.dtype_name)
            ).reshape(count, rows, columns + pad)
            for (rows, columns), count in zip(
                shapes, (1 if same == "a" else many, 1 if same == "b" else many, many), strict=True
            )
        ]  # fmt: skip
        a, b, theirs = arrays
        ours = theirs.copy()
        views = [x[..., : shape[1]] for x, shape in zip((a, b, ours), shapes, strict=True)]
        tw.gemm(*views, alpha=-0.5, beta=0.25, trans_a=ta, trans_b=tb)
        steps = [0 if len(x) == 1 else x.shape[1] * x.shape[2] for x in arrays]
        status = library.tw_gemm_strided_batched(
            letter.encode(), ROWS, ta.encode(), tb.encode(), m, n, k, scalar(letter, (-0.5, 0)),
            a.data.ptr, a.shape[2], b.data.ptr, b.shape[2], scalar(letter, (0.25, 0)),
            theirs.data.ptr, theirs.shape[2], cupy.cuda.get_current_stream().ptr, *steps, many,
        )  # fmt: skip
        assert status == 0, library.tw_strerror(status)
        assert bool(cupy.array_equal(ours, theirs)), (letter, ta, tb, m, n, k, many, pad, same)


def _numbers(rng: np.random.Generator, count: int, dtype: str) -> np.ndarray:
    numbers = rng.standard_normal(count).astype(dtype)
    if np.dtype(dtype).kind == "c":
        numbers += (1j * rng.standard_normal(count)).astype(dtype)
    return numbers


def _pair(call: dict[str, Any], name: str) -> Any:
    return scalar(call["letter"], (call[name].real, call[name].imag))


def test_blas_calls_give_gemms_bits(cuda):
    """Products in the host's memory, each one on the device."""
    cupy = pytest.importorskip("cupy")
    library, rng = served_library(cuda.id), np.random.default_rng(21)
    for letter, of in ((letter, PRECISIONS[letter]) for letter in LETTERS for _ in range(10)):
        m, n, k = (4 * int(x) for x in np.exp(rng.uniform(0, 6, 3)))
        a, b = (
            rng.uniform(-1, 1, (*sides, of.words)).astype(of.real_name).view(of.dtype)[..., 0]
            for sides in ((m, k), (k, n))
        )
        c = np.full((m, n), np.nan, of.dtype)
        cblas_call(library, letter, a, b, c)()
        with cupy.cuda.Device(int(cuda.id.partition(":")[2])):
            assert np.array_equal(c, tw.gemm(cupy.asarray(a), cupy.asarray(b)).get())
