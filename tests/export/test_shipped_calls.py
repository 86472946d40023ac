"""Calls of a library that is exported from what the package ships, beside those of `gemm`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.export.building import Caller, build_fake, build_library, named, needs_c, written
from tests.export.calling import COLUMNS, ROWS, A, B, C
from tests.export.comparing import PretendedGPU, compare, compare_batch
from tests.export.conftest import Exported
from tests.export.test_calls import large_calls
from tilewright.export import collect, find_target, kernel_set, variants_of
from tilewright.portfolio.find import shipped_for
from tilewright.precision import PRECISIONS

pytestmark = needs_c

LETTERS = "scd"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Exported, PretendedGPU]]:
    """The library, on the device that its kernels were measured on; nothing is compiled."""
    target = find_target("sm_90a", defaults=True).serving("s")
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(kernel_set, "arranged_cubin")
        kernels = collect(target, variants_of(",".join(LETTERS), "all"))
    folder = tmp_path_factory.mktemp("shipped")
    sources, fake = written(named(kernels), folder / "c"), build_fake(folder)
    call = Caller(build_library(sources, folder / "libtilewright-gemm.so"), fake)
    call("set", "fake_name", target.spec.name)
    call("set", "fake_multiprocessors", target.spec.multiprocessors)
    yield (
        Exported(kernels, sources, fake, call),
        PretendedGPU(replace(target.spec, memory_bytes=80 << 30)),
    )
    call.close()


def test_every_call_launches_what_gemm_launches(shipped):
    exported, gpu = shipped
    copied = set()
    for call in large_calls(LETTERS, 400):
        said = exported.call("gemm", *call, 7)
        copied |= {(call[0], name) for name in compare(exported, gpu, call, 7, said)}
    assert {letter for letter, _ in copied} == {"s", "c"}, "where copies were timed"


def test_long_sums_are_cut_as_gemm_cuts_them(shipped):
    exported, gpu = shipped
    rng, pieces = np.random.default_rng(2), set()
    for letter, order, ta, tb in product(LETTERS, (ROWS, COLUMNS), "NT", "NC"):
        m, n, k = (int(x) for x in np.exp(rng.uniform((5, 5, 9), (8, 8, 12))))
        lds = [
            (columns if order == ROWS else rows) + 4
            for rows, columns in ((m, k) if ta == "N" else (k, m), (k, n) if tb == "N" else (n, k))
        ]
        ldc = n if order == ROWS else m
        call = (
            letter, order, ta, tb, m, n, k, (1.0, 0.0), A, lds[0], B, lds[1], (0.5, 0.0), C, ldc,
        )  # fmt: skip
        said = exported.call("gemm", *call, 7)
        compare(exported, gpu, call, 7, said)
        pieces.add(sum(one["symbol"] == "gemm" for one in said["launches"]))
    assert max(pieces) > 2


def batches(count: int) -> Iterator[tuple]:
    """Yield calls with the steps of their batches, none of which is one product."""
    rng = np.random.default_rng(1)
    for _ in range(count):
        letter, order = str(rng.choice(list(LETTERS))), int(rng.choice([ROWS, COLUMNS]))
        ta, tb = (str(x) for x in rng.choice(list("NNTTC"), 2))
        m, n, k = (int(x) for x in np.exp(rng.uniform(0, 6, 3)))
        if rng.random() < 0.5:
            m, n, k = (-(-x // 16) * 16 for x in (m, n, k))
        pad = int(rng.choice([0, 1, 4]))
        lds, steps = [], []
        for rows, columns, op in ((m, k, ta), (k, n, tb), (m, n, "N")):
            stored = (rows, columns) if op == "N" else (columns, rows)
            inner, outer = stored[::-1] if order == ROWS else stored
            lds.append(inner + pad)
            steps.append(lds[-1] * outer + int(rng.choice([4, 16])))
        if rng.random() < 0.3:
            steps[int(rng.integers(2))] = 0
        many = int(rng.choice([2, 3, 50, 70000]))
        one = PRECISIONS[letter].element_bytes
        yield (
            letter, order, ta, tb, m, n, k, (1.0, 0.0), A + one * int(rng.integers(2)), lds[0],
            B, lds[1], (0.5, 0.0), C, lds[2],
        ), (*steps, many)  # fmt: skip


def test_every_batch_launches_what_gemm_launches(shipped):
    exported, gpu = shipped
    together = set()
    for call, steps in batches(200):
        if steps[-1] > 50 and call[4] * call[5] > 64:
            continue  # a launch a product
        said = exported.call("batch", *call, 7, *steps)
        together.add((call[0], compare_batch(exported, gpu, call, steps, 7, said)))
    assert together == {*product(LETTERS, (True,))}


@pytest.mark.parametrize("many", [900, 70000])
def test_persistent_blocks_of_a_batch_are_told_how_many_products_a_launch_has(shipped, many):
    exported, gpu = shipped
    call = ("d", COLUMNS, "N", "N", 64, 64, 64, (1.0, 0.0), A, 64, B, 64, (0.5, 0.0), C, 64)
    steps = 64 * 64, 64 * 64, 64 * 64, many
    said = exported.call("batch", *call, 7, *steps)
    assert compare_batch(exported, gpu, call, steps, 7, said)
    assert {one["grid"][2] for one in said["launches"]} == {1}
    assert sum(one["arguments"][19] for one in said["launches"]) == many


def test_large_products_of_a_batch_are_launched_one_by_one(shipped):
    exported, gpu = shipped
    m = n = k = 4096
    call = ("s", COLUMNS, "N", "N", m, n, k, (1.0, 0.0), A, m, B, k, (0.5, 0.0), C, m)
    steps = m * k, k * n, m * n, 2
    said = exported.call("batch", *call, 7, *steps)
    assert not compare_batch(exported, gpu, call, steps, 7, said)


@pytest.mark.parametrize("order", [ROWS, COLUMNS])
def test_a_batch_that_continues_is_one_product(shipped, order):
    """One operand is the same in all of it."""
    exported, _ = shipped
    m, n, k, many = (96, 64, 48, 5) if order == COLUMNS else (64, 96, 48, 5)
    lds = (m, k, m) if order == COLUMNS else (k, n, n)
    steps = (0, k * n, m * n) if order == COLUMNS else (m * k, 0, m * n)
    head, tail = ("s", order, "N", "N"), (k, (1, 0), A, lds[0], B, lds[1], (0, 0), C, lds[2], 7)
    [found] = exported.call("batch", *head, m, n, *tail, *steps, many)["launches"]
    whole = (m, many * n) if order == COLUMNS else (many * m, n)
    assert found == exported.call("gemm", *head, *whole, *tail)["launch"]


def test_a_batch_of_more_products_than_a_plan_has_goes_on(shipped):
    exported, _ = shipped
    call = ("s", COLUMNS, "N", "N", 8, 8, 8, (1, 0), A, 8, B, 8, (0, 0), C, 8, 7)
    many = 64 * 65535 + 5
    said = exported.call("batch", *call, 64, 128, 192, many)
    assert said["status"] == 0
    assert sum(one["grid"][2] for one in said["launches"]) == many
    last = said["launches"][-1]["arguments"]
    beyond = 64 * 4 * (many - 5)
    assert (last[5], last[8], last[13]) == (A + beyond, B + 2 * beyond, C + 3 * beyond)


def test_batches_that_are_wrong_are_refused(shipped):
    exported, _ = shipped
    call = ("s", COLUMNS, "N", "N", 8, 8, 8, (1, 0), A, 8, B, 8, (0, 0), C, 8, 7)
    for steps, status in (
        ((-1, 64, 64, 2), -16), ((64, -1, 64, 2), -17), ((64, 64, -1, 2), -18),
        ((64, 64, 63, 2), -18), ((64, 64, 64, -1), -19),
        ((64, 64, 64, 0), 0), ((1 << 61, 64, 64, 9), 5),
    ):  # fmt: skip
        assert exported.call("batch", *call, *steps)["status"] == status, steps
    near = ("s", COLUMNS, "N", "N", 8, 8, 8, (1, 0), A, 8, B, 8, (0, 0), A + 512, 8, 7)
    assert exported.call("batch", *near, 64, 64, 64, 2)["status"] == 0
    assert exported.call("batch", *near, 64, 64, 64, 3)["status"] == -13
    assert "argument 18" in exported.call("strerror", -18)


def test_what_copies_operands_is_machine_code_of_the_package(shipped):
    exported, _ = shipped
    passes = shipped_for(90, "passes")
    assert sorted(exported.kernels.copies) == ["c", "s"]
    for one in exported.kernels.copies.values():
        for name in one.codes:
            assert exported.kernels.codes[name].code.digest in passes.codes
