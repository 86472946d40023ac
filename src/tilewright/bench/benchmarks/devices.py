"""Products that all CUDA devices of this host share, beside one of them.

With matrices on the first device the time is compared with that of the device alone, and with what
a simulation says that is given that time and the rate of a copy between two devices.  With those in
pinned memory it is compared with what it cannot be less than: the longer of the kernel on one
device's part of C (T_kernel), and of all links at once (T_comm: B, a part of A and a part of C for
each).  cuBLASXt on as many devices is the peer.
"""

from __future__ import annotations

import statistics
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from tilewright.backend import devices as live_devices
from tilewright.bench import host_matrices as host
from tilewright.bench.peers import UnavailableError
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.shared import Rates, seconds_of
from tilewright.bench.sizes import parse_sizes
from tilewright.precision import precision
from tilewright.serve.gemm import gemm
from tilewright.serve.streamed.tiling import PlacedCuts, Tiling

__all__ = ["BENCHMARK", "simulated"]


class Devices(Benchmark):
    measures = "products that all CUDA devices of the host share"
    against = "one of them; cuBLASXt"
    takes = "a minute for 16384"
    options = {"precision": "s,fp32", "size": "16384"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        every = [one for one in live_devices() if one.backend == "cuda"]
        if not every:
            raise UnavailableError("there is no CUDA device here")
        for name in asked.precision.split(","):
            for n, _, _ in parse_sizes(asked.size):
                with ExitStack() as stack, warnings.catch_warnings():
                    warnings.simplefilter("error", RuntimeWarning)  # a device that was lost
                    yield from _rows(every, stack, name, n)

    def line(self, row: Row) -> str:
        """Return how much faster several devices are, or how near to what they must take."""
        if row["matrices"] == "on the host":
            told = f"{row['of_longest']:.2f} of max(T_comm, T_kernel), cuBLASXt {row['xt_ms']}"
        else:
            told = f"{row['speedup']:.2f} times as fast as one, simulated {simulated(row)}"
        return (
            f"{row['precision']} {row['size']} {row['matrices']}, {row['devices']} devices:"
            f" {row['ms']:.1f} ms, {told}"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        names = (
            "precision", "size", "matrices", "devices", "ms", "one_ms", "speedup", "longest_ms",
            "of_longest", "xt_ms", "link_gbs",
        )  # fmt: skip
        heads = (
            "precision", "n", "matrices", "devices", "ms", "one device, ms", "speedup",
            "max(T_comm, T_kernel)", "total / max", "cuBLASXt", "link, GB/s", "simulated speedup",
        )  # fmt: skip
        return heads, [[*(row[name] for name in names), simulated(row)] for row in rows]


def _rows(every: list[Any], stack: ExitStack, name: str, n: int) -> Iterator[Row]:
    letter, accuracy = host.arithmetic_of(name)
    a, b, c = host.drawn(every[0], stack, n, precision(letter).dtype)
    told = {"precision": name, "size": n, "devices": len(every)}
    call = partial(gemm, a, b, c, accuracy=accuracy)
    links = host.link_ms(every, [a, b, c])
    kernel = host.kernel_ms(every[0], [a, b, c], letter, accuracy, n // len(every))
    times = _times(partial(call, device=every[:1]), partial(call, device=every))
    xt = host.cublas_xt(letter, a, b, c, False, len(every)) if accuracy == "ieee" else None
    yield {
        **told, "matrices": "on the host", **times, "eta": host.error(a, b, c),
        "longest_ms": round(max(links, kernel), 2), "xt_ms": None if xt is None else round(xt, 2),
        "of_longest": round(times["ms"] / max(links, kernel), 3), "link_gbs": None,
    }  # fmt: skip
    try:
        import cupy
    except ImportError:  # nothing else is said of memory on devices
        return
    x, y = cupy.asarray(a), cupy.asarray(b)
    z = cupy.full(c.shape, np.nan, c.dtype)
    call = partial(gemm, x, y, z, accuracy=accuracy)

    def alone() -> None:
        call()
        cupy.cuda.get_current_stream().synchronize()

    times = _times(alone, partial(call, device=every))
    link = host.peer_rate(every) if len(every) > 1 else None
    c[...] = z.get()
    yield {
        **told, "matrices": "on one device", **times, "eta": host.error(a, b, c),
        "longest_ms": None, "xt_ms": None, "of_longest": None,
        "link_gbs": link and round(link / 1e9, 1),
    }  # fmt: skip


def simulated(row: Row) -> float | None:
    """Return how much faster several devices are by simulation, of matrices on one of them."""
    if row["link_gbs"] is None:
        return None
    letter, accuracy = host.arithmetic_of(row["precision"])
    sizes, size = (row["size"],) * 3, precision(letter).element_bytes
    tiling = Tiling.of(*sizes, size, sys.maxsize, PlacedCuts(), split=accuracy == "fp32")
    rates = Rates(row["one_ms"] / 1e3, row["link_gbs"] * 1e9)
    return round(rates.kernel / seconds_of(tiling, size, row["devices"], rates), 3)


def _times(one: Callable[[], Any], several: Callable[[], Any]) -> dict[str, Any]:
    """Return what calls on one device and on several take, in turns; several are the last."""
    times: tuple[list[float], list[float]] = [], []
    for _ in range(host.TURNS + 1):
        for call, kept in zip((one, several), times, strict=True):
            kept.append(host.ms(call))
    alone, together = (statistics.median(kept[1:]) for kept in times)  # the first loads kernels
    return {
        "ms": round(together, 2), "one_ms": round(alone, 2), "speedup": round(alone / together, 3)
    }  # fmt: skip


BENCHMARK = Devices()
