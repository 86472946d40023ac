"""Calls that come again exactly: enqueued as they were laid out, without a look at anything.

What a chain's launches were made of (arrays, scalars, scheme, who multiplies) is one key; the
launches lie in the scratch memory of their stream, and are forgotten with it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tilewright.library.scratch import TOPS, scratch_of
from tilewright.library.split.product import circumstances
from tilewright.timeline import is_recording

__all__ = ["again_key", "start_again"]

# Scalars that stay what they are, and equal exactly what launches alike.
_FIXED = (int, float)


def again_key(arithmetic: str, alpha: Any, beta: Any, *rest: Hashable) -> Hashable | None:
    """Return what an equal call has in common; None if none can be known to be equal.

    Parameters
    ----------
    arithmetic : str
        "fp32" or a scheme's name.
    alpha, beta : scalar
        As the caller gave them.
    rest
        Transposes; and of each array address, shape, strides and dtype.
    """
    if type(alpha) not in _FIXED or type(beta) not in _FIXED or type(arithmetic) is not str:
        return None
    return arithmetic, alpha, beta, rest, circumstances()


def start_again(live: Any, stream: int, key: Hashable) -> bool:
    """Enqueue a call like one made before on a CUDA stream; return False if there was none.

    Raises
    ------
    LaunchError
        If the device refuses a launch.
    """
    if key is None or is_recording():
        return False
    scratch = scratch_of(live, stream)
    with scratch.lock:
        prepared = scratch.prepared.get(key)
        if prepared is None:
            return False
        try:
            for launch, _ in prepared:
                with launch.lock:
                    launch.enqueue(stream)
        except BaseException:
            scratch.spoil(TOPS)
            raise
    return True
