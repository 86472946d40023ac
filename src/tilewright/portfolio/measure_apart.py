"""Times of a family's kernels, taken by a process that a kernel may end."""

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
from tilewright.portfolio.measure import measure_family
from tilewright.portfolio.timers import LostToError
from tilewright.space import Config
from tilewright.stencil import Variant

__all__ = ["measure_apart"]

# A process says so often enough that it is at work: whenever a kernel was compiled, which takes
# seconds, and when a shape begins, whose kernels take a minute at most.
_ALIVE = b"."
_SILENT_SECONDS = 300.0


def measure_apart(
    live: CUDADevice,
    letter: str,
    name: str,
    count: int,
    seconds: float,
    also: Mapping[Variant, Sequence[Config]],
    without: Sequence[Config] = (),
    *,
    unaligned: bool = False,
) -> dict[str, Any]:
    """Return times as `measure_family` does, sifted, taken by a process of their own.

    What it compiled is in the cache when another one begins.

    Parameters
    ----------
    live : CUDADevice
        Where; this process can use it whatever becomes of the other one.
    letter, name, count, seconds, also, without, unaligned
        As `measure_family` takes them.

    Raises
    ------
    LostToError
        If a kernel takes the device from the process.
    RuntimeError
        If the process dies or a kernel in it hangs, or as `measure_family` does.
    """
    about = live.id, letter, name, count, seconds, dict(also), tuple(without), unaligned
    answer = _answer(partial(_measure, *about))
    if "times" in answer:
        times: dict[str, Any] = answer["times"]
        return times
    if "config" in answer:
        raise LostToError(Config(name, answer["config"]), answer["error"])
    raise RuntimeError(answer["error"])


def _answer(measure: Callable[[Connection], None]) -> dict[str, Any]:
    """Return what a process of its own sends last."""
    ours = get_context("spawn")  # a forked driver is of no use
    here, there = ours.Pipe(duplex=False)
    process = ours.Process(target=_run, args=(measure, there, os.getpid()))
    process.start()
    there.close()
    try:
        while here.poll(_SILENT_SECONDS):
            message = here.recv_bytes()
            if message != _ALIVE:
                answer: dict[str, Any] = json.loads(message)
                return answer
        raise RuntimeError(
            f"a kernel hangs: nothing was compiled or timed in {_SILENT_SECONDS:.0f} s"
        )
    except (EOFError, OSError):  # also in the middle of a message
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
    without: Sequence[Config],
    unaligned: bool,
    to: Connection,
) -> None:
    """Send times, or what lost the device, and meanwhile that it is at work."""
    answer: dict[str, Any]
    try:
        live = device(device_id)
        assert isinstance(live, CUDADevice)  # as the coordinator's is
        times = measure_family(
            live, letter, name, count, 0, seconds, also, unaligned=unaligned, sifted=True,
            without=without, observer=partial(to.send_bytes, _ALIVE),
        )  # fmt: skip
        answer = {"times": times}
    except LostToError as error:
        answer = {"config": dict(error.config), "error": str(error)}
    except (RuntimeError, ArithmeticError, ValueError) as error:
        answer = {"error": str(error)}
    to.send_bytes(json.dumps(answer).encode())
