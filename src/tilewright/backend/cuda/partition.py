"""Streams whose kernels run on some of a device's multiprocessors, and on the others.

CUDA's green contexts (driver 12.5): what is launched on their streams shares memory and functions
with the primary context.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tilewright.backend.base import BackendError
from tilewright.backend.cuda.functions import NON_BLOCKING

__all__ = ["Partition", "partitions"]

# Enumerators of cuda.h: CU_DEV_RESOURCE_TYPE_SM, CU_GREEN_CTX_DEFAULT_STREAM and
# CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE.
_MULTIPROCESSORS, _DEFAULT_STREAM, _LARGEST_CLUSTERS = 1, 1, 2


class _Resource(ctypes.Structure):
    """CUdevResource of cuda.h, and room behind it for what later drivers have there."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("padding", ctypes.c_ubyte * 92),
        ("multiprocessors", ctypes.c_uint),
        ("rest", ctypes.c_ubyte * 252),
    )


class Partition:
    """Some multiprocessors of a device.

    Attributes
    ----------
    multiprocessors : int
        How many.
    """

    def __init__(self, live: Any, resource: _Resource) -> None:
        self._live, self.multiprocessors = live, int(resource.multiprocessors)
        api, doing = live.api, "setting multiprocessors apart"
        found = live.check(api.cuDevResourceGenerateDesc(ctypes.byref(resource), 1), doing)
        made = api.cuGreenCtxCreate(found, live.raw, _DEFAULT_STREAM)
        self._context = live.check(made, doing)

    def stream(self, priority: int = 0) -> int:
        """Return a new stream, which stays; its priority is the higher the lower the number."""
        made = self._live.api.cuGreenCtxStreamCreate(self._context, NON_BLOCKING, priority)
        return int(self._live.check(made, "making a stream"))


def partitions(live: Any, multiprocessors: int) -> tuple[Partition, Partition] | None:
    """Return so many multiprocessors or more, which hold a cluster of 16 blocks, and all others.

    None where the driver sets none apart.  The device's context is current.
    """
    whole, part, rest = _Resource(), _Resource(), _Resource()
    api, one = live.api, ctypes.c_uint(1)
    try:
        live.check(
            api.cuDeviceGetDevResource(live.raw, ctypes.byref(whole), _MULTIPROCESSORS), "looking"
        )
        live.check(
            api.cuDevSmResourceSplitByCount(
                *map(ctypes.byref, (part, one, whole, rest)), _LARGEST_CLUSTERS, multiprocessors
            ), "splitting",
        )  # fmt: skip
        if not one.value or part.multiprocessors < multiprocessors or not rest.multiprocessors:
            return None
        return Partition(live, part), Partition(live, rest)
    except BackendError:
        return None
