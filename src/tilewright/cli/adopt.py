"""``tilewright adopt``: from a device that nobody tuned for to kernels of its own, in pieces.

::

    microbenchmarks, then of each precision: tune, time, build, verify; then compare

Pieces are what other commands do.  What is done is noted, and a further run goes on after it.  A
piece gets its share of the time that is left; none serves before it was verified.
"""

from __future__ import annotations

import json as json_
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import DeviceOption, JsonOption, emit_json, emit_lines, gigaflops, say

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.hardware import DeviceSpec
    from tilewright.space import Config
    from tilewright.stencil import Variant

__all__ = ["command"]

# What is tuned for: a size that fills any GPU, where all else is timed besides; on CPUs two.
_SIZES = {"gpu": (4096,), "cpu": (1024, 256)}

_TRANSPOSES = ("NN", "NT", "TN", "TT")

# Of tensor cores: one precision of each pace, whose times count for all of it.
_PACES = ("bf16", "int8", "e4m3", "tf32")

# How many of the fastest configs on each tuned problem are timed on other shapes.
_FASTEST = 6

# Shapes of each pair of transposes and kind that are timed at most.
_SHAPES = 140

# The share of the time for each stencil for some problems only, whose few configs all take short
# times.
_SKINNY = 0.2

# The share of its time that a stencil is timed for again at least, after a kernel lost the device.
_LEAST_LEFT = 0.25

# What a portfolio's best kernels may lose, in the mean and at most, of what was timed.
_MEAN, _MOST = 0.008, 0.04

# Seconds for which a build may compile whatever its share: what is not whole serves nothing.
_BUILDING = 60.0

# Processes that verify at once, at most half as many as there are cores: oracles on the host take
# most of the time.
_VERIFIERS = 8

# The least seconds of a piece: a tuner's workers start and its winner is checked, and on few cores
# compiling takes longer, too.
_LEAST_SECONDS = {"gpu": 8.0, "cpu": 10.0}


@dataclass(frozen=True)
class _Piece:
    """A part of the work: its name, its weight in the time, and what does it.

    `run` is given seconds and says whether the piece is whole.  Only what is `local` needs this
    device for itself: a tuner, or the workers of its cluster, see to that.
    """

    name: str
    weight: float
    run: Callable[[float], bool]
    local: bool = True


def command(
    device: DeviceOption = None,
    budget: Annotated[
        str, typer.Option("--budget", help="Time for this run; another goes on: 15m, 1h.")
    ] = "15m",
    precisions: Annotated[
        str | None,
        typer.Option("--precision", help="Such as s,d; short: of tensor cores. All by default."),
    ] = None,
    afresh: Annotated[bool, typer.Option("--afresh", help="Do all pieces again.")] = False,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="A Dask scheduler's address: its workers tune, too."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure a device, tune and build kernels for it, and say what that gained."""
    from contextlib import nullcontext, redirect_stdout

    from tilewright.backend import device as find_device
    from tilewright.paths import data_dir, private_directory
    from tilewright.tuning.budget import seconds_of

    until = time.monotonic() + seconds_of(budget)
    live = find_device(device)
    wanted = _wanted(live, precisions)
    folder = private_directory(data_dir(to_write=True) / "adopted" / live.fingerprint)
    work = _Adoption(live, folder, afresh, device, cluster)
    pieces = list(work.pieces(wanted))
    if cluster is not None:
        work.look_at_workers()
    with redirect_stdout(sys.stderr) if json else nullcontext():
        done = work.do(pieces, until)
    left = [one.name for one in pieces if one.name not in done]
    gained = _read(folder / "compared.json")
    if json:
        emit_json({"device": live.id, "done": done, "left": left, "gained": gained})
        return
    _show(gained)
    if left:
        say(f"{len(left)} of {len(pieces)} pieces are left ({left[0]} first): run it again")


def _wanted(live: LiveDevice, text: str | None) -> list[str]:
    """Return the portfolios that are to be built: letters, and ``short``."""
    from tilewright.precision import precision
    from tilewright.problem import Trans
    from tilewright.stencil import Variant, stencils_for

    def serves(letter: str) -> bool:
        return bool(stencils_for(live.spec, Variant(precision(letter), Trans.T, Trans.N)))

    able = [letter for letter in ("sd" if live.spec.kind == "cpu" else "sdcz") if serves(letter)]
    if live.backend == "cuda" and any(map(serves, _PACES)):
        able.append("short")
    chosen = able if text is None else [one.strip() for one in text.split(",")]
    for one in chosen:
        if one not in able:
            raise ValueError(f"precision={text!r} has {one!r}; {live.id} takes {', '.join(able)}")
    return chosen


def _read(path: Path) -> dict[str, Any]:
    """Return what an earlier run wrote; nothing where there is none."""
    if not path.exists():
        return {}
    found: dict[str, Any] = json_.loads(path.read_text(encoding="utf-8"))
    return found


def _letters(name: str) -> tuple[str, ...]:
    """Return the precisions that are timed for a portfolio."""
    return _PACES if name == "short" else (name,)


def _asked(variant: Variant, spec: DeviceSpec) -> list[tuple[str, bool]]:
    """Return the stencils that are timed, the usual one last, and whether on columns as they lie.

    Of the usual one those kernels that take columns of any alignment are timed by themselves.
    """
    from tilewright.stencil import stencil, stencils_for

    first, *others = (one.name for one in stencils_for(spec, variant))
    usual = stencil(first)
    any_alignment = (usual.geometry(one).any_alignment for one in usual.starts(variant, spec))
    found = [(name, False) for name in others if stencil(name).shapes]
    return [*found, *[(first, True)] * any(any_alignment), (first, False)]


@dataclass(frozen=True)
class _Adoption:
    """The work on one device, and the folder that notes what is done.

    `device` is what workers of a `cluster` call theirs; without it those of the host that are like
    this one help to tune.
    """

    live: LiveDevice
    folder: Path
    afresh: bool
    device: str | None = None
    cluster: str | None = None

    def look_at_workers(self) -> None:
        """Refuse a cluster whose workers have a device of another kind."""
        from contextlib import closing

        from tilewright.tuning.cluster import Cluster

        with closing(Cluster(self.cluster, self.device, "s")) as joined:
            there = joined.live
        assert there is not None  # or it was refused
        if there.fingerprint != self.live.fingerprint:
            raise ValueError(
                f"cluster={self.cluster!r} has {there.spec.name} ({there.fingerprint}), which is"
                f" not adopted here; run adopt where one is, or name it by --device"
            )

    def pieces(self, wanted: list[str]) -> Iterator[_Piece]:
        """Yield all pieces in order."""
        sizes = _SIZES[self.live.spec.kind]
        yield _Piece("microbenchmarks", 0.5, self._microbench)
        for name in wanted:
            for trans in () if name == "short" else _TRANSPOSES:
                for size in sizes:
                    run = partial(self._tune, name, trans, size)
                    yield _Piece(f"tune {name} {trans} {size}", 0.5, run, local=False)
            if self.live.backend == "cuda":
                letters = _letters(name)
                for letter in letters:
                    yield _Piece(f"time {letter}", 5.0, partial(self._time, letter))
                many = len(letters)  # as many kernels more are built and verified
                yield _Piece(f"build {name}", 1.0 * many, partial(self._build, name))
                yield _Piece(f"verify {name}", 2.0 * many, partial(self._verify, name))
        yield _Piece("compare", 1.0, partial(self._compare, wanted))

    def do(self, pieces: list[_Piece], until: float) -> dict[str, str]:
        """Do what is not done yet until a time; return when each piece was done."""
        from contextlib import nullcontext

        from tilewright.paths import write_json
        from tilewright.portfolio import reload
        from tilewright.tuning.alone import alone_on

        noted = self.folder / "done.json"
        done: dict[str, str] = {} if self.afresh else _read(noted)
        left = [one for one in pieces if one.name not in done]
        if left and pieces[-1] not in left:  # it compared what served before
            left.append(pieces[-1])
            del done[pieces[-1].name]
        for number, piece in enumerate(left):
            remaining = until - time.monotonic()
            if remaining <= 0:
                break
            share = piece.weight / sum(one.weight for one in left[number:]) * remaining
            seconds = max(_LEAST_SECONDS[self.live.spec.kind], share)
            say(f"{piece.name}: some {seconds:.0f} s")
            alone = alone_on(self.live, "tilewright adopt") if piece.local else nullcontext()
            try:
                with alone:
                    whole = piece.run(seconds)
            except (RuntimeError, ArithmeticError) as error:
                say(f"  {error}")
                continue
            reload()  # a piece that is not whole may have changed what serves, too
            if whole:
                done[piece.name] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                write_json(noted, done)
        return done

    def _microbench(self, seconds: float) -> bool:
        from tilewright.cli.microbench import measure
        from tilewright.microbench.session import fitting

        path = self.folder / "microbench.json"
        measure(self.live, fitting(self.live), max(seconds, 1.0), path, quiet=True)
        return True

    def _tune(self, letter: str, trans: str, size: int, seconds: float) -> bool:
        from tilewright.portfolio.tuned import keep, tune
        from tilewright.problem import Problem

        problem = Problem(size, size, size, letter, *trans)  # type: ignore[arg-type]
        about = {"budget": seconds, "resume": not self.afresh, "cluster": self.cluster}
        found = tune(problem, self.device, **about)
        if self.cluster and found.served is not None:  # elsewhere it is kept there
            keep(self.live, found.served)
        rate = gigaflops(found.winner.flops_per_second)
        say(f"  {found.tried} candidates, {found.failed} failed; {rate}")
        return True

    def _time(self, letter: str, seconds: float) -> bool:
        """Time what was tuned, begun with or listed, on shapes of every kind."""
        from concurrent.futures import ThreadPoolExecutor

        from tilewright.backend.cuda.device import CUDADevice
        from tilewright.cli.portfolio_build import stored
        from tilewright.paths import write_atomically
        from tilewright.portfolio.measure import text_of
        from tilewright.precision import precision
        from tilewright.problem import Trans
        from tilewright.reschedule.levels import unscheduled
        from tilewright.stencil import Variant

        assert isinstance(self.live, CUDADevice)  # whose pieces these are
        until = time.monotonic() + seconds
        variant = Variant(precision(letter), Trans.T, Trans.N)
        asked = _asked(variant, self.live.spec)
        first = asked[-1][0]
        cases = next((one.cases for one in stored(letter, self.live)), {})
        beside = ThreadPoolExecutor(1)  # processes list what is timed last
        listed = beside.submit(self._listed, letter, first)
        beside.shutdown(wait=False)
        for name, unaligned in asked:
            last = name == first and not unaligned
            also = listed.result() if last else {}
            for of, case in cases.items() if not unaligned else ():
                also.setdefault(of, []).extend(case.fastest(_FASTEST, name))
            whole = _SKINNY * seconds
            if last:  # what is left, or half where compiling took the rest
                whole = max(seconds / 2, until - time.monotonic())
            made, lost = self._timed(letter, name, whole, also, unaligned=unaligned)
            for trans, found in made["cases"].items():
                many = len(found["shapes"]), len(found["configs"])
                kind = " unaligned" if unaligned else ""
                say(f"  {name}{kind} {trans}: {many[0]} shapes, {many[1]} configs")
            for of, case in cases.items() if last else ():
                if (trans := f"{of.trans_a}{of.trans_b}") in made["cases"]:
                    made["cases"][trans]["won"] = [
                        {"size": [at.m, at.n, at.k], "config": dict(config), "ns": ns}
                        for at, (config, ns) in case.won.items()
                        if config.stencil == name and unscheduled(config) not in lost
                    ]
            which = "times" if last else f"also-{name}" + unaligned * "-unaligned"
            write_atomically(self.folder / f"{which}-{letter}.json", text_of(made).encode())
            if name == "skinny":  # whose times an adoption of before wrote there
                (self.folder / f"also-{letter}.json").unlink(missing_ok=True)
        return True

    def _timed(
        self,
        letter: str,
        name: str,
        seconds: float,
        also: dict[Variant, list[Config]],
        *,
        unaligned: bool,
    ) -> tuple[dict[str, Any], list[Config]]:
        """Return a stencil's times, and the configs that lost the device, in this run or before.

        Those are not timed.  While there is time, another process begins without the last of them.
        """
        from tilewright.backend.cuda.device import CUDADevice
        from tilewright.paths import write_json
        from tilewright.portfolio.measure_apart import measure_apart
        from tilewright.portfolio.timers import LostToError
        from tilewright.space import Config

        assert isinstance(self.live, CUDADevice)
        noted = self.folder / f"lost-{letter}-{name}.json"
        rows = [] if self.afresh else _read(noted).get("lost", [])
        until = time.monotonic() + seconds
        while True:
            left = max(_LEAST_LEFT * seconds, until - time.monotonic())
            lost = [Config(name, row["config"]) for row in rows]
            try:
                about = self.live, letter, name, _SHAPES, left, also, lost
                made = measure_apart(*about, unaligned=unaligned)
            except LostToError as error:
                say(f"  left out: {error}")
                rows.append({"config": dict(error.config), "why": str(error)})
                write_json(noted, {"lost": rows})
                if time.monotonic() > until:
                    raise RuntimeError(f"{name} has no time left; run it again") from None
                continue
            if not rows:  # an adoption before, which this one does not go on with, lost some
                noted.unlink(missing_ok=True)
            return made, lost

    def _listed(self, letter: str, name: str) -> dict[Variant, list[Config]]:
        """Return configs that other devices' portfolios have, or a static model expects most of."""
        from concurrent.futures import ProcessPoolExecutor
        from itertools import repeat
        from multiprocessing import get_context

        from tilewright.parent import end_with
        from tilewright.portfolio.shortlist import of_other_devices, shortlist
        from tilewright.precision import precision
        from tilewright.problem import Trans
        from tilewright.stencil import Variant, stencil

        family, of, spec = stencil(name), precision(letter), self.live.spec
        pairs = [Variant(of, Trans(pair[0]), Trans(pair[1])) for pair in _TRANSPOSES]
        variants = [one for one in pairs if family.computes(one)]
        short = letter in _PACES  # whose operands tensor cores load: the model knows threads
        portfolio = "short" if short else letter
        found = {one: of_other_devices(portfolio, family, one, spec) for one in variants}
        if not short:
            ours = get_context("spawn"), end_with, (os.getpid(),)  # a forked driver is of no use
            with ProcessPoolExecutor(len(variants), *ours) as pool:  # 3 s each of Python
                listed = pool.map(shortlist, repeat(family), variants, repeat(spec))
                for one, more in zip(variants, listed, strict=True):
                    found[one] += more
        return found

    def _build(self, name: str, seconds: float, verified: Path | None = None) -> bool:
        """Pick, compile and pack; what is verified serves, what is not stays here."""
        from tilewright.cli.portfolio_build import build

        times, also = (
            [
                path
                for one in _letters(name)
                for path in sorted(self.folder.glob(f"{of}-{one}.json"))
            ]
            for of in ("times", "also*")
        )
        build(
            name, self.folder / "work", None if verified else self.folder / f"built-{name}", times,
            self.live.id, max(_BUILDING, seconds), _MEAN, _MOST, also=also, verified=verified,
        )  # fmt: skip
        return True

    def _verify(self, name: str, seconds: float) -> bool:
        """Run all that was built, in processes that may fail; let what is right serve."""
        from tilewright.paths import write_json
        from tilewright.tuning.process import ONE_BLAS_THREAD

        if not (self.folder / f"built-{name}").exists():
            say("  nothing is built yet")
            return False
        many = max(1, min(_VERIFIERS, len(os.sched_getaffinity(0)) // 2))
        paths = [self.folder / f"right-{name}-{part}.json" for part in range(many)]
        running: list[subprocess.Popen[str]] = []
        try:
            for part, path in enumerate(paths):
                begun = subprocess.Popen(  # noqa: S603  # our own command, no shell
                    [
                        sys.executable, "-m", "tilewright", "portfolio", "verify", "--run",
                        "--json", "--folder", self.folder / f"built-{name}", "--device",
                        self.live.id, "--share", f"{part}/{many}", "--seconds", str(seconds),
                        "-o", path,
                    ],
                    stdout=subprocess.PIPE, text=True, env=os.environ | ONE_BLAS_THREAD,
                )  # fmt: skip
                running.append(begun)
            told = [one.communicate()[0] for one in running]
        finally:  # stopped or not, none is left on the device when others may have it
            for one in running:
                one.terminate()
            for one in running:
                one.wait()
        rows = [row for text in told if text.strip() for row in json_.loads(text)]
        for row in rows:
            for what in row["wrong"].values():
                say(f"  wrong, and left out: {what}")
        right = self.folder / f"right-{name}.json"
        passed = {digest: at for path in paths for digest, at in _read(path).items()}
        write_json(right, passed)
        if passed:  # what is right serves, whatever is still to be run
            self._build(name, _BUILDING, right)
        left = sum(row["left"] for row in rows)
        if left or len(rows) < many:
            say(f"  {left} instances are still to be run, of {len(rows)} shares of {many}")
            return False
        return True

    def _compare(self, wanted: list[str], seconds: float) -> bool:
        """Time what serves now beside the defaults and the vendor's library, on drawn shapes."""
        from statistics import geometric_mean

        from tilewright.bench.beside_defaults import beside_defaults
        from tilewright.paths import write_json

        until = time.monotonic() + seconds
        letters = [letter for name in wanted for letter in _letters(name)]
        told = _read(self.folder / "compared.json")  # of other precisions
        for number, letter in enumerate(letters):
            share = (until - time.monotonic()) / (len(letters) - number)
            rows = list(beside_defaults(self.live, letter, time.monotonic() + share))
            ratios: dict[str, list[float]] = {}
            for row in rows:
                for rival, taken in row.items():
                    ratios.setdefault(rival, []).append(taken / row["tilewright"])
            means = {name: geometric_mean(x) for name, x in ratios.items() if name != "tilewright"}
            told[letter] = {"shapes": len(rows), "times as fast as": means}
        write_json(self.folder / "compared.json", told)
        return True


def _show(gained: dict[str, Any]) -> None:
    """Print what was gained."""
    means = [(letter, row["shapes"], row["times as fast as"]) for letter, row in gained.items()]
    rivals = list(dict.fromkeys(rival for *_, row in means for rival in row))
    if means:
        emit_lines(
            ("precision", "shapes", *(f"times as fast as {rival}" for rival in rivals)),
            [
                (letter, shapes, *(f"{row[x]:.2f}" if x in row else "-" for x in rivals))
                for letter, shapes, row in means
            ],
            title="Random shapes, geometric means",
        )
