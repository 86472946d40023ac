"""Reproducers: one Python file that shows what a candidate did, for whoever must mend it.

The file needs NumPy and pyopencl (for CUDA: cuda-bindings and NVRTC), not Tilewright: it
can be attached to a report to a driver's makers.  ``reproducers/`` has a template of it, and what
each backend puts there.  What takes more than one plain launch, such as two kernels, clusters,
tensor maps or rescheduled machine code, is run by Tilewright itself, in a file that names it.
"""

from __future__ import annotations

import pprint
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from string import Template
from typing import Any

from tilewright.backend.cuda.compiler import OPTIONS as CUDA_OPTIONS
from tilewright.backend.opencl.device import OPTIONS as OPENCL_OPTIONS
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem
from tilewright.reschedule.levels import is_rescheduled
from tilewright.stencil.geometry import Launch
from tilewright.stencil.source import Source, Workspace
from tilewright.tuning.measurement import Measurement, Status
from tilewright.tuning.record import problem_to_json
from tilewright.version import VERSION

__all__ = ["Case", "cases_of", "reproducer"]

# What the backend compiles with, besides a source's own macros.
_OPTIONS: dict[str, tuple[str, ...]] = {"opencl": OPENCL_OPTIONS, "cuda": CUDA_OPTIONS}

# What its file needs besides Python.
_PACKAGES = {
    "opencl": "numpy and pyopencl",
    "cuda": "numpy, cuda-bindings and nvidia-cuda-nvrtc",
}

_LOG_LINES = 40

# Verification ends its reasons with the check that failed, as in
# "... (m=13 n=5 k=7 alpha=(-2+1j) beta=0 padding=3)".
_CHECK = re.compile(r"\((m=\d.*)\)$")
_CHECK_LIMIT = 2**20


@dataclass(frozen=True)
class Case:
    """One run of a kernel.

    Parameters
    ----------
    problem : Problem
        Sizes, operations and leading dimensions.
    alpha, beta : complex
        Scalars; imaginary parts are dropped on real elements.
    offset : int
        Elements before each matrix.
    nan_in_c : bool
        Whether C starts as NaN; only where beta = 0.
    """

    problem: Problem
    alpha: complex = 1
    beta: complex = 0
    offset: int = 0
    nan_in_c: bool = False

    def facts(self, launch: Launch) -> dict[str, Any]:
        """Return the case as literals, with how it is launched."""
        names = ("m", "n", "k", "lda", "ldb", "ldc")
        scalars = {"alpha": complex(self.alpha), "beta": complex(self.beta)}
        return {
            **{name: getattr(self.problem, name) for name in names},
            **{name: (value.real, value.imag) for name, value in scalars.items()},
            "offset": self.offset,
            "nan_in_c": self.nan_in_c,
            "grid": tuple(launch.grid),
            "block": tuple(launch.block),
            "resident": launch.resident,
        }


def cases_of(measurement: Measurement) -> tuple[Case, ...]:
    """Return the runs that should show what a measurement records.

    The check that its reason names, where it names one; else one with ragged edges,
    as verification runs first, and the problem itself.
    """
    failing = _failing_check(measurement)
    if failing is not None:
        return (failing,)
    whole = Case(measurement.problem, nan_in_c=True)
    config = measurement.config
    blocks = [config.get(f"block_{letter}") for letter in "mnk"]
    if not all(isinstance(block, int) and 0 < block < _CHECK_LIMIT for block in blocks):
        return (whole,)
    # One whole block, and a part of the next, in every direction.
    ragged = [int(block or 0) + int(block or 0) // 2 + 1 for block in blocks]
    return (_case(measurement, ragged, padding=3, beta=2, offset=5), whole)


def _failing_check(measurement: Measurement) -> Case | None:
    """Return the check that a reason ends with; None where it names none."""
    found = _CHECK.search(measurement.reason)
    if measurement.status is not Status.WRONG_RESULT or found is None:
        return None
    words = dict(word.split("=", 1) for word in found.group(1).split() if "=" in word)
    try:
        sizes = [int(words[name]) for name in "mnk"]
        padding = int(words.get("padding", 0))
        offset = int(words.get("offset", padding))
        if max(*sizes, padding, offset) > _CHECK_LIMIT or min(padding, offset) < 0:
            return None
        alpha, beta = complex(words.get("alpha", "1")), complex(words.get("beta", "0"))
    except (KeyError, ValueError):
        return None
    return _case(measurement, sizes, padding=padding, alpha=alpha, beta=beta, offset=offset)


def _case(
    measurement: Measurement,
    sizes: Sequence[int],
    *,
    padding: int,
    offset: int,
    alpha: complex = 1,
    beta: complex = 0,
) -> Case:
    """Return a case of other sizes, each leading dimension `padding` more than it must be."""
    m, n, k = sizes
    tight = replace(measurement.problem, m=m, n=n, k=k, lda=0, ldb=0, ldc=0)
    problem = replace(
        tight, lda=tight.lda + padding, ldb=tight.ldb + padding, ldc=tight.ldc + padding
    )
    return Case(problem, alpha, beta, offset, nan_in_c=beta == 0)


def reproducer(
    measurement: Measurement,
    source: Source | None,
    launch: Callable[[int, int], Launch],
    *,
    cases: Sequence[Case] | None = None,
    filename: str = "reproduce.py",
) -> str:
    """Return a Python program that builds and runs a measured kernel by itself.

    Everything it needs is in it: kernel source, macros, sizes, data (drawn from a seed)
    and launches.  What a measurement says only becomes literals and text, so a file made
    from an imported measurement runs nothing but the kernel.

    Parameters
    ----------
    measurement : Measurement
        What is to be shown; its environment's ``platform`` names the platform.
    source : Source or None
        The kernel's source, specialised for the config; None where it has arguments of its own.
    launch : callable
        ``launch(m, n)`` returns the launch that covers an m x n result.
    cases : sequence of Case, optional
        What to run; by default `cases_of` the measurement.
    filename : str
        What the file's own text calls it.

    Raises
    ------
    ValueError
        If there is no template for the measurement's backend.
    """
    backend = measurement.backend
    if backend not in _OPTIONS:
        raise ValueError(
            f"backend={backend!r} has no reproducer; there is one for {', '.join(_OPTIONS)}"
        )
    problem = measurement.problem
    why = _needs_us(measurement, source, launch(problem.m, problem.n))
    if why:
        return _of_ours(measurement, why, filename)
    assert source is not None  # `_needs_us`
    runs = cases_of(measurement) if cases is None else tuple(cases)
    macros = [f"-D{name}={value}" for name, value in source.defines.items()]
    launched = [run.facts(launch(run.problem.m, run.problem.n)) for run in runs]
    return _template("run").substitute(
        title=_quoted(f"{problem} on {measurement.device_name}: {measurement.status}."),
        recorded=_quoted(_recorded(measurement)),
        filename=_quoted(filename),
        device=repr(measurement.device_name),
        platform=repr(str(measurement.environment.get("platform", ""))),
        dtype=repr(problem.precision.dtype_name),
        trans=repr((str(problem.trans_a), str(problem.trans_b))),
        packages=_PACKAGES[backend],
        backend=_template(backend).substitute(
            shared=repr(int(source.dynamic_shared_bytes)),
            workspace=repr((Workspace.cleared_bytes, int(source.part_bytes))),
        ),
        entry=repr(source.entry),
        seed=repr(int(measurement.config.id, 16)),  # as verification does
        roundoff=repr(problem.precision.unit_roundoff),
        cases=_literal(launched),
        options=_literal([*_OPTIONS[backend], *macros]),
        text=f'"""\\\n{_quoted(source.text)}"""',
    )


def _needs_us(measurement: Measurement, source: Source | None, launch: Launch) -> str:
    """Return what a kernel takes besides one plain launch; nothing where that is all."""
    of = measurement.problem.precision
    reasons = {
        "machine code that the compiler did not make": is_rescheduled(measurement.config),
        "arguments of its own": source is None,
        "two kernels": source is not None and bool(source.second),
        "clusters": launch.cluster > 1,
        "elements that NumPy has not": of.letter not in PRECISIONS,
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)


def _of_ours(measurement: Measurement, why: str, filename: str) -> str:
    """Return a program that has Tilewright's own worker try a measured kernel."""
    config, problem = measurement.config, measurement.problem
    request = {
        "problem": problem_to_json(problem),
        "stencil": config.stencil,
        "config": dict(config),
        "mode": str(measurement.mode),
        "ahead": False,
    }
    return _template("tilewright").substitute(
        title=_quoted(f"{problem} on {measurement.device_name}: {measurement.status}."),
        recorded=_quoted(_recorded(measurement)),
        filename=_quoted(filename),
        version=VERSION,
        why=why,
        request=_literal(request),
        backend=repr(measurement.backend),
    )


def _template(name: str) -> Template:
    text = files("tilewright.tuning").joinpath(f"reproducers/{name}.py.txt")
    return Template(text.read_text(encoding="utf-8"))


def _recorded(measurement: Measurement) -> str:
    lines = [
        f"status    {measurement.status} ({measurement.stage}, {measurement.created})",
        *textwrap.wrap(f"reason    {measurement.reason or '-'}", 88, subsequent_indent=" " * 10),
        f"kernel    {measurement.config.stencil}, version {measurement.stencil_version}, "
        f"config {measurement.stored_config.id}",
        *textwrap.wrap(
            "          " + _words(measurement.stored_config), 88, subsequent_indent=" " * 10
        ),
        f"device    {measurement.device_name} ({measurement.device})",
        *textwrap.wrap(
            f"with      {_words(measurement.environment)}", 88, subsequent_indent=" " * 10
        ),
    ]
    log = measurement.detail.strip().splitlines()
    if log:
        left_out = (
            [f"[... {len(log) - _LOG_LINES} more lines ...]"] if len(log) > _LOG_LINES else []
        )
        lines += ["", "What was said at length:", ""]
        lines += [f"    {line}" for line in log[:_LOG_LINES] + left_out]
    return "\n".join(line.rstrip() for line in lines)


def _words(values: Mapping[str, Any]) -> str:
    """Return a mapping in one line."""
    return ", ".join(f"{name}={value}" for name, value in values.items()) or "-"


def _literal(value: object) -> str:
    """Return a Python literal that a person can read."""
    return pprint.pformat(value, width=96, compact=True, sort_dicts=False)


def _quoted(text: str) -> str:
    r"""Return text as it must stand between triple quotes to mean itself.

    Control characters would be lost or change meaning in a source file; a quote could
    end the literal; a backslash could escape what follows.
    """
    # No quote may stand before another one or before the closing three.
    escaped = re.sub(r'"(?="|\Z)', r"\"", text.replace("\\", "\\\\"))
    return "".join(
        one
        if one == "\n" or (one.isprintable() or one == "\t")
        else one.encode("unicode_escape").decode()
        for one in escaped
    )
