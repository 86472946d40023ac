"""Every twin of a portfolio on the device: all that the numerics contract promises, bit by bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tilewright.backend.base import BackendError, DeviceLostError
from tilewright.backend.cuda.device import CUDADevice
from tilewright.portfolio.kernel import Code, PortfolioKernel
from tilewright.portfolio.portfolio import Portfolio, PortfolioError
from tilewright.stencil import stencil
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
        Twins that there was no time for.
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

    Each twin is loaded as `gemm` loads it and must pass `tilewright.tuning.verify.certify` at the
    sizes of its own mode and at all others: any twin is right for any problem.

    Parameters
    ----------
    live : CUDADevice
        Of the portfolio's architecture.
    portfolio : Portfolio
        With machine code.
    seconds : float
        After which no further twin begins.
    share : tuple of int
        Which part of the twins, and of how many: several processes share a device.
    passed : container of str
        Digests that passed before and are left out.
    observer : callable
        Called with the number of twins that passed or failed, and how many there are.

    Raises
    ------
    DeviceLostError
        If a kernel leaves the device unusable for this process; its name is in the message.
    """
    found = Verified()
    until = time.monotonic() + seconds
    first, of = share
    every = [one for one in _twins(portfolio) if one[2].digest not in passed]
    twins = every[first::of]
    for done, (kernel, mode, code) in enumerate(twins):
        if time.monotonic() >= until:
            found.left = len(twins) - done
            break
        why = _wrong(live, portfolio, kernel, mode, code)
        if why:
            found.wrong[code.digest] = f"{kernel.name}, {mode}: {why}"
        else:
            today = datetime.now(UTC).date().isoformat()
            found.right[code.digest] = f"{live.spec.name}, driver {live.driver}, {today}"
        observer(done + 1, len(twins))
    return found


def _twins(portfolio: Portfolio) -> Iterator[tuple[PortfolioKernel, Mode, Code]]:
    """Yield each machine code once, those of one compressed file together."""
    every = {
        digest: (kernel, mode, portfolio.codes[digest])
        for kernel in portfolio.kernels
        for mode, digest in kernel.modes.items()
    }
    yield from sorted(every.values(), key=lambda one: (one[2].block, one[2].at))


def _wrong(
    live: CUDADevice, portfolio: Portfolio, kernel: PortfolioKernel, mode: Mode, code: Code
) -> str:
    """Return what is wrong with a twin; nothing if it passes."""
    family = stencil(kernel.config.stencil)
    config = family.in_mode(kernel.config, mode)
    try:
        loaded = live.load(code, portfolio.machine_code(code.digest))
        certify(live, loaded, family, config, kernel.variant)
    except DeviceLostError as error:
        raise DeviceLostError(f"{kernel.name}, {mode}: {error}") from None
    except (WrongResultError, BackendError, PortfolioError) as error:
        return str(error)
    return ""
