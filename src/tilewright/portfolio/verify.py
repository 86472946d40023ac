"""Every twin of a portfolio on the device: all that the numerics contract promises, bit by bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from tilewright.backend.base import BackendError, DeviceLostError
from tilewright.backend.cuda.device import CUDADevice
from tilewright.portfolio.build import Twin, Work
from tilewright.stencil import stencil
from tilewright.tuning.verify import WrongResultError, certify

__all__ = ["verify"]


def verify(
    live: CUDADevice,
    work: Work,
    twins: Iterable[Twin],
    seconds: float,
    observer: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, str]:
    """Check the machine code of twins that was not checked yet; return what is wrong with some.

    Each is loaded as `gemm` would load it and must pass `tilewright.tuning.verify.certify` at
    the sizes of its own mode and at all others: any twin is right for any problem.

    Parameters
    ----------
    live : CUDADevice
        Of the architecture.
    work : Work
        What was compiled; what passes is noted there.
    twins : iterable of Twin
        With a kernel each.
    seconds : float
        After which no further one begins.
    observer : callable
        Called with the number of twins that passed or failed, and how many there are.

    Raises
    ------
    DeviceLostError
        If a kernel leaves the device unusable for this process; its name is in the message.
    """
    wrong: dict[str, str] = {}
    until = time.monotonic() + seconds
    waiting = [one for one in twins if one.kernel is not None and work.has(one)]
    for done, twin in enumerate(waiting):
        code, text = work.read(twin)
        if code.checked or time.monotonic() >= until:
            continue
        assert twin.kernel is not None
        family = stencil(twin.kernel.config.stencil)
        config = family.in_mode(twin.kernel.config, twin.mode)
        try:
            kernel = live.load(code, text)
            certify(live, kernel, family, config, twin.kernel.variant)
        except DeviceLostError as error:
            raise DeviceLostError(f"{twin.name}: {error}") from None
        except (WrongResultError, BackendError) as error:
            wrong[twin.name] = str(error)
        else:
            today = datetime.now(UTC).date().isoformat()
            work.check(twin, f"{live.spec.name}, driver {live.driver}, {today}")
        observer(done + 1, len(waiting))
    return wrong
