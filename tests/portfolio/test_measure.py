"""The shapes that a portfolio's kernels are timed on."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from itertools import islice
from types import SimpleNamespace

import pytest

from tests.portfolio.examples import EVERY_MODE, kernel, write
from tilewright.backend import BackendError
from tilewright.hardware.catalogue import catalogue_device
from tilewright.portfolio import measure
from tilewright.portfolio.drawn import KINDS, MOST_BYTES
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import PLAIN, with_aligned_operands

SIDES = {
    "any": (1, 2**14), "short": (1, 500_000), "large": (2048, 8192), "layers": (1, 2**15),
    "thin": (1, 2**14), "long": (8, 2**18 + 1),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_are_of_their_kind_and_the_same_for_a_seed(kind):
    first, again, other = (
        list(islice(KINDS[kind](seed, PRECISIONS["z"]), 200)) for seed in (3, 3, 4)
    )
    assert first == again != other
    least, most = SIDES[kind]
    assert all(least <= side <= most for shape in first for side in shape)
    if kind == "short":
        assert all(min(m, n) <= 128 for m, n, _ in first)
    if kind == "layers":  # a side is tokens, most of them few
        assert 160 < sum(min(m, n) <= 256 for m, n, _ in first) < 200
    if kind == "long":
        assert all(max(m, n) <= 2049 and k >= 1024 for m, n, k in first)
    assert any(side % 2 for shape in first for side in shape)
    assert any(all(side % 8 == 0 for side in shape) for shape in first)


@pytest.mark.parametrize("letter", PRECISIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_matrices_are_no_larger_than_their_memory_also_where_columns_are_aligned(kind, letter):
    of = PRECISIONS[letter]
    for sides in islice(KINDS[kind](0, of), 150):
        for a, b in ((Trans.N, Trans.N), (Trans.T, Trans.T)):
            problem = Problem(*sides, of, a, b)
            for one in (problem, with_aligned_operands(problem)):
                of_a, of_b, of_c = one.stored
                stored = of.element_bytes * max(of_a, of_b), of.result_bytes * of_c
                assert max(stored) <= MOST_BYTES


@pytest.fixture
def live(monkeypatch) -> SimpleNamespace:
    """A device whose kernels are their sources, and take as long as tiles are far from 64 x 64."""

    class Burst:
        def __init__(self, live, workload, config, kernel, family, geometry):
            self.tile = geometry
            mode = bool(kernel.defines["SCALAR"]), bool(kernel.defines["CLAMPED"])
            live.timed.append((workload.problem, config, mode))

        def __call__(self) -> int:
            return 1000 + abs(self.tile.tile_m - 64) + 2 * abs(self.tile.tile_n - 64)

    @contextmanager
    def ahead(arch):
        yield lambda source: lambda: True

    for name, fake in (("compiling_ahead", ahead), ("matrices", lambda *_: {}), ("Burst", Burst)):
        monkeypatch.setattr(measure, name, fake)
    monkeypatch.setattr(
        measure, "Workload", lambda _, problem, __: SimpleNamespace(problem=problem)
    )
    return SimpleNamespace(
        spec=catalogue_device("h100").spec, arch="sm_90a", driver="", timed=[],
        compile=lambda source: source,
    )  # fmt: skip


def test_a_stencil_for_some_problems_is_timed_on_each_of_their_kinds(live, monkeypatch):
    drawn = []
    for name, kind in list(measure.KINDS.items()):

        def noted(seed, of, name=name, kind=kind):
            drawn.append(name)
            return kind(seed, of)

        monkeypatch.setitem(measure.KINDS, name, noted)
    measure.measure_family(live, "bf16", "skinny", 1, 0, 0.0)
    assert set(drawn) == {"short", "layers", "any", "thin"}


@pytest.mark.parametrize("copied", [False, True])
def test_a_portfolios_kernels_are_timed_on_shapes_in_the_modes_that_serve(
    live, monkeypatch, tmp_path, copied
):
    """Of copies on those shapes alone whose columns are not aligned as copies' are."""
    ran = []

    def burst(live, workload, config, code, family, geometry):
        ran.append((workload.problem, config, code))
        return lambda: 1000

    monkeypatch.setattr(measure, "Burst", burst)
    live.load = lambda code, cubin: code.symbol
    square = Problem(4096, 4096, 4096, "s")
    turned = Problem(4096, 4096, 4096, "s", Trans.T, Trans.N)
    short = kernel(square, name="skinny")
    everywhere = [kernel(one, modes=EVERY_MODE) for one in (square, turned)]
    portfolio = write(tmp_path, [*everywhere, short, kernel(square, modes=())])
    told = []
    found = measure.measure(
        live, portfolio, "s", 9, 0, 60.0, lambda *of: told.append(of), copied=copied
    )
    assert found.get("copied", False) == copied
    drawn = [Problem(*sides, "s") for sides in islice(KINDS["any"](0, PRECISIONS["s"]), 9)]
    timed = [x for x in drawn if not copied or with_aligned_operands(x) != x]
    assert 0 < len(timed) <= len(drawn)
    assert list(found["cases"]) == ["NN", "TN"]
    case = found["cases"]["NN"]
    assert case["shapes"] == [[x.m, x.n, x.k] for x in timed]
    assert [one.get("stencil") for one in case["configs"]] == [None, "skinny"]
    for x, (ns, of_short) in zip(timed, case["ns"], strict=True):
        assert ns == 1000
        assert of_short == (1000 if short.geometry.takes(x) else None)
    seen = {with_aligned_operands(x) if copied else x for x in timed}
    assert {x for x, *_ in ran if x.trans_a == Trans.N} == seen
    for x, config, code in ran:
        if config == everywhere[0].config:
            assert code == f"gemm_{everywhere[0].geometry.mode(x)}"
    assert told[-1][1] == 18
    assert len(told) == sum(len(one["shapes"]) for one in found["cases"].values())


def test_few_configs_go_on_after_a_part_of_the_time_in_the_modes_that_serve(live, monkeypatch):
    monkeypatch.setattr(measure, "_KEPT", 3)
    found = measure.measure_family(live, "s", "simt_async", 9, 0, 60.0, sifted=True)["cases"]
    assert list(found) == ["NN", "NT", "TN", "TT"]
    for case in found.values():
        assert len(case["configs"]) == 3
        assert {len(row) for row in case["ns"]} == {3}
        assert len(case["ns"]) == len(case["shapes"])
    assert len({config for _, config, _ in live.timed}) > 3
    wanted = set()
    for problem, config, mode in live.timed:
        serves = stencil("simt_async").geometry(config).mode(problem)
        aligned = problem.lda % 4 == problem.ldb % 4 == 0
        assert mode == (serves.scalar, serves.clamped) or (aligned and not any(mode))
        wanted.add(mode)
    assert (True, True) in wanted
    assert any(problem.lda % 4 for problem, *_ in live.timed)


def test_columns_of_copies_alone_are_aligned(live, monkeypatch):
    timed = []

    def timer(live, kernel, workload, loaded):
        timed.append(workload.problem)
        return lambda: 5

    variant = Variant.of(Problem(1, 1, 1, "s", "N", "T"))
    config = stencil("simt_async").default(variant, live.spec)
    kernel = SimpleNamespace(variant=variant, config=config, modes={PLAIN: "a"})
    portfolio = SimpleNamespace(
        kernels=[kernel],
        codes={"a": None},
        machine_code=lambda _: b"",
        of_variant=lambda _: [kernel],
    )
    live.load, live.free = (lambda *_: None), (lambda _: None)
    monkeypatch.setattr(measure, "_timer", timer)
    made = measure.measure(live, portfolio, "s", 12, 0, 60.0, kind="thin", copied=True)
    assert made["copied"] is True
    shapes = made["cases"]["NT"]["shapes"]
    assert 0 < len(shapes) == len(timed) < 12  # some are aligned as they are
    for (m, n, _), problem in zip(shapes, timed, strict=True):
        assert (problem.m, problem.n, problem.ldc) == (m, n, m)
        assert problem.lda % 4 == problem.ldb % 4 == 0
        assert (problem.lda, problem.ldb) != (m, n)


def test_what_is_left_out_is_not_timed(live):
    times = partial(measure.measure_family, live, "s", "simt_async", 1, 0, 60.0)
    every = [Config("simt_async", one) for one in times()["cases"]["NN"]["configs"]]
    found = times(without=every[::2])["cases"]["NN"]
    assert [Config("simt_async", one) for one in found["configs"]] == every[1::2]


def test_what_the_device_refuses_does_not_go_on(live, monkeypatch):
    class Refused(measure.Burst):
        def __call__(self) -> int:
            if (self.tile.tile_m, self.tile.tile_n) != (64, 64):
                raise BackendError("no such launch")
            return super().__call__()

    monkeypatch.setattr(measure, "Burst", Refused)
    monkeypatch.setattr(measure, "_KEPT", 8)
    found = measure.measure_family(live, "s", "simt_async", 2, 0, 60.0, sifted=True)["cases"]
    for case in found.values():
        configs = [tuple(config.items()) for config in case["configs"]]
        assert 0 < len(set(configs)) == len(configs)
        assert all(row and None not in row for row in case["ns"])


def test_pairs_of_transposes_share_all_of_the_time(live, monkeypatch):
    told = []
    monkeypatch.setattr(
        measure._Timed, "time", lambda _, until, __: told.append(until - time.monotonic())
    )
    for letter, name, pairs in (("s", "simt_async", 4), ("e4m3", "wgmma", 1)):
        measure.measure_family(live, letter, name, 1, 0, 400.0)
        assert told[-1] == pytest.approx(400, abs=40)
        assert len(told) == pairs
        told.clear()


def test_a_variant_whose_configs_are_all_refused_is_named_and_left_out(monkeypatch):
    @contextmanager
    def ahead(arch):
        refused = {"TRANS_A": 0, "TRANS_B": 0}.items()
        yield lambda source: lambda: not refused <= source.defines.items()

    monkeypatch.setattr(measure, "compiling_ahead", ahead)
    monkeypatch.setattr(measure, "matrices", lambda *_: {})
    live = SimpleNamespace(
        spec=catalogue_device("h100").spec, arch="sm_90a", driver="", compile=lambda source: source
    )
    with pytest.warns(RuntimeWarning, match=r"skinny s NN: .* refused all of \d+ configs") as said:
        found = measure.measure_family(live, "s", "skinny", 0, 0, 1.0)
    assert len(said) == 1
    assert list(found["cases"]) == ["NT", "TN", "TT"]
