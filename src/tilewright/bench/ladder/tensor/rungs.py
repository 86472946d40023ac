"""The rungs of the tensor ladder: each a small CUDA source for Hopper (sm_90a) and its constants.

C <- A B^T with A m x k and B n x k in BF16 and C m x n in FP32, all row-major: column-major, as
`tilewright.problem.Problem` is, that is n x m x k with the transposes T and N.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tilewright.backend import Operand
from tilewright.bench.ladder.rungs import frozen, rung_text
from tilewright.hardware import DeviceSpec
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.space import Config
from tilewright.stencil import Launch, Source, TensorMap
from tilewright.stencil.wgmma import Arithmetic, Parts, TensorCall, TensorVariant, Wgmma

__all__ = ["ALIGNED", "TENSOR_RUNGS", "StencilRung", "TensorRung", "stencil_rung"]

_ELEMENT: Final = "bfloat16"
_ELEMENT_BYTES = 2
ALIGNED = 16 // _ELEMENT_BYTES  # elements: the copy engine wants such leading dimensions
_BLOCK_K = 64  # 128 bytes: as far as pieces of a row are exchanged in shared memory
_SWIZZLE = 128
# An 8-byte barrier or two for each stage; and shared memory need not begin at 1024 bytes.
_BARRIERS, _ALIGNMENT = 16, 1024
# Multiprocessors of an H100 or H200 (SXM5), each of which a persistent block has for itself.
_MULTIPROCESSORS = 132


@dataclass(frozen=True)
class TensorRung:
    """One step of the tensor ladder.

    Parameters
    ----------
    name, title, idea : str
        Who it is; what is new, in a few words; why that should help, in one sentence.
    threads : int
        Of a block.
    constants : Mapping
        By the names of the source's macros in lower case.
    persistent : bool
        Whether blocks go through several blocks of C.
    """

    name: str
    title: str
    idea: str
    threads: int
    constants: Mapping[str, int]
    persistent: bool = False

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.constants.get("cluster_m", 1)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        rows = self.constants["block_m"] + self.constants["block_n"]
        stage = rows * _BLOCK_K * _ELEMENT_BYTES + _BARRIERS
        return self.constants["stages"] * stage + _ALIGNMENT

    def source(self) -> Source:
        """Return dialect, what rungs share, and the rung as one source, with its macros."""
        source = rung_text("cuda", "tensor/rung.h", f"tensor/{self.name}.cu")
        defines: dict[str, int | str] = {n.upper(): v for n, v in self.constants.items()}
        defines |= {"BLOCK_K": _BLOCK_K, "THREADS": self.threads}
        return Source(source, defines, dynamic_shared_bytes=self.shared_bytes)

    def launch(self, m: int, n: int) -> Launch:
        """Return a line of blocks that covers a row-major m x n result."""
        rows = -(-m // (self.constants["block_m"] * self.cluster)) * self.cluster
        blocks = rows * -(-n // self.constants["block_n"])
        if self.persistent:
            blocks = min(blocks, _MULTIPROCESSORS)
        return Launch(grid=(blocks, 1), block=(self.threads, 1))

    def arguments(
        self, sizes: tuple[int, int, int], a: Any, lda: int, b: Any, ldb: int, c: Any, ldc: int
    ) -> tuple[Any, ...]:
        """Return the kernel's arguments.

        Parameters
        ----------
        sizes : tuple of int
            m, n and k, each at least 1.
        a, b, c : object
            Device memory.
        lda, ldb, ldc : int
            Elements from row to row; of A and B multiples of `ALIGNED`.
        """
        m, n, k = sizes
        maps = [
            TensorMap(memory, 0, _ELEMENT, (k, rows), (ld * _ELEMENT_BYTES,),
                      (_BLOCK_K, box), _SWIZZLE)
            for memory, rows, ld, box in (
                (a, m, lda, self.constants["block_m"]),
                (b, n, ldb, self.constants["block_n"] // self.cluster),
            )
        ]  # fmt: skip
        return (*(np.int64(size) for size in sizes), *maps, c, np.int64(ldc))


_BLOCK = frozen(block_m=128, block_n=256, stages=4, band=8)

TENSOR_RUNGS: tuple[TensorRung, ...] = (
    TensorRung(
        "t1_wgmma",
        "warpgroup multiply, TMA",
        "A warpgroup multiplies tiles straight from shared memory, where a copy engine puts them.",
        128,
        frozen(block_m=64, block_n=256, stages=1, band=8),
    ),
    TensorRung(
        "t2_pipelined",
        "ring of stages",
        "The copy engine fills a ring ahead; barriers in shared memory count the bytes.",
        256,
        _BLOCK,
    ),
    TensorRung(
        "t3_specialised",
        "producer and consumers",
        "One warpgroup brings, two multiply, and registers go to those who hold sums.",
        384,
        _BLOCK,
    ),
    TensorRung(
        "t4_persistent",
        "persistent blocks",
        "While a block of C is written, the next one's tiles are on their way.",
        384,
        _BLOCK,
        persistent=True,
    ),
    TensorRung(
        "t5_multicast",
        "cluster and multicast",
        "Two blocks share the tile of B: each brings half of it to both.",
        384,
        frozen(**_BLOCK, cluster_m=2),
        persistent=True,
    ),
)


_FAMILY = Wgmma()
# Row-major C = A B^T is column-major C^T = B A^T: the stencil's A is our B, and transposed.
_VARIANT = TensorVariant(
    precision("s"), Trans.T, Trans.N, arithmetic=Arithmetic(_ELEMENT, "float32")
)


@dataclass(frozen=True)
class StencilRung(TensorRung):
    """The last rung: the tensor-core stencil that the tuner searches, with one config.

    Parameters
    ----------
    config : Config
        Its `constants`, as the stencil takes them.
    """

    config: Config = field(kw_only=True)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return _FAMILY.resources(self.config, _VARIANT).shared_bytes

    def source(self) -> Source:
        """Return the stencil's source, with the config's macros."""
        return _FAMILY.source(self.config, _VARIANT, "cuda")

    def launch(self, m: int, n: int) -> Launch:
        """Return the stencil's grid, operands exchanged."""
        return _FAMILY.launch(self.config, n, m)

    def arguments(
        self, sizes: tuple[int, int, int], a: Any, lda: int, b: Any, ldb: int, c: Any, ldc: int
    ) -> tuple[Any, ...]:
        """Return the stencil's arguments, operands exchanged."""
        m, n, k = sizes
        call = TensorCall(n, m, k, 1, Parts(b, 0, ldb), Parts(a, 0, lda), 0, Operand(c, 0, ldc))
        return _FAMILY.arguments(self.config, _VARIANT, call)


def stencil_rung(device: DeviceSpec) -> StencilRung:
    """Return the last rung: the stencil with the config that serves where nothing was tuned.

    Raises
    ------
    ValueError
        If the device runs none of its defaults.
    """
    config = _FAMILY.default(_VARIANT, device)
    return StencilRung(
        "t6_stencil",
        "wgmma stencil, default",
        "Block, ring, cluster and order of blocks are parameters, for a tuner to search.",
        _FAMILY.resources(config, _VARIANT).threads,
        dict(config),  # type: ignore[arg-type]
        bool(config["multiprocessors"]),
        config=config,
    )
