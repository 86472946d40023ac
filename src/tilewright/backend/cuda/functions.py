"""The functions of the CUDA driver, called from Python: values in, a status and values out.

::

    cuDeviceGetAttribute(int *value, int attribute, int device)        cuda.h
    status, value = functions.cuDeviceGetAttribute(attribute, device)  here

They are called with ctypes on the driver's own library, of which a process has one: importing
``cuda.bindings.driver`` instead took 38 of the 98 ms that the host needs for a first call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

__all__ = [
    "ANY_CLUSTER",
    "CAPTURE_RELAXED",
    "CAPTURE_THREAD_LOCAL",
    "GRAPH_NODE_KERNEL",
    "MAX_DYNAMIC_SHARED_BYTES",
    "MEMORY_DEVICE",
    "MEMORY_HOST",
    "MEMORY_TYPE",
    "NON_BLOCKING",
    "NO_TIMING",
    "Copy2D",
    "CopyPeer",
    "Functions",
]

# Enumerators of cuda.h: CU_STREAM_CAPTURE_MODE_*, CU_GRAPH_NODE_TYPE_KERNEL,
# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES and _NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
# CU_STREAM_NON_BLOCKING, CU_MEMORYTYPE_*, CU_POINTER_ATTRIBUTE_MEMORY_TYPE and
# CU_EVENT_DISABLE_TIMING.
CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED = 1, 2
GRAPH_NODE_KERNEL = 0
MAX_DYNAMIC_SHARED_BYTES, ANY_CLUSTER = 8, 14
NON_BLOCKING = 1
MEMORY_HOST, MEMORY_DEVICE = 1, 2
MEMORY_TYPE = 2
NO_TIMING = 2

_NOT_FOUND = 500  # CUDA_ERROR_NOT_FOUND

# A device's address, and what the driver hands out: contexts, streams, functions and the like.
_ADDRESS, _HANDLE = c_uint64, c_void_p

# What a function fills in.  Names and numbers are cut there; no device's name is as long.
_INT, _NUMBER, _FLOAT = POINTER(c_int), POINTER(c_uint64), POINTER(c_float)
_MADE, _SIZE, _WORDS = POINTER(c_size_t), POINTER(c_size_t), POINTER(c_char_p)
_TEXT, _UUID = POINTER(c_char * 256), POINTER(c_char * 16)

# By name: the library's name for it, and the parameters as cuda.h has them.
_FUNCTIONS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "cuCtxCreate": ("cuCtxCreate_v2", (_MADE, c_uint, c_int)),
    "cuCtxEnablePeerAccess": ("cuCtxEnablePeerAccess", (_HANDLE, c_uint)),
    "cuCtxGetCurrent": ("cuCtxGetCurrent", (_MADE,)),
    "cuCtxPopCurrent": ("cuCtxPopCurrent_v2", (_MADE,)),
    "cuCtxPushCurrent": ("cuCtxPushCurrent_v2", (_HANDLE,)),
    "cuCtxSynchronize": ("cuCtxSynchronize", ()),
    "cuDeviceCanAccessPeer": ("cuDeviceCanAccessPeer", (_INT, c_int, c_int)),
    # What multiprocessors there are and how many groups is memory of the caller's, both ways.
    "cuDevResourceGenerateDesc": ("cuDevResourceGenerateDesc", (_MADE, c_void_p, c_uint)),
    "cuDevSmResourceSplitByCount": (
        "cuDevSmResourceSplitByCount", (*(c_void_p,) * 4, c_uint, c_uint),
    ),
    "cuDeviceGetDevResource": ("cuDeviceGetDevResource", (c_int, c_void_p, c_int)),
    "cuDeviceGet": ("cuDeviceGet", (_INT, c_int)),
    "cuDeviceGetAttribute": ("cuDeviceGetAttribute", (_INT, c_int, c_int)),
    "cuDeviceGetCount": ("cuDeviceGetCount", (_INT,)),
    "cuDeviceGetName": ("cuDeviceGetName", (_TEXT, c_int, c_int)),
    "cuDeviceGetPCIBusId": ("cuDeviceGetPCIBusId", (_TEXT, c_int, c_int)),
    "cuDeviceGetUuid": ("cuDeviceGetUuid_v2", (_UUID, c_int)),
    "cuDeviceGraphMemTrim": ("cuDeviceGraphMemTrim", (c_int,)),
    "cuDevicePrimaryCtxRetain": ("cuDevicePrimaryCtxRetain", (_MADE, c_int)),
    "cuDeviceTotalMem": ("cuDeviceTotalMem_v2", (_SIZE, c_int)),
    "cuDriverGetVersion": ("cuDriverGetVersion", (_INT,)),
    "cuEventCreate": ("cuEventCreate", (_MADE, c_uint)),
    "cuEventDestroy": ("cuEventDestroy_v2", (_HANDLE,)),
    "cuEventElapsedTime": ("cuEventElapsedTime", (_FLOAT, _HANDLE, _HANDLE)),
    "cuEventQuery": ("cuEventQuery", (_HANDLE,)),
    "cuEventRecord": ("cuEventRecord", (_HANDLE, _HANDLE)),
    "cuEventRecordOnOurs": ("cuEventRecord", (_HANDLE, _HANDLE)),
    "cuEventSynchronize": ("cuEventSynchronize", (_HANDLE,)),
    "cuFuncSetAttribute": ("cuFuncSetAttribute", (_HANDLE, c_int, c_int)),
    "cuGetErrorName": ("cuGetErrorName", (c_int, _WORDS)),
    "cuGetErrorString": ("cuGetErrorString", (c_int, _WORDS)),
    "cuGraphDestroy": ("cuGraphDestroy", (_HANDLE,)),
    "cuGraphExecDestroy": ("cuGraphExecDestroy", (_HANDLE,)),
    # Nodes and how many there are: memory of the caller's, both ways.
    "cuGraphGetNodes": ("cuGraphGetNodes", (_HANDLE, c_void_p, c_void_p)),
    "cuGraphInstantiate": ("cuGraphInstantiateWithFlags", (_MADE, _HANDLE, c_uint64)),
    "cuGraphLaunch": ("cuGraphLaunch", (_HANDLE, _HANDLE)),
    "cuGraphNodeGetType": ("cuGraphNodeGetType", (_HANDLE, _INT)),
    "cuGreenCtxCreate": ("cuGreenCtxCreate", (_MADE, _HANDLE, c_int, c_uint)),
    "cuGreenCtxStreamCreate": ("cuGreenCtxStreamCreate", (_MADE, _HANDLE, c_uint, c_int)),
    "cuInit": ("cuInit", (c_uint,)),
    "cuMemAlloc": ("cuMemAlloc_v2", (_NUMBER, c_size_t)),
    "cuMemFree": ("cuMemFree_v2", (_ADDRESS,)),
    "cuMemFreeHost": ("cuMemFreeHost", (c_void_p,)),
    "cuMemHostAlloc": ("cuMemHostAlloc", (_MADE, c_size_t, c_uint)),
    "cuMemGetInfo": ("cuMemGetInfo_v2", (_SIZE, _SIZE)),
    "cuMemcpy2DAsync": ("cuMemcpy2DAsync_v2", (c_void_p, _HANDLE)),
    "cuMemcpy3DPeerAsync": ("cuMemcpy3DPeerAsync", (c_void_p, _HANDLE)),
    "cuMemcpyDtoDAsync": ("cuMemcpyDtoDAsync_v2", (_ADDRESS, _ADDRESS, c_size_t, _HANDLE)),
    "cuMemcpyDtoHAsync": ("cuMemcpyDtoHAsync_v2", (c_void_p, _ADDRESS, c_size_t, _HANDLE)),
    "cuMemcpyHtoDAsync": ("cuMemcpyHtoDAsync_v2", (_ADDRESS, c_void_p, c_size_t, _HANDLE)),
    "cuMemsetD8Async": ("cuMemsetD8Async", (_ADDRESS, c_uint, c_size_t, _HANDLE)),
    "cuModuleGetFunction": ("cuModuleGetFunction", (_MADE, _HANDLE, c_char_p)),
    "cuModuleLoadData": ("cuModuleLoadData", (_MADE, c_char_p)),
    "cuModuleUnload": ("cuModuleUnload", (_HANDLE,)),
    # What is told is memory of the caller's: its type follows from the attribute.
    "cuPointerGetAttribute": ("cuPointerGetAttribute", (c_void_p, c_int, _ADDRESS)),
    "cuProfilerStart": ("cuProfilerStart", ()),
    "cuProfilerStop": ("cuProfilerStop", ()),
    "cuStreamBeginCapture": ("cuStreamBeginCapture_v2", (_HANDLE, c_int)),
    "cuStreamCreate": ("cuStreamCreate", (_MADE, c_uint)),
    "cuStreamCreateWithPriority": ("cuStreamCreateWithPriority", (_MADE, c_uint, c_int)),
    "cuStreamDestroy": ("cuStreamDestroy_v2", (_HANDLE,)),
    "cuStreamEndCapture": ("cuStreamEndCapture", (_HANDLE, _MADE)),
    # The graph, what it depends on, and how many of these there are: nobody asks.
    "cuStreamGetCaptureInfo": (
        "cuStreamGetCaptureInfo_v2", (_HANDLE, _INT, _NUMBER, c_void_p, c_void_p, c_void_p),
    ),
    "cuStreamGetId": ("cuStreamGetId", (_HANDLE, _NUMBER)),
    "cuStreamIsCapturing": ("cuStreamIsCapturing", (_HANDLE, _INT)),
    "cuStreamSynchronize": ("cuStreamSynchronize", (_HANDLE,)),
    "cuStreamWaitEvent": ("cuStreamWaitEvent", (_HANDLE, _HANDLE, c_uint)),
    "cuStreamWaitEventOnOurs": ("cuStreamWaitEvent", (_HANDLE, _HANDLE, c_uint)),
    # The map is memory of the caller's; sizes, strides, box and steps are arrays.
    "cuTensorMapEncodeTiled": (
        "cuTensorMapEncodeTiled",
        (c_void_p, c_int, c_uint, _ADDRESS, *(c_void_p,) * 4, *(c_int,) * 4),
    ),
    "cuThreadExchangeStreamCaptureMode": (
        "cuThreadExchangeStreamCaptureMode", (c_void_p,),  # the caller's: set and filled in
    ),
}  # fmt: skip


# Called some hundred times while matrices stream through a device, by threads that run Python
# besides.  To give Python's lock away and take it back again takes longer than they do where two
# threads want it; so they keep it.  None waits for more than room in the queue of a stream of ours,
# which has copies and kernels alone.  In a caller's full queue may be a function of Python's, which
# could not run meanwhile.
_QUICK = frozenset({
    "cuCtxPopCurrent", "cuCtxPushCurrent", "cuEventQuery", "cuEventRecordOnOurs",
    "cuMemcpy2DAsync", "cuPointerGetAttribute", "cuStreamWaitEventOnOurs",
})  # fmt: skip


class Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D of cuda.h: lines between two places, each with a pitch of its own."""

    _fields_ = [
        (side + name, of)
        for side in ("src", "dst")
        for name, of in (
            ("XInBytes", c_size_t), ("Y", c_size_t), ("MemoryType", c_int), ("Host", c_void_p),
            ("Device", _ADDRESS), ("Array", c_void_p), ("Pitch", c_size_t),
        )
    ] + [("WidthInBytes", c_size_t), ("Height", c_size_t)]  # fmt: skip

    @classmethod
    def of(
        cls,
        source: tuple[int, int, int, int],
        to: tuple[int, int, int, int],
        width: int,
        lines: int,
    ) -> Copy2D:
        """Return a copy between two places: memory type, host's and device's address, pitch."""
        (kind, host, device, pitch), (to_kind, to_host, to_device, to_pitch) = source, to
        return cls(
            0, 0, kind, host, device, None, pitch,
            0, 0, to_kind, to_host, to_device, None, to_pitch, width, lines,
        )  # fmt: skip


class CopyPeer(ctypes.Structure):
    """CUDA_MEMCPY3D_PEER of cuda.h: the same between two devices, and planes of them."""

    _fields_ = [
        (side + name, of)
        for side in ("src", "dst")
        for name, of in (
            ("XInBytes", c_size_t), ("Y", c_size_t), ("Z", c_size_t), ("LOD", c_size_t),
            ("MemoryType", c_int), ("Host", c_void_p), ("Device", _ADDRESS), ("Array", c_void_p),
            ("Context", c_void_p), ("Pitch", c_size_t), ("Height", c_size_t),
        )
    ] + [("WidthInBytes", c_size_t), ("Height", c_size_t), ("Depth", c_size_t)]  # fmt: skip

    @classmethod
    def of(
        cls, source: tuple[int, int, int], to: tuple[int, int, int], width: int, lines: int
    ) -> CopyPeer:
        """Return a copy between two places: context, address, pitch."""
        made = cls(WidthInBytes=width, Height=lines, Depth=1)
        for side, (context, address, pitch) in (("src", source), ("dst", to)):
            setattr(made, side + "MemoryType", MEMORY_DEVICE)
            setattr(made, side + "Context", context)
            setattr(made, side + "Device", address)
            setattr(made, side + "Pitch", pitch)
            setattr(made, side + "Height", lines)
        return made


class Functions:
    """The driver's functions by cuda.h's names; one for streams of ours alone ends in ``OnOurs``.

    A function takes what its C parameters take but for pointers that it fills in, and returns a
    tuple: its status, as an integer, and the values filled in.  One that the library lacks, an old
    driver's, returns CUDA_ERROR_NOT_FOUND.

    Parameters
    ----------
    library : ctypes.CDLL
        The driver's.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._quick = ctypes.PyDLL(library._name, handle=library._handle)

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        if name not in _FUNCTIONS:
            raise AttributeError(f"{name} is no function of the driver's that is called here")
        symbol, parameters = _FUNCTIONS[name]
        try:
            # One of its own: others' have other types.
            found = (self._quick if name in _QUICK else self._library)[symbol]
        except AttributeError:
            made = _lacking
        else:
            found.argtypes = parameters
            made = _called(found, parameters)
        setattr(self, name, made)
        return made


def _lacking(*_: Any) -> tuple[Any, ...]:
    return (_NOT_FOUND,)


def _called(found: Any, parameters: tuple[Any, ...]) -> Callable[..., tuple[Any, ...]]:
    """Return a function of what goes in, that returns what comes out."""
    # Pointers' types, and no others, know what they point to.
    filled = [
        (place, one._type_)
        for place, one in enumerate(parameters)
        if issubclass(one, ctypes._Pointer)
    ]
    if not filled:
        return lambda *given: (found(*given),)

    def call(*given: Any) -> tuple[Any, ...]:
        values = [kind() for _, kind in filled]
        arguments = list(given)
        for (place, _), value in zip(filled, values, strict=True):
            arguments.insert(place, ctypes.byref(value))
        return found(*arguments), *(getattr(one, "raw", one.value) for one in values)

    return call
