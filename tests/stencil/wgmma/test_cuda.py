"""What the compiler makes of the tensor-core stencil, where no GPU is."""

from __future__ import annotations

import pytest

from tests.stencil.contract import with_fault
from tests.stencil.wgmma.harness import EVERY, FAMILY, variant
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.precision import PRECISIONS
from tilewright.problem import Trans
from tilewright.sass import decode, read_cubin
from tilewright.sass.resources import resources
from tilewright.sass.warpgroups import MULTIPLIES, multiply_runs
from tilewright.space import Config
from tilewright.stencil import Source, Variant, stencils_for
from tilewright.stencil.wgmma import Arithmetic, TensorVariant

HOPPER = architecture_spec("sm_90a")

needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")


def runs_of(config: Config, of: TensorVariant) -> int:
    """Return how many multiplies a config starts between two waits, or readings of rows."""
    arithmetic = of.arithmetic
    take = config.integer
    pieces = take("block_m") * take("block_n")
    pieces //= 64 * take("instruction_m") * (1 if take("pingpong") else take("consumers"))
    within = 0 < take("promote_k") <= take("block_k")
    depth = (take("promote_k") if within else take("block_k")) * arithmetic.element_bytes // 32
    apart = within or arithmetic.rows_in_registers(of.k_fast)
    return len(arithmetic.products) * depth * (1 if apart else pieces)


def check(config: Config, of: TensorVariant, source: Source | None = None) -> int:
    """Nothing spills among multiplies, and they run one after the other without a wait.

    Returns the instructions from the first multiply to the last one.

    What stores a tile may keep some numbers in memory, once a tile: large blocks have 192
    accumulators a thread.  So may the producer, of its 24 registers.
    """
    source = source or FAMILY.source(config, of, "cuda")
    cubin = compile_cubin(source, "sm_90a")
    kernel = read_cubin(cubin.code).kernel(cubin.lowered[source.entry])
    taken = resources(kernel)
    threads = FAMILY.resources(config, of).threads
    assert taken.registers * threads * config.integer("min_blocks") <= 65536, config
    code = decode(kernel.code, kernel.arch)
    names = [instruction.mnemonic for instruction in code]
    multiplies = [i for i, name in enumerate(names) if name in MULTIPLIES]
    loop = names[multiplies[0] : multiplies[-1]]
    assert not {"LDL", "STL"} & set(loop), config
    runs = multiply_runs(code)
    assert set(runs) == {runs_of(config, of)}, (config, runs)
    return len(loop)


STARTS = [
    (name, trans)
    for name, made in EVERY.items()
    for trans in (("TN", "NT") if made.either_order else ("TN", "NN", "TT"))
    if made.reads((trans[0] == "T", trans[1] == "N"))
]


@needs_nvrtc
@pytest.mark.thorough
@pytest.mark.parametrize(("name", "trans"), STARTS)
def test_no_start_spills_or_waits_for_each_multiply(name: str, trans: str) -> None:
    of = variant(trans, EVERY[name])
    space = FAMILY.space(of, HOPPER)
    starts = [config for config in FAMILY.starts(of, HOPPER) if config in space]
    assert len(starts) >= 3
    for config in starts:
        check(config, of)


@pytest.mark.every(2)
@needs_nvrtc
@pytest.mark.parametrize("name", ["f16", "fp16x3"])
def test_the_default_does_neither(name: str) -> None:
    of = variant("TN", EVERY[name])
    check(FAMILY.default(of, HOPPER), of)


@needs_nvrtc
@pytest.mark.parametrize("width", [176, 208])
def test_tiles_between_powers_of_two_do_neither(width: int) -> None:
    of = variant("TN", EVERY["bf16"])
    [config] = [x for x in FAMILY.starts(of, HOPPER) if x.integer("instruction_m") == width]
    assert config in FAMILY.space(of, HOPPER)
    check(config, of)


@needs_nvrtc
def test_a_wait_for_each_multiply_is_noticed() -> None:
    """Where sums are touched while multiplies are under way, the compiler waits everywhere."""
    of = variant("TN", EVERY["f16"])
    config = FAMILY.default(of, HOPPER)
    made = FAMILY.source(config, of, "cuda")
    wait = "            wait_for_multiplies<1>();\n"
    faulty = with_fault(made, wait, f"{wait}            sum[0] *= 2;\n")
    with pytest.raises(AssertionError, match=r"\(1, 1, 1, 1\)"):
        check(config, of, faulty)


@needs_nvrtc
@pytest.mark.thorough
@pytest.mark.parametrize(("name", "trans"), STARTS)
def test_nothing_that_may_be_tuned_waits_for_each_multiply(name: str, trans: str) -> None:
    """Of a few points drawn; what lies near the limit of registers may spill a little."""
    of = variant(trans, EVERY[name])
    for config in FAMILY.space(of, HOPPER).sample(3, seed=7):
        source = FAMILY.source(config, of, "cuda")
        cubin = compile_cubin(source, "sm_90a")
        kernel = read_cubin(cubin.code).kernel(cubin.lowered[source.entry])
        runs = multiply_runs(decode(kernel.code, kernel.arch))
        assert set(runs) == {runs_of(config, of)}, (config, runs)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_a_default_is_in_the_space(name: str, trans: str) -> None:
    of = variant(trans, EVERY[name])
    if not of.arithmetic.reads(of.k_fast):
        with pytest.raises(ValueError, match="transpose first"):
            FAMILY.space(of, HOPPER)
        return
    assert FAMILY.default(of, HOPPER) in FAMILY.space(of, HOPPER)


def test_it_serves_nobody_who_did_not_ask_for_it() -> None:
    """Tensor cores do not compute IEEE single or double precision."""
    assert FAMILY.suits(HOPPER)
    assert not FAMILY.suits(architecture_spec("sm_80"))
    assert not FAMILY.suits(architecture_spec("sm_100"))
    for made in PRECISIONS.values():
        assert FAMILY.name not in [
            one.name for one in stencils_for(HOPPER, Variant(made, Trans.T, Trans.N))
        ]
    plain = Variant(PRECISIONS["s"], Trans.T, Trans.N)
    with pytest.raises(ValueError, match="none of tensor cores"):
        FAMILY.space(plain, HOPPER)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"element": "float8"}, "element='float8'"),
        ({"element": "int8"}, "result='float32'"),
        ({"products": ((0, 4),)}, "parts"),
        ({"products": ()}, "products"),
        ({"element": "int8", "result": "int32", "scaled": True}, "scaled"),
    ],
)
def test_an_arithmetic_that_cannot_be_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Arithmetic(**{"element": "float16", **changes})  # type: ignore[arg-type]


def test_persistent_blocks_fill_the_device_in_whole_clusters() -> None:
    of = variant("TN", EVERY["f16"])
    config = FAMILY.default(of, HOPPER).replace(cluster_n=2)
    side = 100 * config.integer("block_m")
    assert FAMILY.launch(config, side, side).on(132).grid == (132, 1)
    once = config.replace(multiprocessors=0)
    assert FAMILY.launch(once, 1, 1).grid == (2, 1)
    assert FAMILY.launch(once, 1, 1).block == (384, 1)
