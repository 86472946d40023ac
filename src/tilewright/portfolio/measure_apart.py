"""Times of a family's kernels, taken by processes that a kernel may end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from tilewright.backend import device
from tilewright.backend.cuda.device import CUDADevice
from tilewright.parent import end_with
from tilewright.portfolio.measure import LostToError, measure_family
from tilewright.space import Config
from tilewright.stencil import Variant

__all__ = ["measure_apart"]

# A process has so many times the seconds that it was asked for, and these besides: it starts,
# compiles on few cores what it times, and a shape that has begun is timed to its end.
_TIMES_LONGER, _SECONDS_MORE = 3.0, 300.0


def measure_apart(
    live: CUDADevice,
    letter: str,
    name: str,
    count: int,
    seconds: Callable[[], float],
    also: Mapping[Variant, Sequence[Config]],
) -> tuple[dict[str, Any], dict[Config, str]]:
    """Return times as `measure_family` does, sifted, and what was left out and why.

    A kernel that loses the device ends the process that times it.  Another one begins again without
    its config; what was compiled is in the cache.

    Parameters
    ----------
    live : CUDADevice
        Where.
    letter, name, count, also
        As `measure_family` takes them.
    seconds : callable
        Returns how long a process that starts now has.

    Raises
    ------
    RuntimeError
        If a process dies, or gives no times for too long.
    """
    lost: dict[Config, str] = {}
    while True:
        given = seconds()
        about = live.id, letter, name, count, given, dict(also)
        answer = _answer(
            partial(_measure, *about, list(lost)), _TIMES_LONGER * given + _SECONDS_MORE
        )
        if "times" in answer:
            return answer["times"], lost
        if "config" not in answer:
            raise RuntimeError(answer["error"])
        lost[Config(name, answer["config"])] = answer["error"]


def _answer(measure: Callable[[Connection], None], seconds: float) -> dict[str, Any]:
    """Return what a process of its own sends."""
    ours = get_context("spawn")  # a forked driver is of no use
    here, there = ours.Pipe(duplex=False)
    process = ours.Process(target=_run, args=(measure, there, os.getpid()))
    process.start()
    there.close()
    try:
        if not here.poll(seconds):
            raise RuntimeError(
                f"a kernel hangs: the process that times gave nothing in {seconds:.0f} s"
            )
        found: dict[str, Any] = json.loads(here.recv_bytes())
        return found
    except EOFError:
        process.join()
        code = process.exitcode
        raise RuntimeError(
            f"the process that times kernels ended by itself, status {code}"
        ) from None
    finally:
        process.kill()
        process.join()


def _run(measure: Callable[[Connection], None], to: Connection, parent: int) -> None:
    end_with(parent)
    measure(to)


def _measure(
    device_id: str,
    letter: str,
    name: str,
    count: int,
    seconds: float,
    also: Mapping[Variant, Sequence[Config]],
    lost: Sequence[Config],
    to: Connection,
) -> None:
    """Send times, or what lost the device."""
    answer: dict[str, Any]
    try:
        live = device(device_id)
        assert isinstance(live, CUDADevice)  # as the coordinator's is
        times = measure_family(
            live, letter, name, count, 0, seconds, also, sifted=True, without=lost
        )  # fmt: skip
        answer = {"times": times}
    except LostToError as error:
        answer = {"config": dict(error.config), "error": str(error)}
    except (RuntimeError, ArithmeticError, ValueError) as error:
        answer = {"error": str(error)}
    to.send_bytes(json.dumps(answer).encode())
