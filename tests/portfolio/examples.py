"""Portfolios for tests: kernels with machine code that is none, and a device that loads it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.backend import BackendError, Kernel
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.portfolio import Code, Portfolio, find
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.model import TERMS
from tilewright.portfolio.portfolio import write_portfolio
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import PLAIN, Geometry, Mode, SplitK

# As its driver reports it.
H100 = replace(
    architecture_spec("sm_90a"), name="NVIDIA H100 80GB HBM3", multiprocessors=132
)  # fmt: skip
EVERY_MODE = tuple(
    Mode(scalar, clamped, staged)
    for scalar in (False, True)
    for clamped in (False, True)
    for staged in (False, True)
)


class Hopper:
    """A device that compiles nothing, loads what is not named as refused, launches nothing."""

    id, dialect, backend, arch, driver = "cuda:0", "cuda", "cuda", "sm_90a", "1.2"

    def __init__(self, spec: Any = H100, key: str = "", refused: Sequence[bytes] = ()) -> None:
        self.spec, self.portfolio_key, self.fingerprint = spec, key, "a1b2c3d4e5f6"
        self.refused, self.loaded, self.compiled = set(refused), [], []

    def compile(self, source: Any) -> Any:
        """Return the source itself."""
        self.compiled.append(source)
        return source

    def load(self, code: Code, cubin: bytes) -> Kernel:
        """Return the cubin, or refuse it as a driver would."""
        if cubin in self.refused:
            raise BackendError("no kernel image is available for execution on the device")
        self.loaded.append(cubin)
        return Kernel(cubin, code.symbol, 0.0, cubin)


def costs(ns_a_step: float, launch: float = 1000.0) -> tuple[float, ...]:
    """Return what a kernel costs that takes so long for a step of k of a tile."""
    found = dict.fromkeys(TERMS, 0.0)
    found |= {"launch": launch, "vector steps": ns_a_step, "scalar steps": 2 * ns_a_step}
    return tuple(found.values())


@cache
def default_of(name: str, of: Variant) -> Config:
    """Return a stencil's default; drawn kernels ask for the same ones hundreds of times."""
    return stencil(name).default(of, H100)


def kernel(
    problem: Problem | Variant,
    config: Config | None = None,
    modes: Sequence[Mode] | None = (PLAIN,),
    name: str = "simt_async",
    routed: Sequence[Mode] = (),
    **facts: Any,
) -> PortfolioKernel:
    """Return a kernel of a problem's variant; `modes`: those that ship."""
    of = problem if isinstance(problem, Variant) else Variant.of(problem)
    family = stencil(config.stencil if config is not None else name)
    config = config or default_of(name, of)
    digests, others = (
        {mode: digest(cubin_of(config, of, mode, kind)) for mode in some or ()}
        for some, kind in ((modes, ""), (routed, "routed"))
    )
    geometry = facts.pop("geometry", family.geometry(config))
    return PortfolioKernel(
        config, family.version, of, geometry, digests, routed=others, **facts
    )  # fmt: skip


def cubin_of(config: Config, of: Variant, mode: Mode, kind: str = "") -> bytes:
    """Return what stands for the machine code of an instance."""
    return f"{of} {config.id} {mode} {kind}".encode() * 20


def digest(cubin: bytes) -> str:
    return hashlib.sha256(cubin).hexdigest()


def write(
    folder: Path, kernels: Sequence[PortfolioKernel], name: str = "s", **facts: Any
) -> Portfolio:
    """Write a portfolio of an H100 with the machine code that its kernels name."""
    facts = {
        "arch": "sm_90a",
        "device": H100.name,
        "compute_capability": 90,
        "multiprocessors": 132,
    } | facts
    blocks: dict[str, list[tuple[Code, bytes]]] = {}
    for one in kernels:
        for modes, kind in ((one.modes, ""), (one.routed, "routed")):
            for mode, mark in modes.items():
                cubin = cubin_of(one.config, one.variant, mode, kind)
                code = Code(mark, "", 0, len(cubin), f"gemm_{mode}", compiler="NVRTC 1.2")
                blocks.setdefault(one.config.id, []).append((code, cubin))
    blocks = {key: list(dict(row for row in rows).items()) for key, rows in blocks.items()}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return write_portfolio(folder, Portfolio(name, kernels=tuple(kernels), **facts), blocks)


def forget() -> None:
    """Let this process look again at what ships and at what is the user's own."""
    for cached in (find.shipped_for, find.shipped, find._warn_once):
        cached.cache_clear()
    find.reload()


# -- strategies --------------------------------------------------------------------------

SIDES = st.sampled_from([8, 16, 32, 64, 96, 128, 192, 256])
KINDS = (
    "plain", "unfolded", "cluster", "shared", "persistent", "stream", "split", "streamed", "tma",
    "outer", "copies",
)  # fmt: skip


@st.composite
def geometries(draw: Any, kinds: Sequence[str] = KINDS) -> Geometry:
    """Draw a geometry of one of the kinds that stencils have."""
    kind = draw(st.sampled_from(kinds))
    facts: dict[str, Any] = {
        "tile_k": draw(st.sampled_from([8, 16, 32])),
        "stages": draw(st.integers(1, 5)),
        "resident": draw(st.integers(0, 4)),
        "vector_along_k": draw(st.booleans()),
        "stages_k": draw(st.sampled_from([0, 100, 2048, 2**31])),
    }
    if kind == "unfolded":
        facts["folded"] = False
    elif kind == "cluster":
        facts |= {"cluster_m": draw(st.integers(1, 3)), "cluster_n": draw(st.integers(1, 3))}
    elif kind == "shared":
        facts["cluster_k"] = draw(st.sampled_from([2, 4, 8]))
    elif kind == "persistent":
        facts |= {"persistent": True, "resident": draw(st.integers(1, 4))}
    elif kind == "stream":
        facts |= {"persistent": True, "resident": draw(st.integers(1, 4))}
        facts |= {"stream_k": draw(st.integers(1, 2)), "tree": draw(st.booleans())}
    elif kind in ("split", "streamed"):
        facts["split_k"] = SplitK(
            draw(st.floats(10, 5000)),
            draw(st.integers(1, 2**18)),
            draw(st.integers(1, 8)),
            128,
            reduction_cycles=draw(st.one_of(st.just(0.0), st.floats(1, 50000))),
        )
        if kind == "streamed":
            facts["split_k"] = replace(facts["split_k"], most_parts=300)
            facts |= {"streamed": draw(st.integers(1, 2)), "vector_along_k": True, "stages_k": 0}
    elif kind == "outer":
        facts |= {"most_k": draw(st.integers(1, 50)), "any_alignment": True, "stages_k": 0}
    elif kind == "copies":
        facts |= {"any_alignment": True, "stages_k": 0}
    elif kind == "tma":
        facts |= {"tma": True, "tma_line_bytes": draw(st.sampled_from([0, 32, 128]))}
    threads = draw(st.sampled_from([32, 64, 128, 256])), 1
    return Geometry(draw(SIDES), draw(SIDES), threads, **facts)


@st.composite
def problems(draw: Any, most: int = 4000, letters: str = "sdcz") -> Problem:
    """Draw a problem whose columns may be longer than they need be."""
    side = st.one_of(st.integers(1, 40), st.integers(1, most), st.integers(1, most // 8).map(_of_8))
    letter = draw(st.sampled_from(letters))
    ops = st.sampled_from("NTC" if letter in "cz" else "NT")
    found = Problem(draw(side), draw(side), draw(side), letter, draw(ops), draw(ops))
    more = st.sampled_from([0, 0, 0, 1, 2, 3, 4])
    return replace(
        found, lda=found.lda + draw(more), ldb=found.ldb + draw(more), ldc=found.ldc + draw(more)
    )


def _of_8(eighth: int) -> int:
    return 8 * eighth


def rows_of(times: Mapping[str, float]) -> np.ndarray[Any, Any]:
    """Return costs as an array in the order of the model's terms."""
    return np.array([times.get(term, 0.0) for term in TERMS])


def nothing_ahead(arch: str) -> AbstractContextManager[Callable[[object], Callable[[], bool]]]:
    """Stand for `compiling_ahead` where no compiler is to run."""
    return nullcontext(lambda _: lambda: True)
