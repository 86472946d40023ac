"""Quantities: a number of a device with its unit and where it comes from.

`QUANTITIES` names everything that the catalogue may say about a device.  Absence means
unknown; nothing here ever stands for zero.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["QUANTITIES", "Mix", "Quantity"]

# Name: (unit, meaning).  "/cycle" means per cycle of `clock_hz` and per multiprocessor.
QUANTITIES: dict[str, tuple[str, str]] = {
    "multiprocessors": ("", "multiprocessors, compute units or cores"),
    "compute_capability": ("", "ten times CUDA's compute capability, 90 for 9.0"),
    "warp_size": ("threads", "threads that execute together"),
    "max_threads_per_block": ("threads", "largest thread block"),
    "max_threads_per_multiprocessor": ("threads", "most resident threads"),
    "max_blocks_per_multiprocessor": ("", "most resident blocks"),
    "registers_per_multiprocessor": ("", "32-bit registers, R_SM"),
    "max_registers_per_thread": ("", "32-bit registers, R_Max"),
    "shared_bytes_per_block": ("B", "shared memory of a block"),
    "shared_bytes_per_multiprocessor": ("B", "shared memory, Sh_SM"),
    "vector_bytes": ("B", "widest load or native vector"),
    "memory_bytes": ("B", "device memory"),
    "l2_bytes": ("B", "last shared cache"),
    "clock_hz": ("Hz", "clock that the rates count in (Fermi: the shader clock)"),
    "sustained_clock_hz.s": ("Hz", "clock that endless single-precision multiply-adds keep"),
    "sustained_clock_hz.d": ("Hz", "clock that endless double-precision multiply-adds keep"),
    "sustained_clock_hz.matrix": ("Hz", "clock that endless IEEE work of tensor cores keeps"),
    "sustained_clock_hz.tf32": ("Hz", "clock that endless TF32 multiplies keep"),
    "sustained_clock_hz.fp16": ("Hz", "clock that endless FP16 multiplies keep"),
    "sustained_clock_hz.bf16": ("Hz", "clock that endless BF16 multiplies keep"),
    "sustained_clock_hz.fp8": ("Hz", "clock that endless FP8 multiplies keep"),
    "sustained_clock_hz.int8": ("Hz", "clock that endless INT8 multiplies keep"),
    "power_w": ("W", "power of the board at sustained_clock_hz.s"),
    "power_limit_w": ("W", "power limit in force"),
    "schedulers": ("", "warp schedulers of a multiprocessor"),
    "issue_lanes": ("threads/cycle", "thread instructions issued, #Issue_TP"),
    "shared_load_lanes": ("words/cycle", "32-bit words loaded from shared memory, #LDS_TP"),
    "pipeline_latency": ("cycles", "latency of a multiply-add, #Pipeline_latency"),
    "warpgroup_rows": ("", "rows of C of a matrix instruction that reads shared memory itself"),
    "warp_matrix_share": ("", "share of the tensor rates that instructions of one warp reach"),
    "cluster_blocks": (
        "",
        "blocks that one load from the shared cache can serve: multicast, or a nearer cache",
    ),
    "async_copy": ("", "1: blocks reach shared memory without passing registers; 0: they do not"),
    "memory_apart": (
        "",
        "1: memory instructions read registers without the operands' latches; 0: through them",
    ),
    "fma_lanes.s": ("FMA/cycle", "single-precision multiply-adds, #SP_TP"),
    "fma_lanes.d": ("FMA/cycle", "double-precision multiply-adds"),
    "add_lanes.d": ("adds/cycle", "double-precision additions, where more than multiply-adds"),
    "extra_flops.s": ("FLOP/cycle", "what other units add to the single-precision peak"),
    "tensor.s": ("FMA/cycle", "tensor cores, IEEE single precision"),
    "tensor.d": ("FMA/cycle", "tensor cores, IEEE double precision"),
    "tensor.tf32": ("FMA/cycle", "tensor cores, TF32, dense"),
    "tensor.fp16": ("FMA/cycle", "tensor cores, FP16 accumulated in FP32, dense"),
    "tensor.bf16": ("FMA/cycle", "tensor cores, BF16 accumulated in FP32, dense"),
    "tensor.fp8": ("FMA/cycle", "tensor cores, FP8 accumulated in FP32, dense"),
    "tensor.int8": ("FMA/cycle", "tensor cores, INT8 accumulated in INT32, dense"),
    "peak.s": ("FLOP/s", "published peak, single precision"),
    "peak.d": ("FLOP/s", "published peak, double precision"),
    "peak.tf32": ("FLOP/s", "published dense peak, TF32"),
    "peak.fp16": ("FLOP/s", "published dense peak, FP16"),
    "peak.bf16": ("FLOP/s", "published dense peak, BF16"),
    "peak.fp8": ("FLOP/s", "published dense peak, FP8"),
    "peak.int8": ("FLOP/s", "published dense peak, INT8 operations"),
    "memory_bytes_per_s": ("B/s", "device memory bandwidth, #GlobalMem_bandwidth"),
    "copy_bytes_per_s": ("B/s", "bytes read and written by a copy in device memory"),
    "l2_bytes_per_s": ("B/s", "read bandwidth of the last shared cache"),
    "l2_bytes_per_cycle": ("B/cycle", "the same in cycles of `clock_hz`, of the whole device"),
    "cache_bytes_per_s": ("B/s", "read or texture cache of one multiprocessor"),
    "link_bytes_per_s": ("B/s", "host to device or back, one direction"),
    "wave_registers": ("", "128-bit registers a thread of a lone wavefront could have"),
    "wave_threads": ("threads", "threads that one wavefront puts on a thread processor"),
}


@dataclass(frozen=True)
class Quantity:
    """A number with its unit and source.

    Parameters
    ----------
    name : str
        A key of `QUANTITIES`, or a symbol of the formula that uses it.
    value : float
        In `unit`.
    unit : str
        Empty for counts and ratios.
    source : str
        Paper and table, vendor document, or how it was measured.
    """

    name: str
    value: float
    unit: str = ""
    source: str = ""


@dataclass(frozen=True)
class Mix:
    """Throughput of multiply-adds mixed with shared loads: a point of Lai & Seznec's Figure 2.

    Parameters
    ----------
    width_bits : int
        Bits that one shared load brings a thread: 32, 64 or 128.
    ratio : float
        Multiply-adds to one load; 0 means loads alone.
    throughput : float
        Thread instructions, both kinds, per cycle and multiprocessor.
    kind : str
        ``"published"`` or ``"measured"``.
    source : str
        Where it was published or how it was measured.
    lanes : str
        Which words the lanes of a warp load: ``"conflict_free"``, each its own, as in the
        paper's figure, or ``"broadcast"``, all the same, so that the load takes one pass.
    """

    width_bits: int
    ratio: float
    throughput: float
    kind: str
    source: str
    lanes: str = "conflict_free"
