"""Who computes what, as the kernels' text says it in 32 bits: the same numbers as `exact`."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stencil.emulator import compiler
from tests.stencil.portable_harness import variant
from tests.stencil.wgmma.harness import variant as tensor_variant
from tests.stencil.wgmma.test_stencil import EVERY
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.reschedule.hazards import hazards
from tilewright.sass import decode, read_cubin
from tilewright.sass.instruction import Instruction
from tilewright.stencil import Source, stencil
from tilewright.stencil.source_files import read_source
from tilewright.stencil.work import MOST_SINGLE

HOPPER = architecture_spec("sm_90a")
MOST_BLOCKS = 4064  # that a workspace has flags for
LEAST = 8

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")
needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")

# The text as it is, with sizes given rather than computed, and its answers written to memory.
HOST = """
#define HELPER static inline
typedef long long isize;
struct { unsigned int x; } gridDim;
struct work { unsigned int tiles, steps; };
HELPER unsigned int tiles_of_all(const work *x) { return x->tiles; }
HELPER unsigned int steps_of_tile(const work *x) { return x->steps; }
""" + read_source("asynchronous/division.cuh") + """
extern "C" void ask(unsigned int tiles, unsigned int steps, unsigned int blocks, unsigned int *to)
{
    gridDim.x = blocks;
    const work all = {tiles, steps};
    const division d = divide(&all);
    *to++ = d.steps, *to++ = d.whole, *to++ = d.shared, *to++ = d.workers;
    for (unsigned int worker = 0; d.shared && worker <= d.workers; ++worker)
        *to++ = share_at(d, worker);
}
"""  # fmt: skip


@dataclass(frozen=True)
class Division:
    """Who computes what, in steps of a tile: the text's `division`."""

    steps: int  # of one tile of C
    whole: int  # tiles that one block computes each
    shared: int  # tiles behind them that are divided among the workers
    workers: int  # blocks with a share of these

    def share_at(self, worker: int) -> int:
        """Return where a worker's share begins, in steps of all shared tiles."""
        return self.shared * self.steps * worker // self.workers


Ask = Callable[[int, int, int], tuple[Division, list[int]]]


def asked(stream_k: int, most: int | None, folder: Path) -> Ask:
    """Return the text's answers for tiles, steps and blocks: who has what, where shares begin."""
    text, built = folder / f"{stream_k}.cc", folder / f"{stream_k}.so"
    text.write_text(HOST)
    macros = [f"-DSTREAM_K={stream_k}", f"-DLEAST_STEPS={LEAST}"]
    macros += [f"-DMOST_SHARES={most}"] if most else []
    found = compiler()
    assert found is not None
    options = ["-O1", "-w", "-fPIC", "-shared", *macros]
    subprocess.run([found, *options, str(text), "-o", str(built)], check=True)
    ask = ctypes.CDLL(str(built)).ask

    def answer(tiles: int, steps: int, blocks: int) -> tuple[Division, list[int]]:
        to = (ctypes.c_uint32 * (5 + MOST_BLOCKS))()
        ask(*(ctypes.c_uint32(x) for x in (tiles, steps, blocks)), to)
        d = Division(*to[:4])
        return d, to[4 : 5 + d.workers] if d.shared else []

    return answer


Kind = tuple[int, int | None]  # stream_k, and how many shares a tile has at most


@pytest.fixture(scope="module", params=[(0, None), (1, None), (2, None), (1, MOST_SINGLE)], ids=str)
def text(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Kind, Ask]:
    if compiler() is None:
        pytest.skip("needs g++ or clang++")
    return request.param, asked(*request.param, tmp_path_factory.mktemp("division"))


def exact(kind: Kind, tiles: int, steps: int, blocks: int) -> Division:
    """Return what Python says of so many tiles."""
    stream_k, most = kind
    rest, shared = tiles % blocks, 0
    if stream_k and rest and steps:
        shared = rest + (blocks if stream_k > 1 and tiles > blocks else 0)
    if shared * steps > 2**32 - 1:
        shared = 0
    each = min(max(1, steps // LEAST), most or steps + 1)
    return Division(steps, tiles - shared, shared, min(blocks, shared * each))


# Few steps as well as those around the most that are shared.
STEPS = st.one_of(st.integers(0, 40), st.integers(0, 2**20), st.integers(2**18, 2**32 - 1))


@given(
    tiles=st.one_of(st.integers(0, 40), st.integers(0, 2**20)),
    steps=STEPS,
    blocks=st.one_of(st.integers(1, 9), st.integers(1, MOST_BLOCKS)),
)
def test_the_text_divides_as_python_does(
    text: tuple[Kind, Ask], tiles: int, steps: int, blocks: int
) -> None:
    kind, answer = text
    found, shares = answer(tiles, steps, blocks)
    wanted = exact(kind, tiles, steps, blocks)
    assert found == wanted
    if found.shared:
        assert shares == [wanted.share_at(worker) for worker in range(found.workers + 1)]


@given(blocks=st.integers(3, MOST_BLOCKS), rest=st.integers(0, MOST_BLOCKS), less=st.integers(0, 3))
def test_as_many_steps_as_32_bits_hold_are_shared(
    text: tuple[Kind, Ask], blocks: int, rest: int, less: int
) -> None:
    """One step of each tile more, and all tiles are whole: never a number that is cut off."""
    kind, answer = text
    tiles = 2 * blocks + 2 + rest % (blocks - 2)  # two waves, and at least two tiles to share
    shared = exact(kind, tiles, 1, blocks).shared
    most = (2**32 - 1) // max(shared, 1)
    found, shares = answer(tiles, most - less, blocks)
    assert found == exact(kind, tiles, most - less, blocks)
    assert found.shared == shared == (0 if not kind[0] else tiles - found.whole)
    assert shares == [found.share_at(worker) for worker in range(len(shares))]
    if kind[0]:
        beyond, _ = answer(tiles, most + 1, blocks)
        assert beyond == exact(kind, tiles, most + 1, blocks)
        assert (beyond.whole, beyond.shared, beyond.workers) == (tiles, 0, 0)


def code_of(source: Source) -> list[Instruction]:
    """Return what the compiler makes of a kernel."""
    cubin = compile_cubin(source, HOPPER.name)
    kernel = read_cubin(cubin.code).kernel(cubin.lowered[source.entry])
    return decode(kernel.code, kernel.arch)


def called(code: list[Instruction]) -> list[str]:
    return [str(one) for one in code if one.mnemonic == "CALL"]


# Little code, with the same divisions as blocks of any size.
SMALL = {"block_m": 32, "block_n": 32, "tile_m": 4, "tile_n": 4, "block_k": 16, "unroll_k": 16}


@pytest.mark.every(3)
@needs_nvrtc
@pytest.mark.parametrize("stream_k", [1, 2])
@pytest.mark.parametrize(
    ("name", "of", "changes"),
    [("simt_async", "sNN", SMALL), ("simt_async", "cTC", SMALL), ("mma_f64", "dNT", {})],
)
def test_nothing_is_called_where_blocks_share(
    name: str, of: str, changes: dict[str, int], stream_k: int
) -> None:
    """A call would keep the scheduler from renaming registers, a hazard from everything else."""
    family, made = stencil(name), variant(of)
    config = family.default(made, HOPPER).replace(**changes, persistent=1, cluster_k=1)
    code = code_of(family.source(config.replace(stream_k=stream_k), made, "cuda"))
    assert not called(code)
    if name == "simt_async":
        assert not hazards(code)


@needs_nvrtc
@pytest.mark.parametrize("stream_k", [1, 2])
def test_nothing_is_called_where_tensor_cores_share(stream_k: int) -> None:
    family, made = stencil("wgmma"), tensor_variant("TN", EVERY["f16-f32"])
    config = family.default(made, HOPPER).replace(cluster_m=1, cluster_n=1, stream_k=stream_k)
    assert not called(code_of(family.source(config, made, "cuda")))
