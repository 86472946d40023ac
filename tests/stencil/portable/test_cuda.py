"""The same text is CUDA C++: it compiles without a warning, with the resources we state."""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.stencil.portable.covering import LENIENT
from tests.stencil.portable_harness import variant
from tilewright.hardware import DeviceSpec
from tilewright.stencil import Source
from tilewright.stencil.portable import Portable

H100 = DeviceSpec(
    "H100", "NVIDIA Corporation", "gpu", 132, 32, 1024, 232448,
    max_threads_per_multiprocessor=2048, registers_per_multiprocessor=65536,
    max_registers_per_thread=255, shared_bytes_per_multiprocessor=233472,
    max_blocks_per_multiprocessor=32,
)  # fmt: skip

VARIANTS = ("sNN", "dTT", "cCN", "zRC", "eTN", "fNT", "wRC")


def macros(source: Source) -> list[str]:
    return [f"-D{name}={value}" for name, value in source.defines.items()]


def with_nvcc(source: Source, directory: Path) -> str:
    """Compile with nvcc; return what ptxas says of the kernel."""
    text = directory / "kernel.cu"
    text.write_text(source.text)
    command = ["nvcc", "-cubin", "-arch=sm_90", "-Werror=all-warnings", "-Xptxas=-v"]
    done = subprocess.run(
        [*command, *macros(source), "-o", str(directory / "kernel.cubin"), str(text)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@cache
def nvrtc() -> ctypes.CDLL | None:
    """Load the library of the nvidia-cuda-nvrtc wheel, if it is installed."""
    try:
        files = importlib.metadata.files("nvidia-cuda-nvrtc") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = {file.name: str(file.locate()) for file in files}
    # NVRTC asks for its builtins by name alone: they must be loaded before it is used.
    wanted = (r"libnvrtc-builtins\.so\.[\d.]+", r"libnvrtc\.so\.\d+")
    found = [path for name in wanted for file, path in paths.items() if re.fullmatch(name, file)]
    return [ctypes.CDLL(path) for path in found][-1] if found else None


def with_nvrtc(source: Source, directory: Path) -> str:
    """Compile with NVRTC, which has no header at all; return its log."""
    library = nvrtc()
    assert library is not None
    program = ctypes.c_void_p()
    text = source.text.encode()
    library.nvrtcCreateProgram(ctypes.byref(program), text, b"kernel.cu", 0, None, None)
    options = [o.encode() for o in ("--gpu-architecture=sm_90", *macros(source))]
    status = library.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*options)
    )
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    assert status == 0, log.value.decode()
    assert "warning" not in log.value.decode()
    return log.value.decode()


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[[Source], str]:
    if shutil.which("nvcc"):
        return lambda source: with_nvcc(source, tmp_path)
    if nvrtc():
        return lambda source: with_nvrtc(source, tmp_path)
    pytest.skip("neither nvcc nor NVRTC is here")


@pytest.mark.every(4)
@pytest.mark.parametrize("name", VARIANTS)
def test_it_compiles_as_cuda(compiled: Callable[[Source], str], name: str):
    """The default and one drawn config; where ptxas speaks, its shared memory is ours."""
    portable, of = Portable(), variant(name)
    drawn = Portable(LENIENT).space(of, H100).sample(40, seed=3)
    modest = [config for config in drawn if portable.resources(config, of).registers < 100]
    for config in (portable.default(of, H100), modest[0]):
        log = compiled(portable.source(config, of, "cuda"))
        used = portable.resources(config, of)
        if "registers" in log:
            stated = re.search(r"(\d+) bytes smem", log)
            asked = portable.source(config, of, "cuda").dynamic_shared_bytes
            assert (int(stated[1]) if stated else 0) + asked == used.shared_bytes
            assert "0 bytes spill stores" in log


def test_cuda_and_opencl_share_all_but_the_dialect():
    portable, of = Portable(), variant("zNC")
    config = portable.default(of, H100)
    cuda, opencl = (portable.source(config, of, dialect) for dialect in ("cuda", "opencl"))
    assert cuda.defines == opencl.defines
    ends = {made.text[made.text.index("/* Prelude of") :] for made in (cuda, opencl)}
    assert len(ends) == 1
