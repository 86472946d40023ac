"""From CUDA C++ to a cubin with NVRTC: no GPU, no driver, no toolkit.

NVRTC is called through ``cuda.bindings.nvrtc`` itself: cuda-core's ObjectCode asks for a
driver when it is printed or hashed, and hangs without one.
"""

from __future__ import annotations

import re
import time
from functools import lru_cache
from types import ModuleType
from typing import Any

from tilewright.backend.base import BackendError, CompileError, HostError, OutOfMemoryError
from tilewright.backend.cache import KernelCache
from tilewright.backend.cubin import Cubin
from tilewright.sass import read_cubin
from tilewright.sass.occupancy import limits_of
from tilewright.stencil import STATIC_SHARED_BYTES, Source
from tilewright.text import install_hint
from tilewright.timeline import span

__all__ = [
    "OPTIONS",
    "Cubin",
    "cached_cubin",
    "compile_cubin",
    "nvrtc",
    "nvrtc_version",
    "supported_architectures",
]

# No option that relaxes IEEE arithmetic may ever stand here: the numerics contract.
# Contraction to fused multiply-add (NVRTC's default) is part of that contract.
OPTIONS = ("--std=c++17", "--ptxas-options=-v")

# No part of any key, as it changes no code.  NVRTC's own cache is the driver's: it begins with
# cuInit, which tells every GPU of the machine of every process that only compiles.
_NO_CACHE = b"--no-cache"

_NVRTC_OUT_OF_MEMORY = 1


@lru_cache(maxsize=1)
def nvrtc() -> ModuleType | None:
    """Return ``cuda.bindings.nvrtc`` where it and its library are here, else None."""
    try:
        from cuda.bindings import nvrtc as found
    except ImportError:
        return None
    try:
        status, *_ = found.nvrtcVersion()
    except Exception:  # the finder of the library raises classes of its own
        return None
    return found if int(status) == 0 else None


def _need_nvrtc() -> ModuleType:
    found = nvrtc()
    if found is None:
        raise HostError(f"NVRTC is not here; {install_hint('tune')}")
    return found


@lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """Return NVRTC's version with its build, such as ``"13.0.88"``.

    Builds differ in the registers they give the same kernel.  NVRTC's own call leaves the
    build out, but the PTX it writes begins with it.
    """
    found = _need_nvrtc()
    major, minor = _call(found, "nvrtcVersion")
    program = _call(found, "nvrtcCreateProgram", b"", b"empty.cu", 0, None, None)
    try:
        target = f"--gpu-architecture=compute_{min(supported_architectures())}".encode()
        _call(found, "nvrtcCompileProgram", program, 2, [target, _NO_CACHE])
        ptx = _text(found, program, "nvrtcGetPTX")
    finally:
        found.nvrtcDestroyProgram(program)
    build = re.search(r"\bV(\d+\.\d+\.\d+)", ptx)
    return build[1] if build else f"{major}.{minor}"


def supported_architectures() -> tuple[int, ...]:
    """Return the architectures NVRTC compiles for, as in ``(75, 80, 90)``."""
    return tuple(_call(_need_nvrtc(), "nvrtcGetSupportedArchs"))


def compile_cubin(source: Source, arch: str) -> Cubin:
    """Compile a source for an architecture.

    Parameters
    ----------
    source : Source
        CUDA C++ that includes nothing.
    arch : str
        A real architecture, such as ``"sm_90a"``; no GPU of it need be here.

    Raises
    ------
    CompileError
        If the compiler refuses the source or its shared memory is too much, whether
        static or, where the architecture's limit is known, with what the launch asks for.
    """
    found = _need_nvrtc()
    started = time.perf_counter()
    program = _call(found, "nvrtcCreateProgram", source.text.encode(), b"kernel.cu", 0, None, None)
    try:
        with span("NVRTC", {"arch": arch, "entry": source.entry}):
            made = _compiled(found, program, source, arch)
    finally:
        found.nvrtcDestroyProgram(program)
    code, log, lowered = made
    static = {kernel.name: kernel.shared_bytes for kernel in read_cubin(code).kernels}
    _check_shared(max(static.values(), default=0), log)
    # A second function's launch asks for none.
    _check_dynamic_shared(static.get(lowered, 0), source.dynamic_shared_bytes, arch, log)
    return Cubin(code, log, {source.entry: lowered}, arch, time.perf_counter() - started)


def _check_dynamic_shared(static: int, dynamic: int, arch: str, log: str) -> None:
    """Refuse what the architecture's blocks cannot have, however it is asked for."""
    number = re.fullmatch(r"sm_(\d+)[af]?", arch)
    try:
        most = limits_of(int(number[1])).shared_bytes_per_block if number else None
    except ValueError:  # newer than our table: the driver has the last word
        return
    if dynamic and most is not None and static + dynamic > most:
        raise CompileError(
            f"the kernel has {static + dynamic} bytes of shared memory, {dynamic} of them dynamic,"
            f" {arch} allows {most}; use smaller blocks",
            log,
        )


def _check_shared(shared: int, log: str) -> None:
    """Refuse what CUDA promises no launch for; some builds of NVRTC compile it all the same.

    The size is the cubin's own: NVRTC 13.0 leaves ptxas's report out of the log from the
    second compilation of a process on.
    """
    if shared > STATIC_SHARED_BYTES:
        raise CompileError(
            f"the kernel has {shared} bytes of static shared memory,"
            f" CUDA allows {STATIC_SHARED_BYTES}; use smaller blocks",
            log,
        )


def _compiled(found: ModuleType, program: Any, source: Source, arch: str) -> tuple[bytes, str, str]:
    """Return a program's cubin, its log and the name of its entry in the cubin."""
    macros = [f"-D{name}={value}" for name, value in source.defines.items()]
    every = [option.encode() for option in (f"--gpu-architecture={arch}", *OPTIONS, *macros)]
    every.append(_NO_CACHE)
    expression = source.entry.encode()
    _call(found, "nvrtcAddNameExpression", program, expression)
    (status,) = found.nvrtcCompileProgram(program, len(every), every)
    log = _text(found, program, "nvrtcGetProgramLog")
    if int(status) == _NVRTC_OUT_OF_MEMORY:
        raise OutOfMemoryError(f"NVRTC ran out of memory compiling for {arch}", log)
    if int(status) != 0:
        said = re.findall(r"(\d+) bytes smem", log)
        _check_shared(max(map(int, said), default=0), log)
        raise CompileError(f"NVRTC refused the kernel for {arch}: {_first_error(log, status)}", log)
    lowered = _call(found, "nvrtcGetLoweredName", program, expression)
    return _bytes(found, program, "nvrtcGetCUBIN"), log, lowered.decode()


def _first_error(log: str, status: Any) -> str:
    """Return the first error of a log in one line."""
    for line in log.splitlines():
        before, mark, after = line.partition("error")
        if mark:
            # "kernel.cu(3): error: ..." and "nvrtc: error: ...", ptxas likewise.
            where = re.search(r"kernel\.cu\((\d+)\)", before)
            reason = after.partition(":")[2].strip() or line.strip()
            return f"{reason} (line {where[1]})" if where else reason
    return str(getattr(status, "name", status))


def _call(found: ModuleType, name: str, *arguments: Any) -> Any:
    """Return what an NVRTC call returns besides its status."""
    status, *values = getattr(found, name)(*arguments)
    if int(status) != 0:
        raise BackendError(f"{name} failed: {getattr(status, 'name', status)}")
    return values[0] if len(values) == 1 else tuple(values)


def _bytes(found: ModuleType, program: Any, name: str) -> bytes:
    """Return what NVRTC writes into memory of ours."""
    size = _call(found, f"{name}Size", program)
    # The bindings write into the bytes object itself: it must be a new one, and one of
    # fewer than two bytes never is.
    memory = bytes(max(2, size))
    _call(found, name, program, memory)
    return memory[:size]


def _text(found: ModuleType, program: Any, name: str) -> str:
    return _bytes(found, program, name).rstrip(b"\0").decode(errors="replace")


def cached_cubin(source: Source, arch: str, cache: KernelCache | None) -> Cubin:
    """Compile a source, or take its cubin from the disk cache, if there is one.

    The key holds the architecture, NVRTC's build and the options; a cubin does not
    depend on the driver or on which GPU of its architecture it runs on.
    """
    if cache is None:
        return compile_cubin(source, arch)
    key = cache.key(source, (arch, *OPTIONS), f"nvrtc {nvrtc_version()}")
    stored = cache.load(key)
    if stored is not None:
        try:
            return Cubin.from_bytes(stored)
        except (ValueError, TypeError):  # json's error is a ValueError
            cache.drop(key)
    made = compile_cubin(source, arch)
    cache.save(key, made.to_bytes())
    return made
