"""Sums stored modulo a number, each matrix of a batch its own, on the emulated tensor cores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.stencil.wgmma.harness import FAMILY, small, variant
from tilewright.backend import Operand
from tilewright.stencil.asynchronous.folded import folded
from tilewright.stencil.wgmma import Arithmetic, Parts, TensorCall

MODULI = (256, 255, 97)
SIZES = 100, 140, 200


def padded(x, side, k):
    """Return matrices in memory with what is behind their rows and columns filled with 99."""
    made = np.full((len(x), side, k), 99, np.int8)
    made[:, : x.shape[1], : x.shape[2]] = x
    return made


@pytest.mark.parametrize(
    "changes", [{}, {"block_m": 128, "instruction_m": 128, "pingpong": 1, "multiprocessors": 132}]
)
def test_residues_of_a_batch_are_nearest_to_zero(emulated, changes):
    of = variant("TN", Arithmetic("int8", "residues", routed=True))
    config = small(of, emulated, **changes)
    kernel = emulated.compile(FAMILY.source(config, of, "cuda"))
    m, n, k = SIZES
    whole_m, whole_n, ld = 128, 256, 208
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (len(MODULI), side, k)).astype(np.int8) for side in (m, n))
    left, right = (emulated.upload(padded(x, x.shape[1], ld)) for x in (a, b))
    table = np.array([x for p in MODULI for x in (p, (2**37 + p // 2) // p)], np.int32)
    for wanted in (3, 2, 0):
        out = np.full((len(MODULI), whole_n, whole_m), 77, np.int8)
        memory = emulated.upload(out)
        call = TensorCall(
            m, n, k, 1, Parts(left, 0, ld), Parts(right, 0, ld), 0, Operand(memory, 0, whole_m),
            run_if=emulated.upload(np.array([wanted], np.int32)), moduli=emulated.upload(table),
        )  # fmt: skip
        steps = m * ld, n * ld, whole_n * whole_m
        arguments = FAMILY.batched_arguments(config, of, call, len(MODULI), steps)
        launch = replace(FAMILY.launch(config, m, n, k), batch=len(MODULI))
        emulated.launch(kernel, launch, arguments).wait()
        emulated.download(memory, out)
        for z, p in enumerate(MODULI):
            got = out[z].T[:m, :n].astype(np.int64)
            if z < wanted:
                assert np.all((got - a[z].astype(np.int64) @ b[z].astype(np.int64).T) % p == 0)
                assert np.all(abs(2 * got) <= p)
            else:
                assert np.all(out[z] == 77)


@pytest.mark.parametrize(("lower", "exchanged"), [(False, False), (True, True)])
def test_residues_of_a_triangle(emulated, lower, exchanged):
    """Tiles of the other triangle that no square on the diagonal has are left alone."""
    moduli = (256, 256, 97, 97)
    of = variant("TN", Arithmetic("int8", "residues", routed=True, triangle=True))
    config = small(of, emulated, block_n=64, consumers=1, multiprocessors=132)
    kernel = emulated.compile(FAMILY.source(config, of, "cuda"))
    n, k, whole = 150, 200, 192
    x = np.random.default_rng(1).integers(-128, 128, (len(moduli), n, k)).astype(np.int8)
    memory = emulated.upload(padded(x, n, 208))
    table = np.array([x for p in moduli for x in (p, (2**37 + p // 2) // p)], np.int32)
    out = np.full((len(moduli), whole, whole), 77, np.int8)
    made = emulated.upload(out)
    call = TensorCall(
        n, n, k, 1, Parts(memory, 0, 208), Parts(memory, 0, 208), 0, Operand(made, 0, whole),
        run_if=emulated.upload(np.array([len(moduli)], np.int32)), moduli=emulated.upload(table),
        lower=lower, exchanged=exchanged,
    )  # fmt: skip
    steps = n * 208, n * 208, whole**2
    arguments = FAMILY.batched_arguments(config, of, call, len(moduli), steps)
    sides = folded(FAMILY.geometry(config), n)
    launch = replace(FAMILY.launch(config, *sides, k), batch=len(moduli))
    emulated.launch(kernel, launch, arguments).wait()
    emulated.download(made, out)
    inside = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
    outside = np.kron(np.tri(3, k=-1, dtype=bool), np.ones((64, 64), bool))
    outside = outside.T if lower else outside
    for z, p in enumerate(moduli):
        of_a, of_b = x[z].astype(np.int64), x[z ^ exchanged].astype(np.int64)
        assert np.all((out[z].T[:n, :n].astype(np.int64) - of_a @ of_b.T)[inside] % p == 0)
        assert np.all(out[z].T[outside] == 77)
