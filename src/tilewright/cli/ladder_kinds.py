"""The two ladders of ``tilewright ladder``: multiply-add units, and matrix units."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.backend import LiveDevice
from tilewright.cli.output import emit_table, gigaflops
from tilewright.problem import Problem

__all__ = ["LADDERS", "Ladder", "Simt", "Tensor"]


class Ladder(ABC):
    """One ladder on one device.

    Parameters
    ----------
    live : LiveDevice
        Where.
    peers : sequence of str
        Names of libraries.
    rounds : int
        Turns of all.
    quiet : bool
        Whether progress and tables are left out.
    """

    gpu_sizes: str
    cpu_sizes: str
    cpu_peer: str  # beside whom, where cuBLAS is not
    count: int

    def __init__(self, live: LiveDevice, peers: Sequence[str], rounds: int, quiet: bool) -> None:
        self.live, self.rounds, self.quiet = live, rounds, quiet
        self.peers: list[Any] = [self.peer(name) for name in peers]
        self.rungs: list[Any] = []

    @abstractmethod
    def peer(self, name: str) -> Any:
        """Return a library by name."""

    @abstractmethod
    def problem(self, m: int, n: int, k: int) -> Problem:
        """Return the column-major problem of a row-major size."""

    @abstractmethod
    def ready(self) -> Iterable[Any]:
        """Yield `count` rungs, compiled and checked."""

    @abstractmethod
    def measure(self, problem: Problem, observer: Callable[[str], None]) -> dict[str, Any]:
        """Return one problem's record."""

    def problems(self, sizes: str | None) -> list[Problem]:
        """Return the problems of row-major sizes, the ladder's own without any."""
        from tilewright.bench.sizes import parse_sizes

        own = self.gpu_sizes if self.live.spec.kind == "gpu" else self.cpu_sizes
        return [self.problem(m, n, k) for m, n, k in parse_sizes(sizes or own)]

    def compile(self) -> None:
        """Compile and check the rungs once for all sizes."""
        from rich.console import Console
        from rich.progress import track

        console = Console(stderr=True, quiet=self.quiet)
        self.rungs = list(
            track(self.ready(), "compiling rungs", self.count, console=console, transient=True)
        )

    def climb(self, problem: Problem) -> dict[str, Any]:
        """Measure one size, print its table, and return its record."""
        from rich.console import Console
        from rich.progress import Progress

        shape = f"{problem.n}x{problem.m}x{problem.k}"
        console = Console(stderr=True, quiet=self.quiet)
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task(shape, total=self.count + len(self.peers))

            def observer(name: str) -> None:
                progress.update(task, advance=1, description=f"{shape} {name}")

            told = self.measure(problem, observer)
        if not self.quiet:
            _show(self.live, told)
        return told


class Simt(Ladder):
    """SGEMM on multiply-add units, with what `tilewright.gemm` runs as the last rung."""

    # The RTX 4070 report's sizes, and some that PoCL does in seconds.
    gpu_sizes = "1024,8192x8192x1024,12288x12288x1024"
    cpu_sizes = "128,256"
    cpu_peer = "numpy"
    count = 7  # and the tuned one, which is another for each problem

    def peer(self, name: str) -> Any:
        """Return a library of `tilewright.bench.peers` that has SGEMM."""
        from tilewright.bench.peers import peer

        found = peer(name, self.live)
        found.check(self.problem(1, 1, 1))
        return found

    def problem(self, m: int, n: int, k: int) -> Problem:
        """Return SGEMM NN, operands exchanged."""
        return Problem(n, m, k, "s")  # type: ignore[arg-type]

    def ready(self) -> Iterable[Any]:
        """Yield the rungs."""
        from tilewright.bench.ladder.climb import rung_contenders

        return rung_contenders(self.live)

    def measure(self, problem: Problem, observer: Callable[[str], None]) -> dict[str, Any]:
        """Return one problem's record."""
        from tilewright.bench.bounded import bound_of
        from tilewright.bench.ladder.climb import climb, tuned_contender
        from tilewright.bench.ladder.record import climb_record

        ours = [*self.rungs, tuned_contender(self.live, problem)]
        results = climb(self.live, problem, ours, self.peers, self.rounds, observer)
        names = [one.name for one in self.peers]
        return climb_record(problem, bound_of(self.live, problem), results, names)


class Tensor(Ladder):
    """BF16 on Hopper's matrix units."""

    gpu_sizes = "2048,4096,8192"
    cpu_sizes = "128,256"
    cpu_peer = ""
    count = 6

    def peer(self, name: str) -> Any:
        """Return cuBLAS: other libraries do not multiply bfloat16."""
        from tilewright.bench.peers.cublas import CuBLAS

        if name != "cublas":
            raise ValueError(f"peer={name!r} does not multiply bfloat16; use cublas")
        return CuBLAS(self.live)

    def problem(self, m: int, n: int, k: int) -> Problem:
        """Return C = A B^T, operands exchanged."""
        from tilewright.bench.ladder.tensor.climb import tensor_problem

        return tensor_problem(m, n, k)

    def ready(self) -> Iterable[Any]:
        """Yield the rungs."""
        from tilewright.bench.ladder.tensor.climb import tensor_contenders

        return tensor_contenders(self.live)

    def measure(self, problem: Problem, observer: Callable[[str], None]) -> dict[str, Any]:
        """Return one problem's record."""
        from tilewright.bench.bounded import bound_of
        from tilewright.bench.ladder.record import climb_record
        from tilewright.bench.ladder.tensor.climb import NAME, climb_tensor

        results = climb_tensor(self.live, problem, self.rungs, self.peers, self.rounds, observer)
        limit = bound_of(self.live, problem, arithmetic="bf16")
        names = [one.name for one in self.peers]
        return climb_record(problem, limit, results, names, NAME)


LADDERS: dict[str, type[Ladder]] = {"simt": Simt, "tensor": Tensor}


def _show(live: LiveDevice, told: dict[str, Any]) -> None:
    """Print one size's table."""
    from rich.table import Table

    limit = told["bound"]
    rate = limit.get("flops_per_second")
    said = f"bound {gigaflops(rate)} by {limit['limiting']}" if rate else limit["missing"]
    table = Table(title=f"{told['problem']} on {live}; {said}", title_justify="left")
    table.add_column("rung")
    table.add_column("what is new")
    columns = ("max error", "kernel, ms", "with transfers, ms", "rate", "% library", "% bound")
    for name in (*columns, "registers", "occupancy"):
        table.add_column(name, justify="right")
    table.add_column("limited by")
    for one in told["rungs"]:
        table.add_row(*_cells(one))
    emit_table(table)


def _cells(one: dict[str, Any]) -> list[str]:
    """Return one rung's cells; a dash for what is not known, the reason where it did not run."""
    if one["reason"]:
        return [one["name"], one["title"], *["-"] * 8, one["reason"]]
    code = one["machine_code"]

    def cell(value: float | None, form: str, scale: float = 1.0) -> str:
        return "-" if value is None else format(value * scale, form)

    return [
        one["name"],
        one["title"],
        cell(one["max_error"], ".1e"),
        cell(one["kernel_seconds"], ".3f", 1e3),
        cell(one["total_seconds"], ".3f", 1e3),
        gigaflops(one["flops_per_second"]),
        cell(one["percent_of_library"], ".1f"),
        cell(one["percent_of_bound"], ".1f"),
        str(code["registers"]) if code else "-",
        f"{100 * code['occupancy']:.0f} %" if code else "-",
        one["limits"] + (f", model {100 * code['pipe_share']:.0f} %" if code else ""),
    ]
