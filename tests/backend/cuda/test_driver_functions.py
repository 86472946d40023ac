"""The driver's functions as they are called here: types as cuda.h has them, values in and out."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest

from tests.export.building import build_fake, needs_c
from tilewright.backend import LaunchError
from tilewright.backend.cuda import functions, probe, tensor_map
from tilewright.backend.cuda.driver import check
from tilewright.backend.cuda.functions import Functions

bindings = pytest.importorskip("cuda.bindings.driver")

# What the bindings call in a version that has more parameters than the one that is called here.
NEWER = {"cuCtxCreate", "cuStreamGetCaptureInfo"}

# Bytes of what is no pointer, no handle and no enumeration.  Smaller integers travel as integers.
BYTES = {"CUdevice": 4, "CUdeviceptr": 8, "CUuuid": 16, "cuuint32_t": 4, "cuuint64_t": 8,
         "char": 256, "float": 4, "int": 4, "size_t": 8, "unsigned char": 4, "unsigned int": 4,
         "unsigned long long": 8}  # fmt: skip
ENUMERATIONS = ("CUdevResourceType", "CUdevice_attribute", "CUfunction_attribute",
                "CUgraphNodeType", "CUpointer_attribute", "CUresult", "CUstreamCaptureMode",
                "CUstreamCaptureStatus", "CUtensorMap")  # fmt: skip


def declared(name: str) -> list[str]:
    """Return the types of a function's parameters as the bindings declare them."""
    from cuda.bindings import cydriver

    text_of = ctypes.pythonapi.PyCapsule_GetName
    text_of.restype, text_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    text = text_of(cydriver.__pyx_capi__[name.removesuffix("OnOurs")]).decode()
    inside = text[text.index("(") + 1 : -1]
    return [] if inside == "void" else [x.replace("const", "").strip() for x in inside.split(",")]


def size_of(type_of: str) -> int:
    """Return the bytes of a type of cuda.h."""
    if type_of.endswith("*"):
        return 8
    if type_of in BYTES:
        return BYTES[type_of]
    is_number = type_of.startswith(ENUMERATIONS) or type_of.endswith(("_enum", "_flags"))
    return 4 if is_number else 8


@pytest.mark.parametrize("name", sorted(set(functions._FUNCTIONS) - NEWER))
def test_parameters_are_as_large_as_in_cudas_header(name: str) -> None:
    _, ours = functions._FUNCTIONS[name]
    theirs = declared(name)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert ctypes.sizeof(mine) == size_of(other), other
        if issubclass(mine, ctypes._Pointer):
            assert ctypes.sizeof(mine._type_) == size_of(other[:-1].strip()), other


def test_numbers_are_those_of_cudas_header() -> None:
    for name, number in probe._ATTRIBUTES.items():
        theirs = getattr(bindings.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        assert theirs.value == number  # some have a second name
    modes, kinds = bindings.CUstreamCaptureMode, bindings.CUgraphNodeType
    assert functions.CAPTURE_THREAD_LOCAL == modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    assert functions.CAPTURE_RELAXED == modes.CU_STREAM_CAPTURE_MODE_RELAXED
    assert functions.GRAPH_NODE_KERNEL == kinds.CU_GRAPH_NODE_TYPE_KERNEL
    most = bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert most == functions.MAX_DYNAMIC_SHARED_BYTES
    any_size = bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    assert any_size == functions.ANY_CLUSTER
    assert bindings.CUstream_flags.CU_STREAM_NON_BLOCKING == functions.NON_BLOCKING
    memory, asked = bindings.CUmemorytype, bindings.CUpointer_attribute
    assert memory.CU_MEMORYTYPE_HOST.value == functions.MEMORY_HOST
    assert memory.CU_MEMORYTYPE_DEVICE.value == functions.MEMORY_DEVICE
    assert asked.CU_POINTER_ATTRIBUTE_MEMORY_TYPE.value == functions.MEMORY_TYPE
    assert bindings.CUevent_flags.CU_EVENT_DISABLE_TIMING == functions.NO_TIMING


def test_copies_of_lines_are_described_as_in_cudas_header() -> None:
    theirs = bindings.CUDA_MEMCPY2D()
    mine = functions.Copy2D.of((1, 4096, 0, 256), (2, 0, 8192, 512), 200, 7)
    theirs.srcMemoryType = bindings.CUmemorytype.CU_MEMORYTYPE_HOST
    theirs.dstMemoryType = bindings.CUmemorytype.CU_MEMORYTYPE_DEVICE
    theirs.srcHost, theirs.srcPitch, theirs.dstDevice, theirs.dstPitch = 4096, 256, 8192, 512
    theirs.WidthInBytes, theirs.Height = 200, 7
    size = ctypes.sizeof(mine)
    assert bytes(mine) == ctypes.string_at(theirs.getPtr(), size)


def test_tensor_maps_are_asked_for_in_the_numbers_of_cudas_header() -> None:
    for element, number in tensor_map.TYPES.items():
        name = "UINT8" if "8" in element else element.upper()  # it looks at no byte
        kind = getattr(bindings.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}")
        assert number == kind
    for size, number in tensor_map.SWIZZLES.items():
        name = f"CU_TENSOR_MAP_SWIZZLE_{f'{size}B' if size else 'NONE'}"
        assert number == getattr(bindings.CUtensorMapSwizzle, name)
    fills, promotions = bindings.CUtensorMapFloatOOBfill, bindings.CUtensorMapL2promotion
    assert tensor_map._FILL_ZERO == fills.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    assert tensor_map._PROMOTE_128_BYTES == promotions.CU_TENSOR_MAP_L2_PROMOTION_L2_128B
    none = bindings.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE
    assert none == tensor_map._NO_INTERLEAVE


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The functions of a driver without a device, which nothing else finds in this process."""
    folder = tmp_path_factory.mktemp("driver")
    return Functions(ctypes.CDLL(str(build_fake(folder, "libfake_cuda.so"))))


@needs_c
def test_values_go_in_and_come_out(fake: Any) -> None:
    status, name = fake.cuDeviceGetName(256, 0)
    assert (status, name.split(b"\0")[0]) == (0, b"A GPU of tests")
    assert fake.cuDeviceGetAttribute(16, 0) == (0, 132)
    assert fake.cuDeviceGetAttribute(16, 1)[0] == 1
    assert fake.cuCtxPushCurrent(0xC0) == (0,)
    assert fake.cuCtxGetCurrent() == (0, 0xC0)
    assert fake.cuCtxPopCurrent() == (0, 0xC0)
    assert fake.cuCtxGetCurrent() == (0, 0)
    assert fake.cuStreamGetId(7)[1] - fake.cuStreamGetId(2)[1] == 5
    mode = ctypes.c_int(functions.CAPTURE_RELAXED)
    assert fake.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == (0,)
    assert mode.value == 0, "what was before"


@needs_c
def test_memory_and_code_are_passed_by_address(fake: Any) -> None:
    status, memory = fake.cuMemAlloc(16)
    assert status == 0
    assert ctypes.memset(memory, 3, 16) == memory
    assert fake.cuMemFree(memory) == (0,)
    cubin = b"an image\0with zeros"
    status, module = fake.cuModuleLoadData(cubin)
    assert status == 0 < module
    status, function = fake.cuModuleGetFunction(module, b"gemm")
    assert status == 0
    assert ctypes.string_at(function, 4) == b"gemm", "where fake_cuda.c keeps the symbol"
    assert fake.cuModuleUnload(module) == (0,)


@needs_c
def test_a_function_that_an_old_driver_lacks_is_said(fake: Any) -> None:
    with pytest.raises(LaunchError, match="making a graph"):
        check(fake.cuGraphInstantiate(1, 0), "making a graph")
    with pytest.raises(AttributeError, match="cuLaunchGrid"):
        fake.cuLaunchGrid  # noqa: B018


def test_every_function_that_is_called_is_known() -> None:
    """A call of another one would fail only on a GPU."""
    root = Path(functions.__file__).parents[2]
    texts = (path.read_text(encoding="utf-8") for path in root.rglob("*.py"))
    called = {name for text in texts for name in re.findall(r"\bapi\.(cu[A-Z]\w+)", text)}
    assert called
    assert called <= set(functions._FUNCTIONS)
