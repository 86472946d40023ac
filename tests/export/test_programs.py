"""Other people's programs: built with a C compiler, with CMake, with nvcc; run where possible."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.export.building import COMPILER, HERE, ROOT, WARNINGS, needs_c, run
from tests.export.conftest import Exported

pytestmark = needs_c

EXAMPLES = ROOT / "examples/native"
LIBRARIES = ("-ldl", "-lm", "-lpthread")


def environment(exported: Exported, **more: str) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(exported.fake.parent), **more}


def numbers(count: int, first: int, dtype: str) -> np.ndarray:
    """Return the numbers that the examples make: multiples of 2^-15 in [-1, 1)."""
    i = np.arange(first, first + count, dtype=np.uint32)
    return ((i * np.uint32(2654435761)) >> np.uint32(16)).astype(dtype) / 32768 - 1


def test_the_c_example_needs_a_c_compiler_and_the_driver_only(exported: Exported, tmp_path: Path):
    """The driver here computes on the host, so that the program's own check is run too."""
    program, result = tmp_path / "example", tmp_path / "c.bin"
    sources = sorted(exported.sources.glob("*.c"))
    flags = (*WARNINGS, "-O1", f"-I{exported.sources}")
    run(
        COMPILER, *flags, EXAMPLES / "example.c", *sources, "-o", program, exported.fake, *LIBRARIES
    )
    env = environment(exported, FAKE_CUDA_COMPUTES="1")
    said = run(program, "37", "21", "11", result, env=env)
    assert "computed SGEMM 37x21x11" in said
    a = numbers(37 * 11, 1, "f4").reshape(37, 11, order="F")
    b = numbers(11 * 21, 7, "f4").reshape(11, 21, order="F")
    c = np.fromfile(result, "f4").reshape(37, 21, order="F")
    assert np.allclose(c, a @ b, rtol=1e-5, atol=1e-5)

    idle = subprocess.run(
        [program, "8", "8", "8"], env=environment(exported), capture_output=True, timeout=60
    )
    assert idle.returncode == 1, "a product that nobody computed must not pass the check"


def test_threads_load_each_kernel_once_and_do_not_race(exported: Exported, tmp_path: Path):
    """Under ThreadSanitizer where the compiler has it."""
    program = tmp_path / "threads"
    sources = sorted(exported.sources.glob("*.c"))
    command = [COMPILER, *WARNINGS, "-O1", "-g", f"-I{exported.sources}", HERE / "threads.c"]
    command += [*sources, exported.fake, *LIBRARIES, "-o", program]
    sanitized = subprocess.run([*command, "-fsanitize=thread"], capture_output=True, timeout=250)
    if sanitized.returncode != 0:
        run(*command)
    names = [name for name in exported.kernels.codes if name.startswith("tw_sgemm_nn")]
    loads = int(run(program, env=environment(exported, FAKE_CUDA_FORGETS="1")))
    assert 5 <= loads <= 5 * len(names)
    assert loads % 5 == 0


def test_a_machine_without_a_driver_gets_a_status(exported: Exported, tmp_path: Path):
    if shutil.which("nvidia-smi"):
        pytest.skip("NVIDIA's driver is here")
    source = tmp_path / "absent.c"
    source.write_text(
        '#include <stdio.h>\n#include "tilewright_gemm.h"\n'
        'int main(void) { printf("%d: %s\\n", tw_load(), tw_strerror(tw_load())); return 0; }\n'
    )
    program = tmp_path / "absent"
    sources = sorted(exported.sources.glob("*.c"))
    run(COMPILER, *WARNINGS, f"-I{exported.sources}", source, *sources, *LIBRARIES, "-o", program)
    assert run(program).startswith("1: NVIDIA's driver (libcuda.so.1")


def test_the_header_is_cxx_too(exported: Exported, tmp_path: Path):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    source = tmp_path / "it.cpp"
    source.write_text('#include "tilewright_gemm.h"\nint main() { return tw_load(); }\n')
    run(compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
        f"-I{exported.sources}", source)  # fmt: skip


@pytest.mark.parametrize("shared", ["ON", "OFF"])
def test_cmake_installs_a_library_that_pkg_config_finds(exported, tmp_path, shared):
    for tool in ("cmake", "pkg-config"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    build, root = tmp_path / "build", tmp_path / "root"
    options = [f"-DCMAKE_INSTALL_PREFIX={root}", f"-DBUILD_SHARED_LIBS={shared}"]
    run("cmake", "-S", exported.sources, "-B", build, *options, "-DCMAKE_INSTALL_LIBDIR=lib")
    run("cmake", "--build", build, "--parallel", "2")
    run("cmake", "--install", build)
    env = {**os.environ, "PKG_CONFIG_PATH": str(root / "lib/pkgconfig")}
    kind = ["--static"] if shared == "OFF" else []
    words = run("pkg-config", "--cflags", "--libs", *kind, "tilewright-gemm", env=env).split()
    program = tmp_path / "threads"
    run(COMPILER, *WARNINGS, HERE / "threads.c", "-o", program, *words, exported.fake, "-lpthread")
    libraries = f"{root / 'lib'}:{exported.fake.parent}"
    env = environment(exported, FAKE_CUDA_FORGETS="1") | {"LD_LIBRARY_PATH": libraries}
    assert int(run(program, env=env)) % 5 == 0
    if shared == "ON":
        listed = run("nm", "-D", "--defined-only", root / "lib/libtilewright-gemm.so")
        names = {line.split()[-1] for line in listed.splitlines()}
        assert {name for name in names if not name.startswith("tw_")} <= {"_init", "_fini"}
    consumer = tmp_path / "consumer"
    consumer.mkdir()
    (consumer / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(consumer C)\n"
        "find_package(tilewright-gemm REQUIRED)\n"
        "add_library(it STATIC it.c)\ntarget_link_libraries(it tilewright::gemm)\n"
    )
    (consumer / "it.c").write_text(
        '#include "tilewright_gemm.h"\nint it(void);\nint it(void) { return tw_load(); }\n'
    )
    run("cmake", "-S", consumer, "-B", consumer / "build", f"-DCMAKE_PREFIX_PATH={root}")
    run("cmake", "--build", consumer / "build")


LAYOUTS = """
#include <cuda.h>
#include <stddef.h>
#include "core.h"
#define ALIKE(theirs, ours, x, y) \\
    _Static_assert(offsetof(theirs, x) == offsetof(ours, y), "where a field lies")
ALIKE(CUlaunchConfig, tilewright_cu_config, sharedMemBytes, shared_bytes);
ALIKE(CUlaunchConfig, tilewright_cu_config, hStream, stream);
ALIKE(CUlaunchConfig, tilewright_cu_config, attrs, attributes);
ALIKE(CUlaunchConfig, tilewright_cu_config, numAttrs, attribute_count);
ALIKE(CUlaunchAttribute, tilewright_cu_attribute, value, value);
_Static_assert(sizeof(CUlaunchConfig) == sizeof(tilewright_cu_config), "a launch's size");
_Static_assert(sizeof(CUlaunchAttribute) == sizeof(tilewright_cu_attribute), "an attribute's size");
_Static_assert(sizeof(CUtensorMap) == 128 && _Alignof(CUtensorMap) <= 128, "a tensor map");
_Static_assert(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION == 6, "early launches");
_Static_assert(CU_TENSOR_MAP_DATA_TYPE_FLOAT32 == 7 && CU_TENSOR_MAP_DATA_TYPE_FLOAT64 == 8, "");
_Static_assert(CU_TENSOR_MAP_SWIZZLE_32B == 1 && CU_TENSOR_MAP_SWIZZLE_128B == 3, "swizzles");
_Static_assert(CU_TENSOR_MAP_L2_PROMOTION_L2_128B == 2, "promotion");
_Static_assert(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == 8, "shared memory");
_Static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == 16, "multiprocessors");
_Static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == 75, "capability");
_Static_assert(CU_STREAM_CAPTURE_MODE_RELAXED == 2, "capturing");
_Static_assert(CUDA_ERROR_OUT_OF_MEMORY == 2, "memory");
"""


def test_what_the_driver_is_told_lies_as_in_cudas_header(exported: Exported, tmp_path: Path):
    """The library has structures and numbers of cuda.h, which it does not include."""
    nvcc = shutil.which("nvcc", path="/usr/local/cuda/bin") or shutil.which("nvcc")
    folder = Path(nvcc).resolve().parents[1] / "include" if nvcc else tmp_path
    if not (folder / "cuda.h").exists():
        pytest.skip("needs a CUDA toolkit's cuda.h")
    (tmp_path / "layouts.c").write_text(LAYOUTS)
    run(COMPILER, "-std=c11", f"-I{folder}", f"-I{exported.sources}", "-fsyntax-only",
        tmp_path / "layouts.c")  # fmt: skip


def test_the_runtime_example_compiles_and_links(exported: Exported, tmp_path: Path):
    nvcc = shutil.which("nvcc", path="/usr/local/cuda/bin") or shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("needs nvcc")
    sources = sorted(exported.sources.glob("*.c"))
    run(COMPILER, *WARNINGS, "-c", *sources, cwd=tmp_path)
    program = tmp_path / "example_runtime"
    flags = ("-std=c++17", "-arch=sm_90a", "-Werror", "all-warnings", f"-I{exported.sources}")
    run(nvcc, *flags, EXAMPLES / "example_runtime.cu", *tmp_path.glob("*.o"), "-o", program)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:  # no GPU here
        assert "failed" in done.stderr


def test_numbers_are_the_examples_own():
    made = numbers(4, 1, "f8")
    expected = [((i * 2654435761 % 2**32) >> 16) / 32768 - 1 for i in range(1, 5)]
    assert made.tolist() == expected
