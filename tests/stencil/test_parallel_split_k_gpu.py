"""Slices of k on a GPU: two kernels that follow one another, and what runs beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stencil.contract import bits_on_two_streams, compiled, same_bits_every_time
from tests.stencil.portable_harness import variant
from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.backend.cuda.functions import CAPTURE_THREAD_LOCAL
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import Bench, Check, certify, screen

SIMT, MMA = SimtAsync(), MmaF64()
WHO = ("persistent", "stream_k", "tree_reduction")

pytestmark = pytest.mark.gpu


def sliced(family: Any, of: Variant, live: LiveDevice, **changes: int) -> Config:
    """Return the default in slices."""
    values = {name: x for name, x in family.default(of, live.spec).items() if name not in WHO}
    return Config(family.name, {**values, "cluster_k": 1, "parallel_split_k": 1, **changes})


@pytest.mark.parametrize("name", ["sNN", "sNT", "sTT", "cCN", "dNT", "zNC"])
@pytest.mark.parametrize("family", [SIMT, MMA], ids=lambda one: one.name)
def test_slices_keep_the_contract(copying: LiveDevice, family: Any, name: str) -> None:
    of = variant(name)
    if not family.computes(of):
        pytest.skip(f"{family.name} does not compute {name[0]}")
    config = sliced(family, of, copying)
    kernel = compiled(copying, family, config, of)
    certify(copying, kernel, family, config, of)
    screen(copying, kernel, family, config, of)
    for check in (Check(108, 299, 4948, beta=1, padding=1), Check(700, 90, 3000, -2, 3)):
        Bench(copying, kernel, family, config, of).exact(check, np.random.default_rng(9))


def test_boxes_may_be_cut_into_slices(copying: LiveDevice) -> None:
    of = variant("sNT")
    config = sliced(SIMT, of, copying)
    config = config.replace(tma=1, copy_groups=1, unroll_k=config.integer("block_k"))
    if config not in SIMT.space(of, copying.spec):
        pytest.skip(f"{copying} has no copy engine")
    kernel = compiled(copying, SIMT, config, of)
    screen(copying, kernel, SIMT, config, of)


@pytest.mark.parametrize("size", [512, 1000])
def test_the_same_bits_every_time(copying: LiveDevice, size: int) -> None:
    problem = Problem(size, size, 3000, "s", "T", "N")
    config = sliced(SIMT, Variant.of(problem), copying)
    same_bits_every_time(copying, SIMT, config, problem)


def test_launches_on_two_streams_do_not_share_parts(copying: LiveDevice) -> None:
    """The second kernel may begin early: it still waits for the parts of its own first one."""
    of = variant("sNN")
    config = sliced(SIMT, of, copying)
    kernel = compiled(copying, SIMT, config, of)
    assert len(bits_on_two_streams(copying, kernel, config, SIMT, (300, 4000))) == 1


@pytest.mark.parametrize(
    "shares", [{}, {"persistent": 1, "stream_k": 2, "parallel_split_k": 0}], ids=str
)
def test_a_captured_launch_gives_the_same_bits(copying: Any, shares: dict[str, int]) -> None:
    """A capture has a workspace of its own; a stream has no number meanwhile."""
    of, m, k, api, check = variant("sNN"), 300, 4000, copying.api, copying.check
    config = sliced(SIMT, of, copying, **shares)
    kernel, launch = compiled(copying, SIMT, config, of), SIMT.launch(config, m, m, k)
    drawn, found = np.random.default_rng(8), np.empty((2, m * m), np.float32)
    a, b = (copying.upload(drawn.standard_normal(m * k, np.float32)) for _ in "ab")
    results = [copying.allocate(4 * m * m) for _ in found]
    calls = [
        GemmCall(of.precision, m, m, k, 1, Operand(a, 0, m), Operand(b, 0, k), 0, Operand(c, 0, m))
        for c in results
    ]
    copying.launch(kernel, launch, calls[0].arguments()).wait()
    captured = copying.prepare(kernel, launch, calls[1].arguments())
    with copying.current():
        stream = int(check(api.cuStreamCreate(1), "stream"))
        check(api.cuStreamBeginCapture(stream, CAPTURE_THREAD_LOCAL), "capture")
        try:
            captured.enqueue(stream)
        finally:  # else nothing else runs in this thread
            graph = check(api.cuStreamEndCapture(stream), "capture")
        made = check(api.cuGraphInstantiate(graph, 0), "graph")
        for _ in range(3):
            check(api.cuGraphLaunch(made, stream), "graph")
        check(api.cuStreamSynchronize(stream), "graph")
    for c, into in zip(results, found, strict=True):
        copying.download(c, into)
        copying.free(c)
    assert found[0].tobytes() == found[1].tobytes()
