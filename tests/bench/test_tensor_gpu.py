"""What `benchmarks.tensor` races, on a Hopper GPU: calls stay right beside each other."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.backend import LiveDevice
from tilewright.bench.peers.formats import format_peer
from tilewright.bench.tensor.accuracy import errors
from tilewright.bench.tensor.cases import Case, candidates, tuned_as
from tilewright.bench.tensor.products import Matrices
from tilewright.problem import Problem
from tilewright.stencil.wgmma import Wgmma

pytestmark = pytest.mark.gpu


def test_all_that_is_raced_stays_right(cuda: LiveDevice) -> None:
    """Whatever is laid out later, and however often each is called."""
    if not Wgmma().suits(cuda.spec):
        pytest.skip(f"{cuda} is no Hopper GPU")
    n = 512
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), np.float32) for _ in "ab")
    matrices = Matrices(cuda, Problem(n, n, n, "s"), a, b)
    matrices.turn("NT")
    calls = {}
    for name in ("fp16x3", "bf16", "tf32", "bf16x6", "tf32x3"):
        case = Case(name, "NT")
        config = candidates(tuned_as(case), cuda.spec)[0]
        calls[name] = case, matrices.ours(case, config)
        calls[f"cublas {name}"] = case, matrices.theirs(case, format_peer(cuda))
    calls["guarded"] = Case("fp16x3", "NT"), matrices.guarded()
    sample = np.arange(0, n, 7), np.arange(3, n, 31)
    for _ in range(2):
        for name, (case, call) in calls.items():
            exact = matrices.exact(case.peer, sample)
            found = errors(matrices.picked(call, case.result, sample), exact, picked=True)
            most = {"bfloat16": 2.0**-8}.get(case.result, 2.0**-10 if "tf32" in name else 2.0**-19)
            assert found["eta"] < most, name
    matrices.close()
