"""Multiprocessors set apart, with a driver that is pretended; and that of a device."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from tilewright.backend.cuda.driver import check
from tilewright.backend.cuda.partition import _Resource, partitions

_NOT_SUPPORTED = 801


class Driver:
    """Splits multiprocessors in units of a size."""

    def __init__(self, every: int, unit: int, status: int = 0) -> None:
        self.every, self.unit, self.status = every, unit, status

    def cuDeviceGetDevResource(self, device, found, kind):
        found._obj.type, found._obj.multiprocessors = kind, self.every
        return (self.status,)

    def cuDevSmResourceSplitByCount(self, part, many, whole, rest, flags, least):
        size = -(-least // self.unit) * self.unit
        many._obj.value = int(size <= whole._obj.multiprocessors)
        part._obj.multiprocessors = size
        rest._obj.multiprocessors = max(0, whole._obj.multiprocessors - size)
        return (0,)

    def cuDevResourceGenerateDesc(self, resource, many):
        return 0, resource._obj.multiprocessors

    def cuGreenCtxCreate(self, of, device, flags):
        return 0, 1000 + of

    def cuGreenCtxStreamCreate(self, context, flags, priority):
        return 0, 1000 * context + priority


def split(driver, many=16):
    return partitions(SimpleNamespace(api=driver, raw=0, check=check), many)


def test_what_is_set_apart_and_what_is_left_have_streams():
    mine, others = split(Driver(132, 8))
    assert (mine.multiprocessors, others.multiprocessors) == (16, 116)
    assert mine.stream(-5) == 1016 * 1000 - 5
    assert others.stream() == 1116 * 1000
    assert split(Driver(132, 18))[0].multiprocessors == 18


@pytest.mark.parametrize("driver", [Driver(132, 8, _NOT_SUPPORTED), Driver(8, 8), Driver(16, 8)])
def test_none_is_set_apart_where_that_cannot_be(driver):
    assert split(driver) is None


def test_resources_lie_as_in_cudas_header():
    bindings = pytest.importorskip("cuda.bindings.driver")
    theirs = bindings.CUdevResource()
    ctypes.memset(theirs.getPtr(), 0, 100)
    ctypes.memmove(theirs.getPtr(), bytes(_Resource(type=1, multiprocessors=77)), 100)
    assert theirs.type == bindings.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    assert theirs.sm.smCount == 77
