"""What every stencil in CUDA C++ is asked, with a GPU and without: one question a function."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tilewright.backend import GemmCall, Kernel, LaunchError, LiveDevice, Operand
from tilewright.hardware import DeviceSpec
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.space import Config, Space
from tilewright.stencil import Mode, Source, Stencil, Variant
from tilewright.tuning.measure import Workload
from tilewright.tuning.verify import Bench, Check, WrongResultError, screen

# Any problem: ragged sizes, all kinds of scalars, columns aligned and not; C holds anything where
# beta is 0.
CHECKS = st.builds(
    lambda sizes, scalars, padding, offset: Check(
        *sizes, *scalars, padding, offset, nan_in_c=scalars[1] == 0
    ),
    st.tuples(st.integers(1, 150), st.integers(1, 90), st.integers(0, 130)),
    st.tuples(st.sampled_from([0, 1, -2]), st.sampled_from([0, 3])),
    st.integers(0, 4),
    st.integers(0, 3),
)


def compiled(
    live: LiveDevice, family: Stencil, config: Config, of: Variant, mode: str = "plain"
) -> Kernel:
    """Return a config's kernel on a device, compiled in a launch mode."""
    return live.compile(family.source(config, of, live.dialect, Mode.parse(mode)))


def bench(
    live: LiveDevice,
    family: Stencil,
    config: Config,
    of: Variant,
    mode: str = "plain",
    blocks: int | None = None,
) -> Bench:
    """Return a config, compiled in a launch mode, to run any number of checks on so many blocks."""
    return Bench(live, compiled(live, family, config, of, mode), family, config, of, blocks)


def computes_the_product(
    live: LiveDevice, family: Stencil, config: Config, of: Variant, mode: str = "plain"
) -> None:
    """What a tuner checks of every candidate."""
    kernel = compiled(live, family, config, of, mode)
    screen(live, kernel, family, config, of, Mode.parse(mode))


def has_mode(family: Stencil, config: Config, of: Variant, device: DeviceSpec, mode: str) -> bool:
    """Whether a config's kernel can be compiled in a launch mode."""
    return Mode.parse(mode) in family.modes(config, of, device)


def every_start_computes_the_product(live: LiveDevice, family: Stencil, of: Variant) -> None:
    """Those that the device runs not, too: an emulated one does."""
    for config in family.starts(of, live.spec):
        computes_the_product(live, family, config, of)


def thorough_but(quick: Collection[Any], of: Iterable[Any]) -> list[Any]:
    """Return values to test; all but some only in a thorough run."""
    return [x if x in quick else pytest.param(x, marks=pytest.mark.thorough) for x in of]


@st.composite
def checks(draw: st.DrawFn, chunk: int, most_k: int) -> Check:
    """Draw a problem, with every size and distance a multiple of `chunk` or none of them.

    Aligned ones take the way without checks for inner blocks, others do not.
    """
    sizes = [draw(st.integers(*ends)) for ends in ((1, 150), (1, 90), (0, most_k))]
    padding, offset = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    if draw(st.booleans()):
        sizes = [-(-size // chunk) * chunk for size in sizes]
        padding, offset = padding // chunk * chunk, offset // chunk * chunk
    alpha, beta = draw(st.sampled_from([0, 1, -2])), draw(st.sampled_from([0, 1, 3]))
    return Check(*sizes, alpha, beta, padding, offset, nan_in_c=beta == 0)


def bits_on_two_streams(
    live: Any, kernel: Kernel, config: Config, family: Stencil, sizes: tuple[int, int]
) -> set[bytes]:
    """Return all results of one launch alone and of forty that two streams run at once.

    Of the product of an m x k and a k x m matrix of floats; `sizes` are m and k.
    """
    m, k = sizes
    drawn = np.random.default_rng(8)
    a, b = (live.upload(drawn.standard_normal(m * k, np.float32)) for _ in "ab")
    results = [live.allocate(4 * m * m) for _ in range(5)]
    launch = family.launch(config, m, m, k)
    with live.current():
        streams = [int(live.check(live.api.cuStreamCreate(1), "stream")) for _ in range(2)]

    def start(c: Any, stream: int | None = None) -> Any:
        x, y, z = Operand(a, 0, m), Operand(b, 0, k), Operand(c, 0, m)
        call = GemmCall(precision("s"), m, m, k, 1, x, y, 0, z)
        return live.launch(kernel, launch, call.arguments(), stream)

    start(results[0]).wait()
    for event in [start(results[1 + turn % 4], streams[turn % 2]) for turn in range(40)]:
        event.wait()
    found = np.empty(m * m, np.float32)
    bits = set()
    for c in results:
        live.download(c, found)
        bits.add(found.tobytes())
        live.free(c)
    return bits


def with_fault(made: Source, old: str, new: str) -> Source:
    """Return a text with a fault put into it, which has to fit."""
    assert old in made.text
    return replace(made, text=made.text.replace(old, new))


def faulty(family: type[Stencil], old: str, new: str) -> Any:
    """Return a stencil whose sources have a fault."""

    class Faulty(family):  # type: ignore[misc, valid-type]
        def source(self, *arguments: Any) -> Source:
            return with_fault(super().source(*arguments), old, new)

    return Faulty()


def cut(family: type[Stencil], slices: int) -> Stencil:
    """Return a stencil whose launches have so many slices of k, however many steps there are."""

    class Cut(family):  # type: ignore[misc, valid-type]
        def launch(self, config: Config, m: int, n: int, k: int = 0) -> Any:
            launch = super().launch(config, m, n, k)
            behind = launch.second_blocks if slices > 1 else 0
            grid = (launch.grid[0] * slices, 1)
            return replace(launch, grid=grid, split_k=None, second_blocks=behind)

    return Cut()


def mode_rules(family: Any, of: Variant, device: DeviceSpec, mode: str) -> Space:
    """Return all points that have what one launch mode needs, likely ones or not."""
    return Space(
        family.name, family.space(of, device).parameters, family.mode_constraints(of)[mode]
    )


def fault_is_found(
    live: LiveDevice,
    wrong: Stencil,
    config: Config,
    of: Variant,
    by: tuple[type[Exception], ...] = (WrongResultError, LaunchError),
    mode: str = "plain",
) -> None:
    """What a tuner checks of every candidate fails."""
    kernel = compiled(live, wrong, config, of, mode)
    with pytest.raises(by):
        screen(live, kernel, wrong, config, of, Mode.parse(mode))


def same_bits_every_time(
    live: LiveDevice, family: Stencil, config: Config, problem: Problem, mode: str = "plain"
) -> None:
    """Of random data, whichever block comes first; skips what the device does not run."""
    of = Variant.of(problem)
    if config not in family.space(of, live.spec):
        pytest.skip("this device has no clusters")
    kernel = compiled(live, family, config, of, mode)
    load = Workload(live, problem)
    results = []
    for _ in range(5):
        load.run(kernel, family, config)
        c = np.empty(problem.m * problem.n, of.precision.dtype)
        live.download(load.memory["c"], c)
        results.append(c.tobytes())
    load.close()
    assert len(set(results)) == 1
