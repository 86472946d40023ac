"""Reproducers: the written file alone shows what was recorded, on every OpenCL device."""

import ast
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuning.measurement_examples import example, few, measurements
from tilewright.backend.opencl.device import OPTIONS
from tilewright.hardware.catalogue import catalogue_device
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem, transposes_of
from tilewright.stencil import Variant, stencil, stencils_for
from tilewright.stencil.geometry import PLAIN, Launch
from tilewright.stencil.source import Source
from tilewright.tuning.reproduce import Case, _quoted, cases_of, reproducer

# The plainest kernel that keeps the argument list of tilewright.stencil.base: one
# work-item computes one element.  Macros choose how it fails.
KERNEL = """
/* a "quoted" comment, a back\\slash and three quotes: \"\"\" */
#if WORDS == 2
typedef struct { real re, im; } element;
#else
typedef struct { real re; } element;
#endif

element product(element a, int conjugate_a, element b, int conjugate_b) {
    element c;
#if WORDS == 2
    if (conjugate_a) a.im = -a.im;
    if (conjugate_b) b.im = -b.im;
    c.re = a.re * b.re - a.im * b.im;
    c.im = a.re * b.im + a.im * b.re;
#else
    c.re = a.re * b.re;
#endif
    return c;
}

element sum(element a, element b) {
    a.re += b.re;
#if WORDS == 2
    a.im += b.im;
#endif
    return a;
}

element scalar(real re, real im) {
    element c;
    c.re = re;
#if WORDS == 2
    c.im = im;
#endif
    return c;
}

__kernel void gemm(long m, long n, long k, real alpha_re, real alpha_im,
                   __global const element *a, long offset_a, long lda,
                   __global const element *b, long offset_b, long ldb,
                   real beta_re, real beta_im,
                   __global element *c, long offset_c, long ldc)
{
    const long i = get_global_id(0), j = get_global_id(1);
#ifdef HANG
    volatile __global int *first = (volatile __global int *)c; /* no NaN is equal to itself */
    while (*first == *first) ;
#endif
    if (i >= m || j >= n) return;
    a += offset_a, b += offset_b, c += offset_c;
    element total = scalar(0, 0);
    for (long p = 0; p < k; ++p) {
        const element x = TRANSPOSED_A ? a[p + i * lda] : a[i + p * lda];
        const element y = TRANSPOSED_B ? b[j + p * ldb] : b[p + j * ldb];
        total = sum(total, product(x, CONJUGATED_A, y, CONJUGATED_B));
    }
    total = product(scalar(alpha_re, alpha_im), 0, total, 0);
    if (beta_re != 0 || beta_im != 0)
        total = sum(total, product(scalar(beta_re, beta_im), 0, c[i + j * ldc], 0));
#ifdef WRONG
    if (i == 2 && j == 1) total.re += 1;
#endif
#ifdef STRAY
    if (i == 0 && j == 0) c[m + (n - 1) * ldc].re = 7;
#endif
    c[i + j * ldc] = total;
}
"""


def source(problem, **faults):
    """Return the kernel for a problem, with macros that make it fail."""
    defines = {
        "real": "double" if problem.precision.real_bytes == 8 else "float",
        "WORDS": problem.precision.words,
        "TRANSPOSED_A": int(problem.trans_a.transposed),
        "TRANSPOSED_B": int(problem.trans_b.transposed),
        "CONJUGATED_A": int(problem.trans_a.conjugated),
        "CONJUGATED_B": int(problem.trans_b.conjugated),
    }
    return Source(KERNEL, {**defines, **faults})


def launch(m, n):
    """Cover an m x n result with 8 x 4 blocks."""
    return Launch((-(-m // 8), -(-n // 4)), (8, 4))


EMPTY = """
import pyopencl as cl
devices = [d for p in cl.get_platforms() for d in p.get_devices() if d.name == {name!r}]
cl.Program(cl.Context(devices[:1]), "__kernel void empty() {{}}").build()
"""


@lru_cache(maxsize=8)
def builds_alone(name):
    """Whether a device's driver builds anything without us (backend.opencl.unknown_cpu)."""
    command = [sys.executable, "-c", EMPTY.format(name=name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return "unknown target CPU" not in done.stderr


def run(live, tmp_path, measured, made, *arguments, cases=None):
    """Write a reproducer, run it in a process of its own and return how that went."""
    if live.dialect == "opencl" and not builds_alone(live.spec.name):
        pytest.skip(f"{live.platform} does not know this CPU, and a reproducer has no help of ours")
    platform = {"platform": getattr(live, "platform", "")}
    measured = replace(measured, device_name=live.spec.name, environment=platform)
    path = tmp_path / "shown.py"
    path.write_text(reproducer(measured, made, launch, cases=cases), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error::SyntaxWarning", str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert live.spec.name in done.stdout
    return done


def problem_of(precision, trans_a="N", trans_b="N", sizes=(13, 9, 6)):
    tight = Problem(*sizes, precision, trans_a, trans_b)
    return replace(tight, lda=tight.lda + 2, ldb=tight.ldb + 1, ldc=tight.ldc + 3)


@pytest.mark.every(2)
@pytest.mark.parametrize("letter", PRECISIONS)
def test_a_right_kernel_passes_whatever_the_scalars_and_sizes(live, tmp_path, letter):
    operations = transposes_of(PRECISIONS[letter])[-1]
    problem = problem_of(letter, *operations)
    empty = [replace(problem, **{side: 0}) for side in "mnk"]
    cases = [
        Case(problem, nan_in_c=True),
        Case(problem, alpha=-3 + 1j, beta=2 - 1j, offset=5),
        Case(problem, alpha=0, beta=0.5),
        *(Case(one, beta=beta, nan_in_c=beta == 0) for one in empty for beta in (0, 1)),
    ]
    done = run(live, tmp_path, example(problem=problem), source(problem), cases=cases)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing went wrong" in done.stdout


def test_a_wrong_result_is_shown_with_its_place(live, tmp_path):
    problem = problem_of("s", "T", "N")
    measured = example(problem=problem, status="wrong-result")
    done = run(live, tmp_path, measured, source(problem, WRONG=1))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG RESULT: C(2, 1) is" in done.stdout
    assert "1 of" in done.stdout


def test_a_stray_write_is_shown(live, tmp_path):
    problem = problem_of("d")
    measured = example(problem=problem, status="wrong-result")
    done = run(live, tmp_path, measured, source(problem, STRAY=1))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "memory outside C was written" in done.stdout


def test_a_compile_error_is_shown(live, tmp_path):
    problem = problem_of("s")
    measured = example(problem=problem, status="compile-error", detail="error: no such type")
    done = run(live, tmp_path, measured, source(problem, WORDS="no_such_name +"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "COMPILE ERROR" in done.stdout


def test_a_hang_ends_by_itself(live, tmp_path):
    problem = problem_of("s")
    measured = example(problem=problem, status="timeout")
    done = run(live, tmp_path, measured, source(problem, HANG=1), "--seconds", "6")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "running on" in done.stdout, "the kernel hangs, not the compiler"
    assert "TIMEOUT" in done.stdout


def test_an_absent_device_is_named_with_those_that_are_here(live, tmp_path):
    problem = problem_of("s")
    done = run(live, tmp_path, example(problem=problem), source(problem), "--device", "No Such")
    assert done.returncode == 2
    assert "--device" in done.stdout


# ------------------------------------------------------------------------ the text


@few
@given(
    measurements(), st.text(), st.dictionaries(st.sampled_from("ABC"), st.text() | st.integers())
)
def test_whatever_was_recorded_the_file_is_a_program_with_that_kernel(measured, text, defines):
    """Reasons, logs and names come from compilers and from other people's files."""
    measured = replace(measured, backend="opencl")
    written = reproducer(measured, Source(text, defines), launch, cases=[Case(measured.problem)])
    tree = ast.parse(written)
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("TEXT", "OPTIONS", "DEVICE", "CASES", "SEED")
    }
    assert values["TEXT"] == text
    assert values["OPTIONS"][len(OPTIONS) :] == [
        f"-D{name}={value}" for name, value in defines.items()
    ]
    assert values["DEVICE"] == measured.device_name
    assert values["CASES"][0]["m"] == measured.problem.m
    assert values["SEED"] == int(measured.config.id, 16)
    assert str(measured.status) in ast.get_docstring(tree)


@given(st.text(st.sampled_from('"\\\nab$\r\0')))
def test_quoting_is_undone_by_python(text):
    assert ast.literal_eval(f'"""\\\n{_quoted(text)}"""') == text


def test_the_check_that_a_reason_names_is_what_is_run():
    reason = (
        "C(2, 1) is nan, should be 3.0; 4 of 20 elements are wrong"
        " (m=7 n=5 k=0 alpha=(-2+1j) beta=0 padding=3)"
    )
    measured = example(status="wrong-result", reason=reason)
    (case,) = cases_of(measured)
    assert (case.problem.m, case.problem.n, case.problem.k) == (7, 5, 0)
    assert (case.problem.lda, case.problem.ldb, case.problem.ldc) == (10, 8, 10)
    assert (case.alpha, case.beta, case.offset, case.nan_in_c) == (-2 + 1j, 0, 3, True)


@pytest.mark.parametrize("reason", ["no idea", "(m=1)", "(m=x n=1 k=1)", "(m=1 n=1 k=99999999999)"])
def test_otherwise_ragged_edges_and_the_problem_itself_are_run(reason):
    measured = example(status="wrong-result", reason=reason)
    config = measured.config.replace(block_m=8, block_n=4, block_k=16)
    ragged, whole = cases_of(replace(measured, config=config))
    assert (ragged.problem.m, ragged.problem.n, ragged.problem.k) == (13, 7, 25)
    assert whole.problem == measured.problem
    assert cases_of(measured) == (Case(measured.problem, nan_in_c=True),), "no block sizes known"


def test_numpy_and_pyopencl_are_all_it_needs():
    tree = ast.parse(reproducer(example(), Source("", {}), launch))
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    assert imported - set(sys.stdlib_module_names) == {"numpy", "pyopencl"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


def test_a_backend_without_a_template_is_refused():
    with pytest.raises(ValueError, match="no reproducer"):
        reproducer(example(backend="abacus"), Source("", {}), launch)


def test_what_is_more_than_a_plain_launch_is_run_by_tilewright(cpu, tmp_path):
    """Of double-double elements, which NumPy has not."""
    problem = Problem(40, 30, 20, "e", "N", "T")
    family = stencils_for(cpu.spec, Variant.of(problem))[0]
    config = family.default(Variant.of(problem), cpu.spec)
    measured = replace(example(), problem=problem, config=config, mode=PLAIN)
    text = reproducer(measured, Source("", {}), lambda m, n: family.launch(config, m, n))
    assert "(elements that NumPy has not)" in text
    path = tmp_path / "shown.py"
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, str(path), cpu.id]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("nothing went wrong\n")
    broken = text.replace("'block_m': ", "'block_m': -")
    path.write_text(broken, encoding="utf-8")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1


def test_a_kernel_with_arguments_of_its_own_has_no_source():
    from tilewright.cli.db import _kernel

    family, of = stencil("wgmma"), Problem(64, 64, 64, "bf16", "T", "N")
    config = family.default(Variant.of(of), catalogue_device("h100").spec)
    recorded = example(
        backend="cuda", config=config, stencil_version=family.version, problem=of, mode=PLAIN
    )
    source, launched = _kernel(recorded)
    assert source is None
    assert "arguments of its own" in reproducer(recorded, source, launched)
