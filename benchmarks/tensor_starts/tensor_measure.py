"""What `benchmarks.tensor_starts.tensor` does on a device: candidates tried, races, errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from benchmarks.tensor_starts.hopper.pool import in_processes

from tilewright.bench.bounded import bound_of, bound_record
from tilewright.bench.peers.formats import format_peer
from tilewright.bench.tensor.accuracy import Exact, draw, errors
from tilewright.bench.tensor.cases import Case, candidates, tuned_as
from tilewright.bench.tensor.products import Matrices, Sample
from tilewright.microbench.power import sample_power
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil.wgmma import Wgmma

FAMILY = Wgmma()
# Rows and columns of C on which every kernel is checked at every size, and accuracy is judged.
SAMPLE = (256, 64)
JUDGED = (1024, 1024)
# Sides of the matrices that are drawn; larger ones repeat them, and are not kept.
DRAWN = 4096
FINALISTS = 3
# Of an earlier result's best for each size, so many are tried.
SEEDS = 2


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


@dataclass
class Laid:
    """Matrices of one size, and what is known of their products."""

    matrices: Matrices
    exact: dict[tuple[str, str], Exact] = field(default_factory=dict)
    single: dict[str, dict[str, float]] = field(default_factory=dict)


class Measuring:
    """A device, its library, and the matrices of small sizes and of one large one.

    Parameters
    ----------
    log : Log
        Of `benchmarks.tensor_starts.hopper.log`: where rows go, and what earlier processes did.
    live : LiveDevice
        Where.
    seed : list of dict, optional
        Rows of an earlier result: what was best there is tried first.
    """

    def __init__(self, log: Any, live: Any, seed: list[dict[str, Any]] | None = None) -> None:
        from tilewright.bench.record import device_record

        self.log, self.live = log, live
        self.started = time.time()
        self.peer = format_peer(live)
        self._seed = [row for row in seed or [] if row["kind"] == "tried"]
        self._laid: dict[tuple[int, str], Laid] = {}
        self._drawn: dict[tuple[int, str], tuple[Any, Any]] = {}
        if not log.of("device"):
            log.add(kind="device", device=device_record(live, [self.peer]))

    # -- matrices --------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Print what happens, and when."""
        print(f"{time.time() - self.started:5.1f} s: {text}", flush=True)

    def laid(self, size: int, trans: str, data: str = "normal") -> Laid:
        """Return square matrices of a size; other large ones, and other data, are given back."""
        if (size, data) not in self._laid:
            for known in [(n, d) for n, d in self._laid if n > DRAWN or d != data]:
                self._laid.pop(known).matrices.close()
            drawn = min(size, DRAWN), data
            if drawn not in self._drawn:
                rng = np.random.default_rng(0)
                self._drawn = {drawn: tuple(draw(rng, (drawn[0],) * 2, data) for _ in "ab")}  # type: ignore[dict-item]
            problem = Problem(size, size, size, "s")
            self._laid[size, data] = Laid(Matrices(self.live, problem, *self._drawn[drawn]))
        found = self._laid[size, data]
        found.matrices.turn(trans)
        return found

    def _sample(self, laid: Laid, case: Case, sides: tuple[int, int] = SAMPLE) -> Exact:
        """Return the exact product of what a case's library multiplies, in a sample of C."""
        p = laid.matrices.problem
        key = case.peer, case.trans
        if key not in laid.exact:
            rng = np.random.default_rng(1)
            sample: Sample = (rng.integers(0, p.m, sides[0]), rng.integers(0, p.n, sides[1]))
            laid.exact[key] = laid.matrices.exact(case.peer, sample)
        return laid.exact[key]

    @staticmethod
    def _errors(laid: Laid, case: Case, call: Any, exact: Exact) -> dict[str, float]:
        assert exact.sample is not None
        picked = laid.matrices.picked(call, case.result, exact.sample)
        return errors(picked, exact, picked=True)

    def _right(self, laid: Laid, case: Case, call: Any) -> dict[str, float]:
        """Return a call's errors in some rows and columns.

        Raises
        ------
        ValueError
            If they are larger than rounding can make them; of single precision in parts, if
            they are larger than SGEMM's on the same numbers.
        """
        exact = self._sample(laid, case)
        found = self._errors(laid, case, call, exact)
        most = {"eta": allowed(case, laid.matrices.problem.k)}
        if case.peer == "s":
            if case.trans not in laid.single:
                theirs = laid.matrices.theirs(case, self.peer)
                laid.single[case.trans] = self._errors(laid, case, theirs, exact)
            most = {what: laid.single[case.trans][what] for what in ("eta", "median_relative")}
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
                laid = self.laid(size, case.trans)
                call = laid.matrices.ours(case, config)  # parts are there from now on
                self._right(laid, case, call)
                alone = laid.matrices.ours(case, config, split=False)
                times[size] = float(np.median([alone() for _ in range(6)][1:]))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            if getattr(self.live, "lost", None):
                self.log.add(kind="tried", reason=reason, ns={}, **row)
                raise
        self.log.add(kind="tried", reason=reason, ns=times, **row)

    def _times(
        self, case: Case, size: int, rows: list[dict[str, Any]] | None = None
    ) -> dict[Any, float]:
        """Return the times of a tuned case's candidates at a size, by their values."""
        found = {}
        for row in self.log.of("tried") if rows is None else rows:
            ns = {int(n): t for n, t in row["ns"].items()}
            if row["case"] == str(case) and not row["reason"] and size in ns:
                found[tuple(row["config"].items())] = ns[size]
        return found

    def ranked(self, case: Case, size: int) -> list[Config]:
        """Return the best candidates for a size, of the nearest size that was timed."""
        found = self._nearest(self.log.of("tried"), case, size)
        first = self._nearest(self._seed, case, size) or candidates(case, self.live.spec)
        return (found or first)[:FINALISTS]

    def seeded(self, case: Case, size: int) -> list[Config]:
        """Return what was best for a size in an earlier result, where it still can be."""
        space = FAMILY.space(case.variant, self.live.spec)
        found = self._nearest(self._seed, case, size)
        return [config for config in found if config in space][:SEEDS]

    def _nearest(self, rows: list[dict[str, Any]], case: Case, size: int) -> list[Config]:
        """Return a case's candidates, the fastest first, at the nearest size that was timed."""
        sizes = {int(n) for row in rows for n in row["ns"]}
        for near in sorted(sizes, key=lambda n: abs(np.log(n / size))):
            times = self._times(tuned_as(case), near, rows)
            if times:
                order = sorted(times, key=lambda values: times[values])
                return [Config(FAMILY.name, dict(values)) for values in order]
        return []

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

    def _fastest(self, laid: Laid, case: Case, size: int) -> tuple[Config, dict[str, Any]]:
        """Return the fastest of the best candidates here, in turns, and its errors."""
        calls, found = {}, {}
        matrices = laid.matrices
        for config in self.ranked(case, size):
            try:
                call = matrices.ours(case, config)
                found[config] = self._right(laid, case, call)
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
        laid = self.laid(size, case.trans)
        matrices = laid.matrices
        config, found = self._fastest(laid, case, size)
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
        self.say(f"{case} {size:5}: {rates['tilewright']:.1f} against {rates['cublas']:.1f}")
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
        laid = self.laid(size, trans, data)
        laid.exact.clear()  # a larger sample than a check's
        found: dict[str, Any] = {}
        failed: dict[str, str] = {}
        for name in arithmetics:
            case = Case(name, trans)
            theirs = "sgemm" if case.peer == "s" else f"cublas {name}"
            for who in (name, theirs):
                if who in found:
                    continue
                try:
                    exact = self._sample(laid, case, JUDGED)
                    if who == name:
                        call = laid.matrices.ours(case, self.ranked(case, size)[0])
                    else:
                        call = laid.matrices.theirs(case, self.peer)
                    found[who] = self._errors(laid, case, call, exact)
                except Exception as error:
                    failed[who] = f"{type(error).__name__}: {error}".splitlines()[0]
        try:
            told, result = self._guarded(laid.matrices)
            exact = self._sample(laid, Case("fp16x3", trans), JUDGED)
            found["guarded"] = errors(result, exact)
            row["guard"] = told
        except Exception as error:
            failed["guarded"] = f"{type(error).__name__}: {error}".splitlines()[0]
        laid.exact.clear()
        self.log.add(kind="accuracy", errors=found, failed=failed, sample=JUDGED, **row)
        self.say(f"accuracy {data} {size}: "
                 + ", ".join(f"{n} {e['eta']:.1e}" for n, e in found.items()))  # fmt: skip

    def _guarded(self, matrices: Matrices) -> tuple[dict[str, Any], Any]:
        """Return the guard's decision, and C^T as the library's accuracy "fp32" computes it."""
        import tilewright as tw
        from tilewright.library.split.product import serve_unproved

        told = tw.Decision()
        a, b = (matrices.values(x) for x in "ab")  # op(A) is a, op(B) is b transposed
        with serve_unproved():
            c = tw.gemm(a, b.T, accuracy="fp32", report=told, device=self.live)
        return told.as_dict(), c.T
