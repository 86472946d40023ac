"""Measurement: what one config did on one problem on one device.

A candidate that failed keeps its row like one that ran: its status, a reason in
one line, and the long text (a build log, a traceback) behind it.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from tilewright.problem import Problem
from tilewright.space.config import Config
from tilewright.stencil.geometry import PLAIN, Mode
from tilewright.stencil.stored import stored_config

__all__ = ["Measurement", "Stage", "Status", "now"]

_E = TypeVar("_E", bound=StrEnum)

INT64_MAX = 2**63 - 1
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
# Values become macros of a compiler's command line; nothing that a shell or a
# preprocessor could read as more than one word may get in from an imported file.
WORD = re.compile(r"[A-Za-z0-9_.+-]{0,64}")

# A build log of a large unrolled kernel can be hundreds of megabytes; errors
# stand at its head and the summary at its end.
DETAIL_LIMIT = 65536
REASON_LIMIT = 500
LABEL_LIMIT = 256
ENVIRONMENT_LIMIT = 65536
TIMES_LIMIT = 100_000

# What tells of a measurement that came from a file, in its environment.
_IMPORTED = "imported"


class Status(StrEnum):
    """How a candidate ended."""

    OK = "ok"
    COMPILE_ERROR = "compile-error"
    WRONG_RESULT = "wrong-result"
    CRASH = "crash"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out-of-memory"
    LAUNCH_ERROR = "launch-error"


class Stage(StrEnum):
    """When in a tuning a measurement was taken.

    ``screen`` is a candidate's first timing during the search, ``final`` a
    re-measurement interleaved among the finalists, ``winner`` the verified winner.
    """

    SCREEN = "screen"
    FINAL = "final"
    WINNER = "winner"


def now() -> str:
    """Return the time as ISO text in UTC, whose alphabetical order is that of time."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True)
class Measurement:
    """One config on one problem on one device: how it ended and how long it took.

    Parameters
    ----------
    config : Config
        The point of the stencil's space.
    problem : Problem
        What it was timed on.
    device : str
        The device's fingerprint: equal only where times may be compared.
    device_name : str
        The device in words.
    backend : str
        ``"opencl"`` or ``"cuda"``.
    stencil_version : int
        The stencil's version, 1 or more.
    status : Status or str
        How it ended.
    stage : Stage or str
        When it was taken.
    reason : str
        Why it failed, in one line: white space is collapsed, and a failure without
        a reason gets its status for one.
    detail : str
        Long text, such as a build log; the middle of a very long one is cut.
    times_ns : sequence of int
        Kernel times in nanoseconds, in the order they were taken.
    error : float or None
        Largest error that verification found, eta of the numerics contract; NaN
        becomes infinity, since what is not a number is as wrong as can be.
    environment : Mapping
        JSON values by name: driver, toolkit, versions, clocks, cold or warm cache.
    compile_seconds : float or None
        Time the compiler took.
    created : str
        ISO time with an offset; kept in UTC.
    mode : Mode
        The launch mode that it was compiled in.
    id : int or None
        Row in the store it was read from; not part of its identity.

    Raises
    ------
    ValueError
        If a value is out of range; the message names the field.
    """

    config: Config
    problem: Problem
    device: str
    device_name: str
    backend: str
    stencil_version: int
    status: Status
    stage: Stage = Stage.SCREEN
    reason: str = ""
    detail: str = field(default="", repr=False)
    times_ns: tuple[int, ...] = field(default=(), repr=False)
    error: float | None = None
    environment: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    compile_seconds: float | None = None
    created: str = field(default_factory=now)
    mode: Mode = PLAIN
    id: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        fix = object.__setattr__
        fix(self, "status", _member(Status, "status", self.status))
        fix(self, "stage", _member(Stage, "stage", self.stage))
        fix(self, "reason", _encodable(" ".join(self.reason.split()))[:REASON_LIMIT].rstrip())
        fix(self, "detail", _shortened(_encodable(self.detail)))
        fix(self, "times_ns", tuple(int(t) for t in self.times_ns))
        fix(self, "environment", _plain_environment(self.environment))
        fix(self, "created", _in_utc(self.created))
        for name in ("error", "compile_seconds"):
            value = getattr(self, name)
            if value is not None:
                fix(self, name, float(value) + 0.0)  # SQLite has no negative zero
        if self.error is not None and math.isnan(self.error):
            fix(self, "error", math.inf)
        if not self.ok and not self.reason:
            fix(self, "reason", str(self.status))
        self._check_names()
        self._check_numbers()

    def _check_names(self) -> None:
        for name, value in (("backend", self.backend), ("stencil", self.config.stencil)):
            if not NAME.fullmatch(value):
                raise ValueError(f"{name}={value[:80]!r} is not a name")
        for parameter, choice in self.config.items():
            if not NAME.fullmatch(parameter):
                raise ValueError(f"config has a parameter {parameter[:80]!r}, which is not a name")
            if isinstance(choice, str) and not WORD.fullmatch(choice):
                raise ValueError(f"config {parameter}={choice[:80]!r} is not one plain word")
            if isinstance(choice, int) and not -INT64_MAX <= choice <= INT64_MAX:
                raise ValueError(f"config {parameter} does not fit 64 bits")
        for name, value in (("device", self.device), ("device_name", self.device_name)):
            if not value or len(value) > LABEL_LIMIT or not value.isprintable():
                raise ValueError(f"{name} must be 1 to {LABEL_LIMIT} printable characters")

    def _check_numbers(self) -> None:
        """Refuse numbers that nothing could have measured."""
        if not 1 <= self.stencil_version <= INT64_MAX:
            raise ValueError(f"stencil_version={self.stencil_version} is out of range")
        for name in ("m", "n", "k", "lda", "ldb", "ldc"):
            if getattr(self.problem, name) > INT64_MAX:
                raise ValueError(f"{name} does not fit 64 bits")
        if len(self.times_ns) > TIMES_LIMIT:
            raise ValueError(f"times_ns has more than {TIMES_LIMIT} entries")
        if not all(1 <= t <= INT64_MAX for t in self.times_ns):
            raise ValueError("times_ns must be whole nanoseconds, 1 or more")
        if self.error is not None and self.error < 0:
            raise ValueError(f"error={self.error} is negative")
        seconds = self.compile_seconds
        if seconds is not None and not 0 <= seconds < math.inf:
            raise ValueError(f"compile_seconds={seconds} is not a duration")

    @property
    def stored_config(self) -> Config:
        """The config as stores write it: with its launch mode, both of which its id is of."""
        return stored_config(self.config, self.mode)

    @property
    def ok(self) -> bool:
        """Whether it ran and its result was right."""
        return self.status is Status.OK

    @property
    def is_imported(self) -> bool:
        """Whether it came from a file: nobody here knows that it is so."""
        return bool(self.environment.get(_IMPORTED))

    def imported(self) -> Measurement:
        """Return it marked as one that came from a file."""
        return replace(self, environment={**self.environment, _IMPORTED: True})

    @property
    def median_ns(self) -> float:
        """Median kernel time in nanoseconds; infinity without times, which sorts last."""
        return float(statistics.median(self.times_ns)) if self.times_ns else math.inf

    @property
    def flops_per_second(self) -> float:
        """Floating-point operations a second at the median time; 0 without times."""
        return self.problem.flops / self.median_ns * 1e9


def _member(kind: type[_E], name: str, value: str) -> _E:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(kind)
        raise ValueError(f"{name}={value!r} is unknown; use one of {allowed}") from None


def _encodable(text: str) -> str:
    """Return text that UTF-8 can hold: compilers print bytes that are no text at all."""
    return text.encode("utf-8", "backslashreplace").decode()


def _shortened(text: str) -> str:
    """Cut the middle out of a text that is longer than a store should keep."""
    if len(text) <= DETAIL_LIMIT:
        return text
    note = "\n[... the middle is left out ...]\n"
    half = (DETAIL_LIMIT - len(note)) // 2
    return text[:half] + note + text[-half:]


def _plain_environment(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy made of JSON values only."""
    try:
        text = json.dumps(dict(environment), allow_nan=False, ensure_ascii=False)
        plain = json.loads(text.encode())  # unpaired surrogates are refused here
    except (TypeError, ValueError, RecursionError) as problem:
        raise ValueError(f"environment holds something that is not JSON: {problem}") from None
    if len(text) > ENVIRONMENT_LIMIT:
        raise ValueError(f"environment is longer than {ENVIRONMENT_LIMIT} characters of JSON")
    return dict(plain)


def _in_utc(created: str) -> str:
    """Return an ISO time in the one form that the store sorts by."""
    try:
        moment = datetime.fromisoformat(created)
        if moment.tzinfo is None:
            raise ValueError
        return moment.astimezone(UTC).isoformat(timespec="microseconds")
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"created={str(created)[:80]!r} is not an ISO time with an offset"
        ) from None
