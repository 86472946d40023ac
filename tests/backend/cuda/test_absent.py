"""Without NVIDIA's packages or driver everything else goes on as if CUDA did not exist."""

from __future__ import annotations

import subprocess
import sys

# Hides the packages of the extra, as on a machine where they were never installed.
HIDDEN = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("cuda", "cupy", "torch"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hide())
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_devices_are_listed_without_the_packages():
    said = run(HIDDEN + "import tilewright as tw; print({d.backend for d in tw.devices()})")
    assert "opencl" in said


def test_compiling_says_what_to_install():
    said = run(
        HIDDEN + "from tilewright.backend.cuda.compiler import compile_cubin\n"
        "from tilewright.stencil import Source\n"
        "try: compile_cubin(Source('', {}), 'sm_90')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    assert said.startswith("HostError NVRTC is not here; run: pip install '.[tune]' in the clone")


def test_a_process_without_a_driver_touches_nothing_of_cuda():
    """Not even our own modules for it, nor the tables of GPUs' kernels: a first call takes time."""
    said = run(
        "import sys\n"
        "opened = []\n"
        "sys.addaudithook(lambda name, x: opened.append(str(x[0])) if name == 'open' else None)\n"
        "import tilewright.backend.libcuda as libcuda\n"
        "libcuda.library = lambda: None\n"
        "import numpy as np, tilewright as tw\n"
        "for kind in ('f4', 'c16'): tw.gemm(np.eye(3, dtype=kind), np.eye(3, dtype=kind))\n"
        "gpu = ('backend.cuda', 'sass', 'bounds', 'microbench', 'stencil.wgmma',\n"
        "       'stencil.mma_f64', 'stencil.simt_async', 'stencil.skinny', 'stencil.outer')\n"
        "gpu = tuple(f'tilewright.{name}' for name in gpu)\n"
        "print([x for x in sys.modules if x.startswith(gpu)],\n"
        "      [x for x in opened if 'sm_90' in x])\n"
    )
    assert said == "[] []\n"


def test_importing_the_package_imports_none_of_it():
    said = run(
        "import sys, tilewright as tw; tw.gemm, tw.devices\n"
        "print(sorted(x for x in sys.modules if x.split('.')[0] in ('cuda', 'cupy', 'torch')))"
    )
    assert said.strip() == "[]"
