"""Which config of the tensor-core stencil serves a size, and what is proved of it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.core import library
from tilewright.portfolio import native_choice
from tilewright.portfolio.find import shipped_for
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.serve import tensor_cores
from tilewright.serve.routes.split.product import HopperProduct, ModelProduct
from tilewright.serve.tensor_cores import config_for, expected_ns, wgmma
from tilewright.stencil.split import SCHEMES
from tilewright.stencil.wgmma import ARITHMETICS, NAMED, TensorVariant, variant_named

needs_core = pytest.mark.skipif(library() is None, reason="the core is not here")

H100 = replace(architecture_spec("sm_90a"), multiprocessors=132, name="H100")


def variant(arithmetic, trans="TN"):
    return TensorVariant(precision("s"), Trans(trans[0]), Trans(trans[1]), arithmetic=arithmetic)


def block(of, size, device=H100, promote_k=0):
    found = config_for(of, device, size, size, size, promote_k)
    return found.integer("block_m"), found.integer("block_n")


@pytest.mark.parametrize("scheme", ["fp16x3", "bf16x6"])
def test_products_of_parts_take_the_same_blocks_in_every_order(scheme):
    found = []
    for trans in ("NN", "NT", "TN", "TT"):
        parts = variant(ARITHMETICS[scheme], trans)
        found.append([block(parts, size, promote_k=32) for size in (512, 2048, 8192)])
    assert all(one == found[0] for one in found)
    few, _, many = (m * n for m, n in found[0])
    assert few < many


@pytest.mark.parametrize("scheme", ["fp16x3", "bf16x6", "tf32x3", "bf16x9"])
def test_every_scheme_has_configs_that_compensate(scheme):
    """For all of few tiles; large results are others'."""
    of = variant(ARITHMETICS[scheme])
    for m, n, k in itertools.product((256, 1024, 1408), (512, 1408, 1536), (512, 4096)):
        assert wgmma().compensates(config_for(of, H100, m, n, k, 32, compensated=True), of)
    assert not wgmma().compensates(config_for(of, H100, 4096, 4096, 4096, 32), of)


def test_sums_leave_the_unit_as_often_as_a_scheme_wants():
    of = variant(ARITHMETICS["fp16x3"])
    for size in (64, 500, 1024, 2048, 8192):
        assert 0 < config_for(of, H100, size, size, size, 32).integer("promote_k") <= 32


@pytest.mark.parametrize("many", [16, 60, 78, 114, 132])
def test_blocks_that_stay_fill_the_device(many):
    part = replace(H100, multiprocessors=many)
    of = variant(ARITHMETICS["fp16x3"])
    found = config_for(of, part, 8192, 8192, 8192, 32)
    assert found["multiprocessors"] == many
    assert found in wgmma().space(of, part)
    assert wgmma().launch(found, 8192, 8192).on(many).grid == (many, 1)


@needs_core
def test_configs_and_times_are_the_same_without_the_core(monkeypatch):
    """Bit for bit: of any sizes, of one product and of several."""
    rng, asked = np.random.default_rng(0), []
    for name in ("fp16x3", "bf16x6"):
        of = variant(ARITHMETICS[name])
        for m, n, k in np.exp(rng.uniform(0, np.log(60000), (100, 3))).astype(int).tolist():
            several = int(rng.integers(2, 50))
            asked += [(of, H100, m, n, k, 32, *rest) for rest in ((), (True,), (False, several))]
    found = []
    for core in (library, lambda: None):
        monkeypatch.setattr(native_choice, "library", core)
        tensor_cores._able.cache_clear()
        found.append([(config_for(*one), expected_ns(*one)) for one in asked])
    tensor_cores._able.cache_clear()
    assert found[0] == found[1]
    assert len({config for config, _ in found[0]}) > 5


def test_what_is_beyond_the_copy_engine_is_expected_to_take_for_ever():
    of = variant(ARITHMETICS["fp16x3"])
    assert expected_ns(of, H100, 2**31 - 1, 8, 8) < expected_ns(of, H100, 2**31, 8, 8) == np.inf


@pytest.mark.parametrize("name", NAMED)
def test_every_start_was_timed(name):
    of = variant_named(name)
    starts = {one for one in wgmma().starts(of, H100) if one in wgmma().space(of, H100)}
    timed = [one for one in shipped_for(90, "passes").kernels if one.variant == of]
    assert {one.config for one in timed} == starts
    assert all(one.costs for one in timed)


def test_a_device_that_runs_none_is_named():
    tiny = replace(H100, name="tiny", shared_bytes_per_block=1024)
    with pytest.raises(ValueError, match="device='tiny' runs no config of wgmma"):
        config_for(variant(ARITHMETICS["fp16x3"]), tiny, 64, 64, 64)


def test_what_ran_on_hopper_is_proved_there_and_nowhere_else():
    proved = {"fp16x3", "bf16x6"}
    hopper = SimpleNamespace(dialect="cuda", spec=H100)
    for name, scheme in SCHEMES.items():
        assert HopperProduct().is_proved(hopper, scheme) == (name in proved)
        assert not ModelProduct().is_proved(hopper, scheme)
        for other in (
            SimpleNamespace(dialect="cuda", spec=architecture_spec("sm_80")),
            SimpleNamespace(dialect="opencl", spec=H100),
        ):
            assert not HopperProduct().is_proved(other, scheme)
