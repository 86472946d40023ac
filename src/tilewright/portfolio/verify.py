"""Every instance of a portfolio on the device: the whole numerics contract, bit by bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tilewright.backend.base import BackendError, DeviceLostError
from tilewright.backend.cuda.device import CUDADevice
from tilewright.portfolio.kernel import Code, PortfolioKernel
from tilewright.portfolio.portfolio import Portfolio, PortfolioError
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant, stencil
from tilewright.stencil.base import Call
from tilewright.stencil.geometry import Mode
from tilewright.tuning.verify import WrongResultError, certify

__all__ = ["Verified", "verify"]


@dataclass
class Verified:
    """What a run verified.

    Parameters
    ----------
    right : dict
        By digest of machine code: on which device, and when.
    wrong : dict
        By digest: what is wrong with it.
    left : int
        Instances that there was no time for.
    """

    right: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    left: int = 0


def verify(
    live: CUDADevice,
    portfolio: Portfolio,
    seconds: float,
    share: tuple[int, int] = (0, 1),
    passed: Container[str] = (),
    observer: Callable[[int, int], None] = lambda done, of: None,
) -> Verified:
    """Check the machine code of a portfolio's kernels.

    Each instance is loaded as `gemm` loads it and must pass `tilewright.tuning.verify.certify`
    at the sizes of its own mode and at all others: any instance is right for any problem.

    Parameters
    ----------
    live : CUDADevice
        Of the portfolio's architecture.
    portfolio : Portfolio
        With machine code.
    seconds : float
        After which no further instance begins.
    share : tuple of int
        Which part of the instances, and of how many: several processes share a device.
    passed : container of str
        Digests that passed before and are left out.
    observer : callable
        Called with the number of instances that passed or failed, and how many there are.

    Raises
    ------
    DeviceLostError
        If a kernel leaves the device unusable for this process; its name is in the message.
    """
    found = Verified()
    until = time.monotonic() + seconds
    first, of = share
    every = [one for one in _instances(portfolio) if one[2].digest not in passed]
    instances = every[first::of]
    for done, (kernel, mode, code) in enumerate(instances):
        if time.monotonic() >= until:
            found.left = len(instances) - done
            break
        why = _wrong(live, portfolio, kernel, mode, code)
        if why:
            found.wrong[code.digest] = f"{kernel.name}, {mode}: {why}"
        else:
            today = datetime.now(UTC).date().isoformat()
            found.right[code.digest] = f"{live.spec.name}, driver {live.driver}, {today}"
        observer(done + 1, len(instances))
    return found


def _instances(portfolio: Portfolio) -> Iterator[tuple[PortfolioKernel, Mode, Code]]:
    """Yield each machine code once, those of one compressed file together."""
    every = {
        digest: (kernel, mode, portfolio.codes[digest])
        for kernel in portfolio.kernels
        for modes in kernel.forms
        for mode, digest in modes.items()
    }
    yield from sorted(every.values(), key=lambda one: (one[2].block, one[2].at))


class _Routed:
    """A stencil whose kernels run where a number in device memory is 0, and that number."""

    def __init__(self, family: Stencil, decision: Any) -> None:
        self._family, self._decision = family, decision

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def arguments(self, config: Config, variant: Variant, call: Call) -> tuple[Any, ...]:
        """Return the kernel's arguments, the number's address last."""
        return (*self._family.arguments(config, variant, call), self._decision)


def _wrong(
    live: CUDADevice, portfolio: Portfolio, kernel: PortfolioKernel, mode: Mode, code: Code
) -> str:
    """Return what is wrong with an instance; nothing if it passes."""
    family: Any = stencil(kernel.config.stencil)
    decision = None
    try:
        if code.digest in kernel.routed.values():
            decision = live.upload(np.zeros(1, np.int32))
            family = _Routed(family, decision)
        loaded = live.load(code, portfolio.machine_code(code.digest))
        certify(live, loaded, family, kernel.config, kernel.variant)
    except DeviceLostError as error:
        raise DeviceLostError(f"{kernel.name}, {mode}: {error}") from None
    except (WrongResultError, BackendError, PortfolioError) as error:
        return str(error)
    finally:
        if decision is not None:
            live.free(decision)
    return ""
