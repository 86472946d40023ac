"""What `benchmarks.tensor` does on a device: candidates tried, races, errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from benchmarks.hopper.pool import in_processes

from tilewright.bench.bounded import bound_of, bound_record
from tilewright.bench.formats import FORMATS
from tilewright.bench.peers.formats import format_peer
from tilewright.bench.tensor.accuracy import Exact, draw, errors
from tilewright.bench.tensor.cases import Case, tuned_as
from tilewright.bench.tensor.products import Matrices
from tilewright.microbench.power import sample_power
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil.wgmma import Wgmma

FAMILY = Wgmma()
# Rows and columns of C on which every kernel is checked at every size.
SAMPLE = (256, 64)
# Sides of the matrices that are drawn; larger ones repeat them.
DRAWN = 4096
# Candidates so much slower than the best are timed at one size only.
HOPELESS = 1.15
FINALISTS = 3


# Over cuBLAS, by size: what the project wants of FP32 in parts, of 16 bits, and of TF32.
WANTED: dict[str, dict[int, float]] = {
    "fp32": {1024: 1.5, 2048: 2.3, 4096: 3.2, 8192: 3.5, 16384: 3.5},
    "16": {1024: 1.0, 2048: 1.0, 4096: 1.05, 8192: 1.05, 16384: 1.0},
    "tf32": {4096: 1.0, 8192: 1.0},
    "tf32 NT": {4096: 1.4, 8192: 1.3},
}


def wanted(case: Case, size: int) -> float | None:
    """Return the ratio that is asked for, if any."""
    if case.arithmetic == "tf32":
        row = WANTED["tf32 NT" if case.trans == "NT" else "tf32"]
    else:
        row = WANTED["fp32" if case.peer == "s" else "16"]
    return row.get(size)


def compile_one(case: Case, values: dict[str, Any], arch: str) -> str:
    """Put a candidate's cubin into the disk cache; return why not, or nothing."""
    from tilewright.backend.cache import KernelCache
    from tilewright.backend.cuda.compiler import cached_cubin

    try:
        config = Config(FAMILY.name, values)
        cached_cubin(FAMILY.source(config, case.variant, "cuda"), arch, KernelCache())
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def compile_all(
    live: Any, jobs: list[tuple[Case, Config]], workers: int, until: float
) -> Iterator[tuple[Case, Config, str]]:
    """Compile in other processes; yield each candidate when it is ready, until a time."""
    if live.backend != "cuda":  # it compiles by itself when it is asked to
        yield from ((case, config, "") for case, config in jobs)
        return
    calls = [(case, dict(config), live.arch) for case, config in jobs]
    for job, reason in in_processes(compile_one, jobs, calls, workers, until):
        yield (*job, reason)


def allowed(case: Case, k: int) -> float:
    """Return the largest eta that a right kernel may have.

    A sum cut at every step, a result rounded to its type, operands rounded to TF32.
    """
    rounded = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(case.result, 0.0)
    operands = 2 * 2.0**-11 if case.arithmetic == "tf32" else 0.0
    return k * 2.0**-21 + rounded + operands


class Measuring:
    """A device, its library, and the matrices of one size at a time.

    Parameters
    ----------
    log : Log
        Of `benchmarks.hopper.log`: where rows go, and what earlier processes did.
    live : LiveDevice
        Where.
    """

    def __init__(self, log: Any, live: Any) -> None:
        from tilewright.bench.record import device_record

        self.log, self.live = log, live
        self.peer = format_peer(live)
        self._size, self._data, self._matrices = 0, "", None
        self._exact: dict[tuple[str, str], Exact] = {}
        self._single: dict[str, dict[str, float]] = {}
        if not log.of("device"):
            log.add(kind="device", device=device_record(live, [self.peer]))

    # -- matrices --------------------------------------------------------------------------

    def matrices(self, size: int, trans: str, data: str = "normal") -> Matrices:
        """Return square matrices of a size; those of another one are given back."""
        if (size, data) != (self._size, self._data):
            if self._matrices is not None:
                self._matrices.close()
            rng = np.random.default_rng(0)
            a, b = (draw(rng, (min(size, DRAWN),) * 2, data) for _ in "ab")
            self._matrices = Matrices(self.live, Problem(size, size, size, "s"), a, b)
            self._size, self._data = size, data
            self._exact, self._single = {}, {}
        self._matrices.turn(trans)
        return self._matrices

    def _right(self, matrices: Matrices, case: Case, call: Any) -> dict[str, float]:
        """Return a call's errors in some rows and columns.

        Raises
        ------
        ValueError
            If they are larger than rounding can make them; of single precision in parts, if
            they are larger than SGEMM's on the same numbers.
        """
        p = matrices.problem
        name = case.arithmetic if case.arithmetic in FORMATS else "s"
        key = name, case.trans
        if key not in self._exact:
            rng = np.random.default_rng(1)
            sample = rng.integers(0, p.m, SAMPLE[0]), rng.integers(0, p.n, SAMPLE[1])
            self._exact[key] = Exact(p, *(matrices.values(x, name) for x in "ab"), sample)
        found = errors(matrices.result(call, case.result), self._exact[key])
        most = {"eta": allowed(case, p.k)}
        if name == "s":
            if case.trans not in self._single:
                theirs = matrices.result(matrices.theirs(case, self.peer), case.result)
                self._single[case.trans] = errors(theirs, self._exact[key])
            most = {what: self._single[case.trans][what] for what in ("eta", "median_relative")}
        for what, limit in most.items():
            if not found[what] <= limit:
                raise ValueError(f"{what} is {found[what]:.2e}, at most {limit:.2e}")
        return found

    # -- tuning ----------------------------------------------------------------------------

    def attempt(self, case: Case, config: Config, sizes: list[int], reason: str) -> None:
        """Check a candidate, then time it; a failure is a row with its reason."""
        row = {"case": str(case), "id": config.id, "config": dict(config)}
        self.log.add(kind="started", **row)
        times: dict[int, float] = {}
        try:
            for size in () if reason else sizes:
                matrices = self.matrices(size, case.trans)
                call = matrices.ours(case, config)  # parts are there from now on
                self._right(matrices, case, call)
                alone = matrices.ours(case, config, split=False)
                times[size] = float(np.median([alone() for _ in range(5)][1:]))
                best = self._times(case, size)
                if best and times[size] > HOPELESS * min(best.values()):
                    break
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            if getattr(self.live, "lost", None):
                self.log.add(kind="tried", reason=reason, ns={}, **row)
                raise
        self.log.add(kind="tried", reason=reason, ns=times, **row)

    def _times(self, case: Case, size: int) -> dict[Any, float]:
        """Return the times of a tuned case's candidates at a size, by their values."""
        found = {}
        for row in self.log.of("tried"):
            ns = {int(n): t for n, t in row["ns"].items()}
            if row["case"] == str(case) and not row["reason"] and size in ns:
                found[tuple(row["config"].items())] = ns[size]
        return found

    def ranked(self, case: Case, size: int) -> list[Config]:
        """Return the best candidates for a size, of the nearest size that was timed."""
        tuned = tuned_as(case)
        sizes = {int(n) for row in self.log.of("tried") for n in row["ns"]}
        for near in sorted(sizes, key=lambda n: abs(np.log(n / size))):
            times = self._times(tuned, near)
            if times:
                order = sorted(times, key=lambda values: times[values])
                return [Config(FAMILY.name, dict(values)) for values in order[:FINALISTS]]
        return list(FAMILY.starts(case.variant, self.live.spec)[:FINALISTS])

    def best(self, case: Case, size: int) -> Config | None:
        """Return a case's fastest candidate at a size so far."""
        times = self._times(case, size)
        return Config(FAMILY.name, dict(min(times, key=lambda v: times[v]))) if times else None

    # -- races -----------------------------------------------------------------------------

    def race(self, size: int, cases: list[Case], until: float) -> None:
        """Race every case at a size with the library, A B A B, until a time."""
        for case in cases:
            if time.time() > until:
                return
            row: dict[str, Any] = {"case": str(case), "size": size}
            self.log.add(kind="racing", **row)
            try:
                row |= self._raced(size, case)
            except Exception as error:
                row["reason"] = f"{type(error).__name__}: {error}".splitlines()[0]
                if getattr(self.live, "lost", None):
                    self.log.add(kind="race", **row)
                    raise
            self.log.add(kind="race", **row)

    def _fastest(self, matrices: Matrices, case: Case, size: int) -> tuple[Config, dict[str, Any]]:
        """Return the fastest of the best candidates here, in turns, and its errors."""
        calls, found = {}, {}
        for config in self.ranked(case, size):
            try:
                call = matrices.ours(case, config)
                found[config] = self._right(matrices, case, call)
                calls[config] = matrices.ours(case, config, split=False)
            except ValueError as error:
                found[config] = {"reason": str(error)}
        if not calls:
            raise ValueError("; ".join(sorted({e["reason"] for e in found.values()})))
        times: dict[Config, list[int]] = {config: [] for config in calls}
        for _ in range(3 if size > 8192 else 5):
            for config, call in calls.items():
                times[config].append(call())
        best = min(calls, key=lambda config: float(np.median(times[config])))
        return best, found[best]

    def _raced(self, size: int, case: Case) -> dict[str, Any]:
        matrices = self.matrices(size, case.trans)
        config, found = self._fastest(matrices, case, size)
        calls = {"tilewright": matrices.ours(case, config)}
        calls["cublas"] = matrices.theirs(case, self.peer)
        if case.scheme is not None:
            calls["split"] = matrices.split(case)
            calls["product"] = matrices.ours(case, config, split=False)
        if case.arithmetic == "fp16x3":
            try:  # what users get is no candidate's fault
                guarded = matrices.guarded()
                guarded()
                calls["guarded"] = guarded
            except Exception as error:
                found["guarded"] = f"{type(error).__name__}: {error}".splitlines()[0]
        rounds = 5 if size > 8192 else 11 if size > 4096 else 21
        times: dict[str, list[int]] = {name: [] for name in calls}
        with sample_power(self.live) as power:
            for turn in range(rounds + 1):
                for name, call in calls.items():
                    taken = call()
                    if turn:  # the first warms up
                        times[name].append(taken)
        flops = 2 * size**3
        rates = {n: flops / float(np.median(ns)) / 1e3 for n, ns in times.items() if n != "split"}
        limit = bound_of(self.live, matrices.problem, arithmetic=case.bound)
        ratio = rates["tilewright"] / rates["cublas"]
        print(f"{case} {size:5}: {rates['tilewright']:.1f} against {rates['cublas']:.1f}",
              flush=True)  # fmt: skip
        return {
            "config": dict(config), "id": config.id, "ns": times, "tflops": rates,
            "ratio": ratio, "wanted": wanted(case, size), "errors": found,
            "bound": bound_record(limit), "clock_hz": power.clock_hz, "power_w": power.power_w,
            "throttle_reasons": power.reasons,
        }  # fmt: skip

    # -- accuracy --------------------------------------------------------------------------

    def accuracy(self, size: int, data: str, arithmetics: list[str]) -> None:
        """Add a row of everybody's errors on the same inputs, the library's among them."""
        trans = "TN"
        row: dict[str, Any] = {"size": size, "data": data, "trans": trans}
        self.log.add(kind="judging", **row)
        matrices = self.matrices(size, trans, data)
        exact: dict[str, Exact] = {}
        found: dict[str, Any] = {}
        failed: dict[str, str] = {}
        for name in arithmetics:
            case = Case(name, trans)
            if case.peer not in exact:
                held = (matrices.values(x, case.peer) for x in "ab")
                exact[case.peer] = Exact(matrices.problem, *held)
            theirs = "sgemm" if case.peer == "s" else f"cublas {name}"
            for who in (name, theirs):
                if who in found:
                    continue
                try:
                    if who == name:
                        call = matrices.ours(case, self.ranked(case, size)[0])
                    else:
                        call = matrices.theirs(case, self.peer)
                    found[who] = errors(matrices.result(call, case.result), exact[case.peer])
                except Exception as error:
                    failed[who] = f"{type(error).__name__}: {error}".splitlines()[0]
        try:
            told, result = self._guarded(matrices)
            held = (matrices.values(x) for x in "ab")
            found["guarded"] = errors(result, exact.get("s") or Exact(matrices.problem, *held))
            row["guard"] = told
        except Exception as error:
            failed["guarded"] = f"{type(error).__name__}: {error}".splitlines()[0]
        self.log.add(kind="accuracy", errors=found, failed=failed, **row)
        print(f"accuracy {data} {size}: " + ", ".join(f"{n} {e['eta']:.1e}" for n, e in
              found.items()), flush=True)  # fmt: skip

    def _guarded(self, matrices: Matrices) -> tuple[dict[str, Any], Any]:
        """Return the guard's decision, and C^T as the library's accuracy "fp32" computes it."""
        import tilewright as tw
        from tilewright.library.split.product import serve_unproved

        told = tw.Decision()
        a, b = (matrices.values(x) for x in "ab")  # op(A) is a, op(B) is b transposed
        with serve_unproved():
            c = tw.gemm(a, b.T, accuracy="fp32", report=told, device=self.live)
        return told.as_dict(), c.T
