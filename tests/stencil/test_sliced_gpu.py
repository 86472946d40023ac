"""Slices of k on a GPU: two kernels that follow one another, and what runs beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stencil.contract import compiled, same_bits_every_time
from tests.stencil.portable_harness import variant
from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import Bench, Check, certify, screen

SIMT, MMA = SimtAsync(), MmaF64()
WHO = ("persistent", "stream_k", "tree", "schedule")

pytestmark = pytest.mark.gpu


@pytest.fixture
def copying(cuda: LiveDevice) -> LiveDevice:
    if not SIMT.suits(cuda.spec):
        pytest.skip(f"{cuda} does not copy asynchronously")
    return cuda


def sliced(family: Any, of: Variant, live: LiveDevice, **changes: int) -> Config:
    """Return the default in slices."""
    values = {name: x for name, x in family.default(of, live.spec).items() if name not in WHO}
    return Config(family.name, {**values, "split_k": 1, "sliced": 1, **changes})


@pytest.mark.parametrize("name", ["sNN", "sNT", "sTT", "cCN", "dNT", "zNC"])
@pytest.mark.parametrize("family", [SIMT, MMA], ids=lambda one: one.name)
def test_slices_keep_the_contract(copying: LiveDevice, family: Any, name: str) -> None:
    of = variant(name)
    if not family.computes(of.precision):
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


def test_a_graph_and_two_streams_give_the_bits_of_one_launch(copying: LiveDevice) -> None:
    """The second kernel may begin early: it still waits for the parts of its own first one."""
    of, m, k = variant("sNN"), 300, 4000
    config = sliced(SIMT, of, copying)
    kernel, launch = compiled(copying, SIMT, config, of), SIMT.launch(config, m, m, k)
    drawn, api = np.random.default_rng(8), copying.api  # type: ignore[attr-defined]
    a, b = (copying.upload(drawn.standard_normal(m * k, np.float32)) for _ in "ab")
    results = [copying.allocate(4 * m * m) for _ in range(6)]

    def call(c: Any) -> tuple[Any, ...]:
        operands = Operand(a, 0, m), Operand(b, 0, k), Operand(c, 0, m)
        return GemmCall(
            of.precision, m, m, k, 1, operands[0], operands[1], 0, operands[2]
        ).arguments()

    with copying.current():  # type: ignore[attr-defined]
        streams = [int(copying.check(api.cuStreamCreate(1), "")) for _ in "12"]  # type: ignore[attr-defined]
    copying.launch(kernel, launch, call(results[0])).wait()
    events = [
        copying.launch(kernel, launch, call(results[1 + turn % 4]), streams[turn % 2])
        for turn in range(40)
    ]
    for event in events:
        event.wait()
    captured = copying.prepare(kernel, launch, call(results[5]))  # type: ignore[attr-defined]
    with copying.current():  # type: ignore[attr-defined]
        check = copying.check  # type: ignore[attr-defined]
        mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        check(api.cuStreamBeginCapture(streams[0], mode), "")
        try:
            captured.enqueue(streams[0])
        finally:  # else nothing else runs in this thread
            graph = check(api.cuStreamEndCapture(streams[0]), "")
        made = check(api.cuGraphInstantiate(graph, 0), "")
        for _ in range(3):
            check(api.cuGraphLaunch(made, streams[0]), "")
        check(api.cuStreamSynchronize(streams[0]), "")
    bits = []
    for c in results:
        found = np.empty(m * m, np.float32)
        copying.download(c, found)
        bits.append(found.tobytes())
        copying.free(c)
    assert len(set(bits)) == 1
