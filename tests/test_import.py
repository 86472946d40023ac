"""``import tilewright`` must cost nothing: everything heavy comes on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tilewright


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_is_light():
    heavy = ("numpy", "pyopencl", "typer", "rich", "sqlite3")
    code = f"import sys, tilewright; print([m for m in {heavy!r} if m in sys.modules])"
    assert run(code) == "[]"


@pytest.mark.parametrize("blas", ["0", "1"])
def test_serving_imports_nothing_that_makes_machine_code_or_tunes(monkeypatch, blas):
    """Nor is what ships for GPUs read where none is asked for."""
    monkeypatch.setenv("TILEWRIGHT_HOST_BLAS", blas)
    code = (
        "import sys, numpy as np\nread = []\n"
        "sys.addaudithook(lambda event, of: read.append(str(of[0])) if event == 'open' else None)\n"
        "import tilewright as tw\n"
        "a = np.arange(9000, dtype='f4').reshape(100, 90) % 7\n"
        "assert np.array_equal(tw.gemm(a, a, trans_a='T', device='opencl'), a.T @ a)\n"
        "made = ('tilewright.sass', 'tilewright.tuning', 'cuda.bindings.nvrtc', 'scipy')\n"
        "print([m for m in sys.modules for name in made if (m + '.').startswith(name + '.')]"
        " + [name for name in read if 'sm_90' in name])"
    )
    assert run(code) == "[]"


def test_what_ships_is_chosen_without_its_space():
    """Parameters and constraints take a tenth of a first call to import."""
    code = (
        "import sys\nfrom dataclasses import replace\nfrom types import SimpleNamespace\n"
        "from tilewright.backend.cuda.architecture import architecture_spec\n"
        "from tilewright.portfolio.choose import choose\n"
        "from tilewright.problem import Problem\n"
        "spec = replace(architecture_spec('sm_90a'), multiprocessors=132)\n"
        "gpu = SimpleNamespace(portfolio_key='', spec=spec)\n"
        "for letter in 'sdcz':\n"
        "    found = choose(gpu, Problem(300, 200, 100, letter))\n"
        "    assert found.digest() and found.launch(Problem(300, 200, 100, letter)).grid\n"
        "print([m for m in sys.modules if m.endswith(('.constraints', '.parameters', '.starts'))]"
        " + [m for m in sys.modules if m == 'tilewright.space.space'])"
    )
    assert run(code) == "[]"


def test_a_call_on_cuda_arrays_imports_little():
    """Each of these takes milliseconds of the first call of a process."""
    code = (
        "import sys, tilewright as tw\ntw.gemm\n"
        "from tilewright.serve.arrays import device\n"
        "from tilewright.serve import kernels\n"
        "from tilewright.serve.routes.split import chain, serve\n"
        "slow = ('cuda.bindings', 'importlib.resources', 'numpy.typing', 'secrets', 'sysconfig',\n"
        "    'tilewright.backend.cuda.compiler', 'tilewright.backend.cuda.launch',\n"
        "    'tilewright.space.diagram', 'tilewright.space.funnel',\n"
        "    'pyopencl', 'rich', 'sqlite3')\n"
        "print([name for name in slow if name in sys.modules])"
    )
    assert run(code) == "[]"


def test_everything_public_can_be_had():
    for name in tilewright.__all__:
        assert getattr(tilewright, name) is not None
    assert set(tilewright.__all__) <= set(dir(tilewright))
    with pytest.raises(AttributeError, match="no attribute 'gem'"):
        tilewright.gem  # noqa: B018


def test_listing_commands_needs_no_opencl():
    code = (
        "import sys\nfrom tilewright.cli.app import run\n"
        "run(['--help'])\nprint('pyopencl' in sys.modules, 'numpy' in sys.modules)"
    )
    assert run(code).splitlines()[-1] == "False False"


def test_public_functions_stay_functions_once_their_packages_are_imported():
    code = (
        "import numpy as np, tilewright as tw\n"
        "tw.gemm(np.ones((2, 2)), np.ones((2, 2)))\n"
        "import tilewright.tuning.tuner, tilewright.hardware\n"
        "print(tw.device('opencl').backend, callable(tw.tune), callable(tw.devices))"
    )
    assert run(code) == "opencl True True"
