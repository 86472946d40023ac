"""Portfolios of drawn kernels: every kind of geometry, launch modes that are and are not there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tilewright.portfolio import Code, Portfolio
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.model import TERMS
from tilewright.portfolio.portfolio import Copying, write_portfolio
from tilewright.precision import PRECISIONS
from tilewright.problem import transposes_of
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.geometry import Geometry, Mode, SplitK
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.stencil.simt_async import SimtAsync

DEVICE, MULTIPROCESSORS = "A GPU of tests", 132
KERNELS = 9

Sizes = tuple[int, int, int]


def _geometry(rng: np.random.Generator, kind: int, variant: Variant) -> Geometry:
    """Return one of five kinds: plain, clusters, persistent, split-K, TMA."""
    draw = rng.choice
    tile_m, tile_n = (int(draw([32, 64, 96, 128, 256])) for _ in range(2))
    common = {
        "tile_k": int(draw([8, 16, 32])),
        "stages": int(draw([1, 2, 3, 4])),
        "resident": int(draw([1, 2, 3, 4])),
        "vector_along_k": bool(draw([0, 1])),
        "stages_k": int(draw([0, 2048])),
    }
    threads = (int(draw([64, 128, 256])), 1)
    stays = {"persistent": True, "stream_k": int(draw([0, 1, 2])), "tree": bool(draw([0, 1]))}
    if kind == 1:
        cluster = {"cluster_k": int(draw([1, 2, 4, 8]))}
        if draw([0, 1]):
            cluster |= {"cluster_m": 2, "cluster_n": int(draw([1, 2]))}
        if draw([0, 1]):
            return Geometry(tile_m, tile_n, threads, folded=False, **cluster, **common)
        return Geometry(tile_m, tile_n, threads, **cluster, **common)
    if kind == 2:
        return Geometry(tile_m, tile_n, threads, **stays, **common)
    if kind == 3:
        cut = SplitK(float(draw([512, 1536.5])), 4 * tile_m * tile_n, 4, 256)
        return Geometry(tile_m, tile_n, threads, split_k=cut, **common | {"stages_k": 0})
    if kind == 4:
        family = _family(kind, variant)
        common |= {"tma": True, "tma_line_bytes": family.line_bytes, "stages_k": 2**63 - 1}
        return Geometry(tile_m, tile_n, threads, **(stays if draw([0, 1]) else {}), **common)
    return Geometry(tile_m, tile_n, threads, **common)


def _family(kind: int, variant: Variant) -> SimtAsync:
    return MmaF64() if kind == 4 and variant.precision.letter in "dz" else SimtAsync()


def _modes(rng: np.random.Generator, geometry: Geometry) -> Iterator[Mode]:
    yield Mode()
    for number in range(1, 8):
        mode = Mode(bool(number & 1), bool(number & 2), bool(number & 4))
        if rng.random() < 0.6 and not (geometry.tma and (mode.scalar or mode.clamped)):
            yield mode


def drawn(
    folder: Path, letter: str, seed: int, only_tma: str = "", copying: Copying | None = None
) -> Portfolio:
    """Write a portfolio whose kernels are fast at different sizes.

    Parameters
    ----------
    folder : path
        Where to.
    letter : str
        The precision.
    seed : int
        Another one draws other kernels.
    only_tma : str
        Transposes of which every kernel reads its operands by tensor maps.
    copying : Copying, optional
        What copies of operands cost.
    """
    rng = np.random.default_rng(seed)
    of = PRECISIONS[letter]
    kernels, members = [], []
    for variant in [Variant(of, *pair) for pair in transposes_of(of)]:
        for number in range(KERNELS):
            kind = 4 if f"{variant.trans_a}{variant.trans_b}" == only_tma else number % 5
            geometry = _geometry(rng, kind, variant)
            family = _family(kind, variant)
            names = {"block_m": geometry.tile_m, "block_n": geometry.tile_n}
            names |= {"block_k": geometry.tile_k, "tma": int(geometry.tma), "number": number}
            modes = {}
            for mode in _modes(rng, geometry):
                text = f"{variant} {number} {mode}".encode()
                digest = modes[mode] = hashlib.sha256(text).hexdigest()
                second = "add_parts" if geometry.split_k else ""
                leaves = geometry.split_k or geometry.stream_k
                part = 64 * number + 16 if leaves else 0
                code = Code(digest, "", 0, len(text), "gemm", second, 1024 * number, part, "drawn")
                members.append((code, text))
            costs = 10 ** rng.uniform(-1, 1, len(TERMS)) * [
                3000, 5, 9, 800, 500, 50, 30, 900, 900, 150, 100
            ]  # fmt: skip
            costs *= rng.random(len(TERMS)) < 0.9
            won = {SIZES[i]: float(rng.integers(10**5, 10**6)) for i in rng.integers(0, 6, 2)}
            config = Config(family.name, names)
            kernels.append(
                PortfolioKernel(
                    config, family.version, variant, geometry, modes, tuple(map(float, costs)), won
                )
            )
    made = Portfolio(letter, "sm_90a", DEVICE, 90, MULTIPROCESSORS, tuple(kernels), copying=copying)
    folder.mkdir(parents=True, exist_ok=True)
    return write_portfolio(folder, made, {"every": members})


# Of races.
SIZES: list[Sizes] = [
    (512, 512, 512), (4096, 4096, 4096), (64, 4096, 64), (1000, 1000, 1000), (77, 55, 33333),
    (2048, 128, 7),
]  # fmt: skip
OWN: list[Sizes] = [(512, 512, 512), (999, 1001, 64), (128, 4000, 300)]


def tuned(folder: Path, letter: str, variants: list[Variant], spec: object) -> Portfolio:
    """Write what the user tuned: points of the space, without costs, with no machine code."""
    family = SimtAsync()
    kernels = []
    for variant in variants:
        space = family.space(variant, spec)
        for number, sizes in enumerate(OWN):
            config = space.sample(1, number)[0]
            geometry, won = family.geometry(config), {sizes: 300000.0 + number}
            kernels.append(PortfolioKernel(config, 2, variant, geometry, {}, (), won))
    made = Portfolio(letter, "sm_90a", DEVICE, 90, MULTIPROCESSORS, tuple(kernels))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return write_portfolio(folder, made, {})
