"""The process that one first call is timed in; see `bench.benchmarks.first_call`.

Run as ``python -m tilewright.bench.first_call CASE``, CASE being a JSON object; a JSON object goes
to the standard output.  The caller's library is imported and its context exists before the clock
starts; nothing else is.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Time the first calls of the case in the first argument."""
    case = json.loads(sys.argv[1])
    import cupy

    calls = [_arrays(cupy, case, sizes) for sizes in case["sizes"]]
    cupy.cuda.Device().synchronize()
    options = {"accuracy": case["accuracy"]} if case["accuracy"] != "ieee" else {}
    if case["library"] == "cupy":

        def product(a: Any, b: Any, c: Any) -> None:
            cupy.matmul(a, b, out=c)
    else:
        import tilewright as tw

        options |= {"trans_a": case["trans"][0], "trans_b": case["trans"][1]}

        def product(a: Any, b: Any, c: Any) -> None:
            tw.gemm(a, b, c, **options)

    milliseconds = [_timed(cupy, product, arrays) for arrays in calls]
    nvrtc = "cuda.bindings.nvrtc" in sys.modules
    print(json.dumps({"milliseconds": milliseconds, "nvrtc": nvrtc}))


def _arrays(cupy: Any, case: dict[str, Any], sizes: list[int]) -> tuple[Any, Any, Any]:
    """Return column-major operands and result."""
    m, n, k = sizes
    shapes = {
        "a": (k, m) if case["trans"][0] != "N" else (m, k),
        "b": (n, k) if case["trans"][1] != "N" else (k, n),
    }
    made = []
    for name in ("a", "b"):
        values = cupy.ones(shapes[name], cupy.float32)
        made.append(cupy.asfortranarray(values.astype(case["dtype"])))
    result = "int32" if case["dtype"] == "int8" else case["dtype"]
    return made[0], made[1], cupy.empty((m, n), result, order="F")


def _timed(cupy: Any, product: Any, arrays: tuple[Any, Any, Any]) -> float:
    """Return the milliseconds until a product is there."""
    started = time.perf_counter()
    product(*arrays)
    cupy.cuda.Device().synchronize()
    return (time.perf_counter() - started) * 1e3


if __name__ == "__main__":
    main()
