"""Single precision from parts: how accurate, which route the guard takes, and how fast.

    python benchmarks/fp32_accurate.py [--device opencl:0] [--seconds 120] [--json FILE]
        [--sizes 4096,1024,8192,2048] [--side 48] [--trans NN,NT,TN,TT]
        [--only accuracy,model,passes,chains,calls]

Accuracy: matrices of every kind, `--side` rows and columns, by each scheme, by the guard's choice
and by IEEE arithmetic on the device, beside a plain sum of fused multiply-adds and NumPy's BLAS.
On a device without matrix units schemes run on their model; on tensor cores their results are
compared with the model's, bit by bit.  Times (CUDA with CuPy only): the guarded call, each scheme,
the IEEE kernel and cuBLAS in turns, and the passes before the product by themselves.  A case that
fails is a row with its reason; the file is written after each part; when --seconds are up the
script stops.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from clock import Clock
from tilewright.backend import GemmCall, Operand
from tilewright.bench.record import device_record, environment_record
from tilewright.library.scratch import Scratch
from tilewright.library.split import serve_unproved
from tilewright.library.split.chain import MOST_K, Chain
from tilewright.library.split.product import HopperProduct, ModelProduct, multiplied_by
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.stencil.split import SCHEMES
from tilewright.stencil.split.scheme import part_bytes

SCHEMES_SHOWN = ("fp16x3", "tf32x3", "bf16x6", "bf16x9")
ROUNDS = 7


# -- accuracy ------------------------------------------------------------------------------------


def data(side: int) -> list[tuple[str, int, Any]]:
    """Return names, k, and what draws A and B."""

    def phi(value: float) -> Any:
        def draw(rng: Any, *shape: int) -> Any:
            return (rng.random(shape) - 0.5) * np.exp(value * rng.standard_normal(shape))

        return lambda rng, k: (draw(rng, side, k), draw(rng, k, side))

    def normal(rng: Any, k: int) -> Any:
        return rng.standard_normal((side, k)), rng.standard_normal((k, side))

    def positive(rng: Any, k: int) -> Any:
        return rng.random((side, k)), rng.random((k, side))

    def spike(rng: Any, k: int) -> Any:
        a, b = normal(rng, k)
        a[np.arange(side), rng.integers(0, k, side)] *= 2.0**40
        return a, b

    def integers(bits: int) -> Any:
        def draw(rng: Any, k: int) -> Any:
            return tuple(rng.integers(-(2**bits), 2**bits, s) for s in ((side, k), (k, side)))

        return draw

    cases = [(f"phi {p:g}", 1024, phi(p)) for p in (0, 0.5, 1, 2, 4)]
    cases += [("normal", k, normal) for k in (64, 128, 1024, 4096)]
    cases += [("positive", k, positive) for k in (128, 1024, 4096)]
    cases += [("one entry of each row 2^40 above", 1024, spike)]
    return cases + [(f"integers of {b} bits", 1024, integers(b)) for b in (8, 12, 16)]


def errors(c: Any, a: Any, b: Any) -> dict[str, float]:
    x, y = a.astype(np.float64), b.astype(np.float64)
    right = x @ y
    off = np.abs(c - right)
    return {
        "eta": float(np.max(off / (np.abs(x) @ np.abs(y)))),
        "median": float(np.median(off / np.maximum(np.abs(right), np.finfo(float).tiny))),
    }


def plain_sum(a: Any, b: Any) -> Any:
    x, y = a.astype(np.float64), b.astype(np.float64)
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for step in range(a.shape[1]):
        total = (total.astype(np.float64) + x[:, step, None] * y[None, step]).astype(np.float32)
    return total


def accuracy_row(live: Any, name: str, k: int, draw: Any) -> dict[str, Any]:
    a, b = (np.asarray(x, np.float32) for x in draw(np.random.default_rng(k), k))
    row: dict[str, Any] = {"data": name, "k": k, "errors": {}, "failed": {}}
    row["errors"]["plain sum"] = errors(plain_sum(a, b), a, b)
    row["errors"]["numpy"] = errors(a @ b, a, b)
    for arithmetic in ("ieee", *SCHEMES_SHOWN, "fp32"):
        try:
            told = tw.Decision()
            with serve_unproved():
                c = tw.gemm(a, b, accuracy=arithmetic, report=told, device=live)
            row["errors"][arithmetic] = errors(c, a, b)
            if arithmetic == "fp32":
                row["guard"] = told.as_dict()
        except Exception as error:
            row["failed"][arithmetic] = f"{type(error).__name__}: {error}"
    return row


def likeness(live: Any) -> list[dict[str, Any]]:
    """Return how many results of the tensor cores are the model's, bit by bit, by extra bits."""
    rng = np.random.default_rng(12)
    rows = []
    for name in ("fp16x3", "bf16x6", "tf32x3"):
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((256, 512), (512, 256)))
        real = tw.gemm(a, b, accuracy=name, device=live)
        for extra in range(5):
            with multiplied_by(ModelProduct(extra)):
                model = tw.gemm(a, b, accuracy=name, device=live)
            rows.append(
                {"scheme": name, "extra_bits": extra, "equal": int((real == model).sum()),
                 "of": real.size}
            )  # fmt: skip
    return rows


# -- times ---------------------------------------------------------------------------------------


def pass_rows(live: Any, n: int) -> list[dict[str, Any]]:
    """Return what the launches of chains take one by one, by how operands lie.

    Names of orders are those of column-major operands: memory of A runs along k if it is
    transposed, memory of B if it is not.
    """
    rows = []
    with Square(live, n) as square:
        for trans in ("NN", "NT", "TN"):
            for name in ("fp32", "bf16x6", "tf32x3", "tf32"):
                with square.chain(trans, name) as chain:
                    if name == "fp32":
                        steps, pieces = chain.steps(), -(-n // MOST_K)
                        products = [
                            f"{part} product" for part in ("fp16", "bf16") for _ in range(pieces)
                        ]
                        told = ["largest", "split and decide", "bf16 split", *products, "ieee"]
                    else:
                        steps = chain.before_products(SCHEMES[name])
                        told = ["largest", "split"] if len(steps) > 1 else ["copy"] * len(steps)
                    for what, ns in zip(told, timed(live, steps), strict=True):
                        size = read_and_written(name, what) * 2 * n * n
                        rows.append(
                            {"n": n, "trans": trans, "arithmetic": name, "pass": what, "ns": ns,
                             "bytes_per_second": size / ns * 1e9 if size else None}
                        )  # fmt: skip
    return rows


class Square:
    """Three square matrices in device memory, and chains of launches on them."""

    def __init__(self, live: Any, n: int) -> None:
        rng = np.random.default_rng(n)
        self.live, self.n = live, n
        drawn = (rng.standard_normal(n * n, np.float32) for _ in range(2))
        self.memory = [*(live.upload(x) for x in drawn), live.allocate(4 * n * n)]

    def __enter__(self) -> Square:
        return self

    def __exit__(self, *_: object) -> None:
        for memory in self.memory:
            self.live.free(memory)

    @contextlib.contextmanager
    def chain(self, trans: str, arithmetic: str) -> Iterator[Chain]:
        """Lend a chain with memory of its own: more for another would take its away."""
        n, scratch = self.n, Scratch(self.live)
        a, b, c = (Operand(memory, 0, n) for memory in self.memory)
        problem = Problem(n, n, n, precision("s"), Trans(trans[0]), Trans(trans[1]), n, n, n)
        call = GemmCall(problem.precision, n, n, n, 1, a, b, 0, c)
        try:
            yield Chain(self.live, scratch, problem, call, arithmetic, call)
        finally:
            scratch.close()


def read_and_written(arithmetic: str, what: str) -> int:
    """Return a pass's bytes an element of both operands; 0 where that is not what it does."""
    if what == "largest":
        return 4
    if what == "split and decide":
        return 4 + 4
    if what == "split":
        return 4 + SCHEMES[arithmetic].parts * part_bytes(SCHEMES[arithmetic].part)
    return 0


def timed(live: Any, steps: Any) -> list[float]:
    """Return nanoseconds of each launch of a chain, medians of runs of the whole chain.

    Events around a single launch count a few microseconds of their own.
    """
    kernels = [live.compile(step.source) for step in steps]
    runs = [
        [
            live.launch_timed(kernel, step.launch, step.arguments).nanoseconds()
            for kernel, step in zip(kernels, steps, strict=True)
        ]
        for _ in range(7)
    ]
    return [float(ns) for ns in np.median(runs[1:], axis=0)] if steps else []


def chain_row(live: Any, n: int) -> dict[str, Any]:
    """Return what the guarded chain takes as it is run, laid out, and what its host pays."""
    with Square(live, n) as square, square.chain("NN", "fp32") as chain:
        steps = chain.steps()
        kernels = [live.compile(step.source) for step in steps]
        laid = [
            live.prepare(kernel, step.launch, step.arguments)
            for kernel, step in zip(kernels, steps, strict=True)
        ]

        def enqueue(times: int = 1) -> None:
            for _ in range(times):
                for launch in laid:
                    with launch.lock:
                        launch.enqueue(live.stream)

        def run(times: int) -> float:
            return float(live.between_events(lambda: enqueue(times)).nanoseconds())

        run(2)
        many = 20
        each = statistics.median(run(many) / many for _ in range(5))
        host = []
        for _ in range(20):
            live.finish()
            started = time.perf_counter()
            enqueue()
            host.append((time.perf_counter() - started) * 1e9)
        live.finish()
        return {"n": n, "launches": len(laid), "ns": each, "host_ns": statistics.median(host)}


def call_row(cupy: Any, n: int, trans: str, clock: Clock) -> dict[str, Any]:
    """Return median seconds of whole calls in turns, splitting included."""
    a, b = (cupy.random.standard_normal((n, n), dtype=cupy.float32) for _ in range(2))
    c = cupy.empty((n, n), cupy.float32)
    x, y = (v.T if t == "T" else v for v, t in zip((a, b), trans, strict=True))

    def ours(arithmetic: str) -> Any:
        def call() -> None:
            with serve_unproved():
                tw.gemm(a, b, c, trans_a=trans[0], trans_b=trans[1], accuracy=arithmetic)

        return call

    calls = {name: ours(name) for name in ("fp32", "fp16x3", "bf16x6", "tf32x3", "ieee")}
    calls["cublas"] = lambda: cupy.matmul(x, y, out=c)
    row: dict[str, Any] = {"n": n, "trans": trans, "seconds": {}, "host_seconds": {}, "failed": {}}
    for name, call in list(calls.items()):
        try:
            call()
            cupy.cuda.Device().synchronize()
        except Exception as error:
            row["failed"][name] = f"{type(error).__name__}: {error}"
            del calls[name]
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    host: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        if clock.left < 5:
            break
        for name, call in calls.items():
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            started = time.perf_counter()
            call()
            host[name].append(time.perf_counter() - started)
            end.record()
            end.synchronize()
            seconds[name].append(cupy.cuda.get_elapsed_time(begin, end) * 1e-3)
    row["seconds"] = {name: statistics.median(s) for name, s in seconds.items() if s}
    row["host_seconds"] = {name: statistics.median(s) for name, s in host.items() if s}
    return row


# -- the whole -----------------------------------------------------------------------------------


def written(path: Path, document: dict[str, Any]) -> None:
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(document, indent=1) + "\n")
    os.replace(beside, path)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default=None)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--json", type=Path, default=Path("fp32_accurate.json"))
    parser.add_argument("--sizes", default="4096,1024,8192,2048")
    parser.add_argument("--trans", default="NN,NT,TN,TT")
    parser.add_argument("--side", type=int, default=48)
    parser.add_argument("--only", default="accuracy,model,passes,chains,calls")
    return parser.parse_args()


def tried(rows: Any, live: Any, n: int) -> list[dict[str, Any]]:
    """Return rows, or one that says why there are none."""
    try:
        return list(rows(live, n))
    except Exception as error:
        return [{"n": n, "failed": f"{type(error).__name__}: {error}"}]


def shown(document: dict[str, Any]) -> None:
    """Print a short table."""
    for row in document["accuracy"]:
        found = {
            name: f"{math.log2(e['eta'] or 2.0**-99):.1f}" for name, e in row["errors"].items()
        }
        print(f"{row['data']:34s} k={row['k']:<6d}", row.get("guard", {}).get("variant"), found)
    for row in document["model"]:
        print(row)
    for row in document["passes"]:
        if "failed" in row:
            print(row)
            continue
        rate = row["bytes_per_second"]
        print(f"n={row['n']:<6d} {row['trans']} {row['arithmetic']:7s} {row['pass']:17s}"
              f" {row['ns'] / 1e3:8.1f} us", f"{rate / 1e9:6.0f} GB/s" if rate else "")  # fmt: skip
    for row in document["chains"]:
        print(f"n={row['n']:<6d} guarded chain", {k: v for k, v in row.items() if k != "n"})
    for row in document["calls"]:
        flops = 2.0 * row["n"] ** 3
        rates = {name: round(flops / s / 1e12, 1) for name, s in row["seconds"].items()}
        print(f"n={row['n']:<6d} {row['trans']} TFLOP/s {rates}", row["failed"] or "")


def main() -> None:
    options = parsed()
    clock = Clock(options.seconds)
    live = tw.device(options.device)
    sizes = [int(n) for n in options.sizes.split(",")]
    document: dict[str, Any] = {
        "environment": environment_record(), "device": device_record(live, ()),
        "side": options.side, "accuracy": [], "model": [], "passes": [], "chains": [], "calls": [],
    }  # fmt: skip
    wanted = set(options.only.split(","))
    for name, k, draw in data(options.side) if "accuracy" in wanted else []:
        if clock.left < 3:
            break
        document["accuracy"].append(accuracy_row(live, name, k, draw))
        clock.say("accuracy", name, k)
        written(options.json, document)
    if "model" in wanted and HopperProduct().serves(live, SCHEMES["fp16x3"]):
        try:
            document["model"] = likeness(live)
        except Exception as error:
            document["model"] = [{"failed": f"{type(error).__name__}: {error}"}]
        clock.say("likeness of the model")
        written(options.json, document)
    for n in sizes if live.spec.kind == "gpu" else []:
        if "passes" in wanted and clock.left > 3:
            document["passes"] += tried(pass_rows, live, n)
            clock.say("passes", n)
            written(options.json, document)
        if "chains" in wanted and live.backend == "cuda" and clock.left > 3:
            document["chains"] += tried(lambda *given: [chain_row(*given)], live, n)
            written(options.json, document)
    if "calls" in wanted and live.backend == "cuda":
        import cupy

        for n in sizes:
            for trans in options.trans.split(","):
                if clock.left > 5:
                    document["calls"].append(call_row(cupy, n, str(trans), clock))
                    clock.say("calls", n, trans)
                    written(options.json, document)
    shown(document)
    clock.say("wrote", options.json)


if __name__ == "__main__":
    main()
