"""Exported kernels in native programs on a GPU: right to the bit, and what a call costs.

    python benchmarks/native.py [--seconds S] [--json FILE] [--store] [--precision s,d,c,z]

Exports the default kernels of every precision and transpose for cuda:0, builds the C library
with the C compiler found, and then

- calls it through ctypes on random matrices and compares every bit with ``tw.gemm``;
- builds and runs the two programs of examples/native and compares their results likewise;
- times 100,000 calls of a tiny problem beside the driver's own launch (benchmarks/native).

With --store the user's tuned kernels are taken, on both sides.  Each part is a row; a part that
fails, or for which no time is left, is a row that says so.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples/native"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
LIBRARIES = ("-ldl", "-lm", "-lpthread")

# Fewer launches than a CUDA stream queues (1024): more would wait for the device.
CALLS, BATCHES = 500, 200
TINY = 16
LIMIT_US = 3.0

# Ragged, so that edges of blocks are computed too; leading dimensions are odd ones.
SHAPES = ((129, 67, 45), (300, 200, 100))
SCALARS = ((1, 0), (-1.5, 0.5))
ROW_MAJOR, COL_MAJOR = 101, 102


def run(*command: Any, cwd: Path | None = None, seconds: float = 60) -> str:
    """Run a program that has to succeed; return what it printed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, cwd=cwd)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{words[0]}: {said[0] if said else f'status {done.returncode}'}")
    return done.stdout


def driver_library() -> str:
    """Return the path of the driver that this process has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if Path(path).name.startswith("libcuda.so"):
            return path
    raise RuntimeError("libcuda is not loaded; run where NVIDIA's driver is")


class Native:
    """An exported library, built.

    Parameters
    ----------
    directory : Path
        What `tilewright export` wrote.
    driver : str
        Path of libcuda, for programs that call it themselves.
    """

    def __init__(self, directory: Path, driver: str) -> None:
        self.sources = directory / "c"
        self.directory = directory
        self.driver = driver
        self.compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), "")
        if not self.compiler:
            raise RuntimeError("needs a C compiler: cc, gcc or clang")
        files = sorted(self.sources.glob("*.c"))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            self.objects = list(pool.map(self._object, files))
        self.library = self.sources / "libtilewright-gemm.so"
        run(self.compiler, "-shared", *self.objects, "-o", self.library, *LIBRARIES)

    def _object(self, file: Path) -> Path:
        made = file.with_suffix(".o")
        run(self.compiler, *FLAGS, "-fPIC", "-fvisibility=hidden", "-c", file, "-o", made)
        return made

    def program(self, source: Path) -> Path:
        """Build a program of C or of the CUDA runtime."""
        made = self.sources / source.stem
        if source.suffix == ".c":
            command = [self.compiler, *FLAGS, f"-I{self.sources}", source, *self.objects]
            run(*command, self.driver, *LIBRARIES, "-o", made)
            return made
        nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
        if nvcc is None:
            raise RuntimeError("nvcc is not here")
        run(nvcc, "-std=c++17", f"-I{self.sources}", source, *self.objects, "-o", made)
        return made

    def chosen(self, size: int) -> str:
        """Return the kernel that SGEMM NN of a size would launch."""
        choose = ctypes.CDLL(str(self.library)).tw_choose
        choose.restype = ctypes.c_char_p
        letters, sizes = [ctypes.c_char] * 2, [ctypes.c_int64] * 3
        choose.argtypes = [ctypes.c_char, ctypes.c_int, *letters, *sizes]
        return choose(b"s", COL_MAJOR, b"N", b"N", size, size, size).decode()

    def caller(self) -> Callable[..., int]:
        """Return ``tw_gemm`` for addresses on a device."""
        call = ctypes.CDLL(str(self.library)).tw_gemm
        size, matrix = [ctypes.c_int64], [ctypes.c_void_p, ctypes.c_int64]
        letters, scalar = [ctypes.c_char] * 2, [ctypes.c_void_p]
        call.argtypes = [
            ctypes.c_char, ctypes.c_int, *letters, *size * 3, *scalar, *matrix * 2, *scalar,
            *matrix, ctypes.c_void_p,
        ]  # fmt: skip
        return call


def random(rng: np.random.Generator, shape: tuple[int, int], dtype: Any, order: int) -> Any:
    """Return a random matrix in row- or column-major order."""
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return np.asarray(x, dtype=dtype, order="C" if order == ROW_MAJOR else "F")


def product(live: Any, call: Callable[..., int], variant: Any, order: int, a: Any, b: Any,
            c: Any, alpha: float, beta: float) -> Any:  # fmt: skip
    """Return what the library makes of host matrices."""
    dtype = variant.precision.dtype
    scalars = [np.array([x, 0], variant.precision.real_dtype) for x in (alpha, beta)]
    memory = [live.upload(x) for x in (a, b, c)]

    def ld(x: Any) -> int:
        return int(max(x.strides)) // dtype.itemsize

    k = a.shape[0 if variant.trans_a.transposed else 1]
    (m, n), result = c.shape, c.copy(order="K")
    try:
        with live.current():
            status = call(
                variant.precision.letter.encode(), order, variant.trans_a.encode(),
                variant.trans_b.encode(), m, n, k, scalars[0].ctypes.data, memory[0], ld(a),
                memory[1], ld(b), scalars[1].ctypes.data, memory[2], ld(c), live.stream,
            )  # fmt: skip
        if status != 0:
            raise RuntimeError(f"tw_gemm returned {status}")
        live.finish()
        live.download(memory[2], result)
    finally:
        for one in memory:
            live.free(one)
    return result


def compare(live: Any, native: Native, variants: Any) -> Iterator[dict[str, Any]]:
    """Yield a row for each variant, order and size: whether all bits are `tw.gemm`'s."""
    import tilewright as tw

    rng = np.random.default_rng(0)
    call = native.caller()
    for variant in variants:
        for order in (COL_MAJOR, ROW_MAJOR):
            for (m, n, k), (alpha, beta) in zip(SHAPES, SCALARS, strict=True):
                dtype, ops = variant.precision.dtype, (variant.trans_a, variant.trans_b)
                shape_a = (k, m) if ops[0].transposed else (m, k)
                shape_b = (n, k) if ops[1].transposed else (k, n)
                shapes = (shape_a, shape_b, (m, n))
                a, b, c = (random(rng, shape, dtype, order) for shape in shapes)
                ours = product(live, call, variant, order, a, b, c, alpha, beta)
                theirs = c.copy(order="K")
                tw.gemm(a, b, theirs, alpha=alpha, beta=beta, trans_a=ops[0], trans_b=ops[1],
                        device=live)  # fmt: skip
                yield {
                    "variant": str(variant),
                    "order": "row-major" if order == ROW_MAJOR else "column-major",
                    "size": [m, n, k],
                    "equal": ours.tobytes() == theirs.tobytes(),
                    "changed": ours.tobytes() != c.tobytes(),
                }


def loadable(live: Any, directory: Path) -> dict[str, Any]:
    """Load every cubin and fat binary on its own; return how many have their kernel."""
    api, loaded = live.api, {"cubin": 0, "fatbin": 0}
    manifest = json.loads((directory / "manifest.json").read_text())
    with live.current():
        for kind in loaded:
            for kernel in manifest["kernels"]:
                data = (directory / kind / f"{kernel['name']}.{kind}").read_bytes()
                module = live.check(api.cuModuleLoadData(data), f"loading a {kind}")
                found = api.cuModuleGetFunction(module, kernel["name"].encode())
                live.check(found, f"finding {kernel['name']}")
                live.check(api.cuModuleUnload(module), "unloading")
                loaded[kind] += 1
    return loaded


def numbers(count: int, first: int, dtype: str) -> Any:
    """Return the numbers that the examples make: multiples of 2^-15 in [-1, 1)."""
    i = np.arange(first, first + count, dtype=np.uint32)
    return ((i * np.uint32(2654435761)) >> np.uint32(16)).astype(dtype) / 32768 - 1


def example(live: Any, native: Native, source: Path, size: tuple[int, int, int]) -> dict[str, Any]:
    """Build and run one of the examples; return whether its result is `tw.gemm`'s."""
    import tilewright as tw

    m, n, k = size
    program, result = native.program(source), native.sources / f"{source.stem}.bin"
    said = run(program, m, n, k, result)
    c_like = source.suffix == ".c"
    dtype, order, alpha, beta = ("f4", "F", 1, 0) if c_like else ("f8", "C", 2, -1)
    a = numbers(m * k, 1, dtype).reshape((m, k), order=order)
    b = numbers(k * n, 7, dtype).reshape((k, n), order=order)
    c = numbers(m * n, 3, dtype).reshape((m, n), order=order)
    tw.gemm(a, b, c, alpha=alpha, beta=beta, device=live)
    made = np.fromfile(result, dtype).reshape((m, n), order=order)
    return {"said": said.strip(), "size": list(size), "equal": made.tobytes() == c.tobytes()}


def overhead(native: Native, batches: int = BATCHES) -> dict[str, Any]:
    """Return what a call costs through the library and through the driver, in microseconds."""
    program = native.program(ROOT / "benchmarks/native/overhead.c")
    manifest = json.loads((native.directory / "manifest.json").read_text())
    name = native.chosen(TINY)
    kernel = next(one for one in manifest["kernels"] if one["name"] == name)
    assert min(kernel["grid"]["block_m"], kernel["grid"]["block_n"]) >= TINY  # one block of C
    cubin = native.directory / f"cubin/{kernel['name']}.cubin"
    printed = run(
        program, cubin, kernel["name"], kernel["threads"][0], kernel["grid"]["factor"],
        kernel["dynamic_shared_bytes"], TINY, batches, CALLS,
    )  # fmt: skip
    pairs = [tuple(map(float, line.split())) for line in printed.splitlines()]
    library, driver = ([x / 1000 for x in column] for column in zip(*pairs, strict=True))
    return {
        "size": TINY,
        "calls": batches * CALLS,
        "library_us": statistics.median(library),
        "library_least_us": min(library),
        "library_most_us": max(library),
        "driver_us": statistics.median(driver),
        "added_us": statistics.median(
            ours - its for ours, its in zip(library, driver, strict=True)
        ),
        "met": statistics.median(library) < LIMIT_US,
    }


class Report:
    """Rows as they come, in the file after each."""

    def __init__(self, path: Path | None, seconds: float) -> None:
        self.path, self.ends = path, time.monotonic() + seconds
        self.document: dict[str, Any] = {"parts": {}}
        self.lines: list[str] = []

    def part(self, name: str, work: Callable[[], Any], tell: Callable[[Any], str]) -> Any:
        """Do one part; a failure is a row."""
        started = time.monotonic()
        made, row = None, {}
        if started > self.ends:
            row = {"left_out": "no time left"}
        else:
            try:
                made = work()
                row = made if isinstance(made, dict) else {}
            except Exception as problem:
                row = {"failed": f"{type(problem).__name__}: {problem}"}
        row = row | {"seconds": round(time.monotonic() - started, 2)}
        self.document["parts"][name] = row
        said = row.get("failed") or row.get("left_out") or tell(made)
        self.lines.append(f"{name:18} {row['seconds']:6.1f} s  {said}")
        print(self.lines[-1], flush=True)
        self.write()
        return made

    def write(self) -> None:
        """Write what there is."""
        if self.path is not None:
            from tilewright.paths import write_atomically

            write_atomically(self.path, (json.dumps(self.document, indent=1) + "\n").encode())


def warm(live: Any, variants: Any) -> None:
    """Compile what `tw.gemm` will use, on all cores: on its own it compiles one at a time."""
    from tilewright.library.choose import choose
    from tilewright.problem import Problem

    def one(variant: Any) -> None:
        for size in SHAPES:
            problem = Problem(*size, variant.precision, variant.trans_a, variant.trans_b)
            chosen = choose(live, problem)
            live.compile(chosen.stencil.source(chosen.config, variant, live.dialect))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, variants))


def exported(live: Any, directory: Path, variants: Any, *, store: bool) -> dict[str, Any]:
    """Export for a live device; return what there is to tell."""
    from tilewright.export import collect, find_target, write

    kernels = collect(find_target(live.id, defaults=not store), variants)
    write(kernels, directory)
    size = sum(len(kernel.cubin) for kernel in kernels.kernels.values())
    return {"kernels": len(kernels.kernels), "bytes": size, "compiler": kernels.compiler}


def summed(rows: Iterator[dict[str, Any]], report: Report) -> dict[str, Any]:
    """Return how many comparisons agree, as far as time allows."""
    seen = []
    for row in rows:
        seen.append(row)
        if time.monotonic() > report.ends:
            break
    wrong = [row for row in seen if not (row["equal"] and row["changed"])]
    return {"compared": len(seen), "equal": len(seen) - len(wrong), "different": wrong}


def everything(live: Any, directory: Path, report: Report, variants: Any, *, store: bool) -> None:
    """Do every part, the ones that everything rests on first."""
    made = report.part(
        "export",
        lambda: exported(live, directory, variants, store=store),
        lambda row: f"{row['kernels']} kernels, {row['bytes'] / 2**20:.1f} MiB",
    )
    native = made and report.part(
        "build", lambda: Native(directory, driver_library()), lambda it: f"with {it.compiler}"
    )
    if not native:
        return
    report.part(
        "call overhead",
        lambda: overhead(native),
        lambda row: (
            f"{row['library_us']:.2f} us a call, the driver's own launch"
            f" {row['driver_us']:.2f} us: {'met' if row['met'] else 'MISSED'} (< {LIMIT_US} us)"
        ),
    )
    for source in ("example.c", "example_runtime.cu"):
        report.part(
            source,
            lambda source=source: example(live, native, EXAMPLES / source, (300, 200, 100)),
            lambda row: "equal to tw.gemm" if row["equal"] else "DIFFERS from tw.gemm",
        )
    report.part(
        "cubins, fatbins",
        lambda: loadable(live, directory),
        lambda row: f"{row['cubin']} and {row['fatbin']} load",
    )
    report.part("compile for gemm", lambda: warm(live, variants), lambda _: "done")
    report.part(
        "bits",
        lambda: summed(compare(live, native, variants), report),
        lambda row: f"{row['equal']} of {row['compared']} products equal tw.gemm's bit for bit",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="start no part after so long")
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--store", action="store_true", help="use what was tuned here")
    parser.add_argument("--precision", default="all", help="s,d,... with s and d, or all")
    parser.add_argument("--trans", default="all", help="NN,... with NN, or all")
    parser.add_argument("--keep", type=Path, help="export into this directory and leave it")
    options = parser.parse_args()
    scratch = tempfile.TemporaryDirectory(prefix="tilewright-native-")
    if not options.store:  # defaults on both sides
        os.environ["TILEWRIGHT_DATA_DIR"] = str(Path(scratch.name) / "data")
    import tilewright as tw
    from tilewright.bench.record import environment_record
    from tilewright.export import variants_of

    try:
        live = tw.device("cuda:0")
    except ValueError as problem:
        print(f"native: {problem}", file=sys.stderr)
        return 2
    report = Report(options.json, options.seconds)
    environment = environment_record()
    report.document |= {
        "device": live.spec.name,
        "environment": environment | live.environment(),
        "kernels_from": "store" if options.store else "defaults",
    }
    with scratch:
        directory = options.keep or Path(scratch.name) / "kernels"
        variants = variants_of(options.precision, options.trans)
        everything(live, directory, report, variants, store=options.store)
    print(f"\n{live.spec.name}, {live.platform}")
    print("\n".join(report.lines))
    bad = [
        name
        for name, row in report.document["parts"].items()
        if "failed" in row or row.get("different") or row.get("equal") is False
    ]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
