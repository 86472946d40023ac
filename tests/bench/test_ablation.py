"""Kernels with instructions taken out of their loop: what is patched, and what is made of times."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sass import nvdisasm
from tests.sass.words import BRA, word
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.sass import decode, edit, hazards, patch, read_cubin
from tilewright.sass.access import access
from tilewright.sass.decode import decode_one
from tilewright.sass.loops import is_useful
from tilewright.space import Config
from tilewright.stencil import stencil

ROOT = Path(__file__).parents[2]
OURS = ("ablation", "ablation_loop", "ablation_measure", "ablation_patches")
# A short loop with everything in it: copies that transpose, branches around them where nothing is
# left to copy, three stages, blocks that stay.
CASE = {
    "precision": "s", "trans": "TN", "stencil": "simt_async",
    "config": {
        "block_m": 64, "block_n": 32, "tile_m": 4, "tile_n": 8, "lanes_m": 8, "block_k": 8,
        "unroll_k": 8, "stages": 3, "split_k": 1, "resident": 4, "copy_groups": 2, "walk": 0,
        "b_first": 0, "k_vectors": 0, "raster_rows": 8, "persistent": 1,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def script():
    """The benchmark's modules, imported as they are when it is run."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import ablation
        import ablation_loop
        import ablation_measure
        import ablation_patches

        yield SimpleNamespace(
            main=ablation, loop=ablation_loop, measure=ablation_measure, patches=ablation_patches
        )
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
        for name in [name for name in sys.modules if name.split(".")[0] in (*OURS, "hopper")]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def body(script):
    if nvrtc() is None:
        pytest.skip("NVRTC is not here: pip install 'tilewright[cuda]'")
    source = script.measure.source_of(CASE)
    return script.patches.Body.of(compile_cubin(source, "sm_90a").code)


@pytest.fixture(scope="module")
def printed(body, tmp_path_factory):
    """NVIDIA's text of the kernel as it was compiled, by address."""
    return nvdisasm.printed(body.cubin, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def patched(script, body):
    """Each variant's loop and cubin."""
    return {
        name: (body.changed(change), body.patched(change))
        for name, change in script.patches.VARIANTS.items()
    }


def names(script, wanted):
    return [name for name, change in script.patches.VARIANTS.items() if wanted(change)]


def test_every_class_of_such_a_loop_is_found(script, body):
    found = {name: [body.loop[at].mnemonic for at in at_] for name, at_ in body.classes.items()}
    assert set(found["copies"]) == {"LDGSTS"}
    assert set(found["reads"]) == set(found["empty reads"]) == {"LDS"}
    assert found["block barrier"] == ["BAR"]
    assert all(access(body.loop[at]).pure for at in body.classes["addresses"])
    left = sorted(set(range(len(body.loop))) - body.classes[script.loop.OTHERS])
    rest = [body.loop[at] for at in left if not is_useful(body.loop[at])]
    # What is left counts trips, compares and branches: nothing else is needed for that.
    assert {"IADD3", "ISETP", "BRA"} & {"VIADD", *(one.mnemonic for one in rest)}
    assert len(rest) < 12
    assert rest[-1].mnemonic == "BRA"


def test_nops_stand_where_a_class_was_and_nothing_else_changes(
    script, body, patched, printed, tmp_path
):
    for name in ("no copies, no addresses", "no empty reads", "no reads", "no barriers",
                 "FFMA only"):  # fmt: skip
        loop, code = patched[name]
        assert len(code) == len(body.cubin)
        text = nvdisasm.printed(code, tmp_path)
        gone = {body.loop[at].address for at in body.gone(script.patches.VARIANTS[name])}
        assert gone
        assert {at for at in printed if text[at] != printed[at]} == gone
        assert {text[at] for at in gone} == {"NOP"}
        for was, one in zip(body.loop, loop, strict=True):
            had, has = was.control, one.control
            assert (has.stall, has.yields, has.wait_mask) == (had.stall, had.yields, had.wait_mask)
            if was.address in gone:
                assert has.write_barrier is has.read_barrier is None


def test_what_is_deleted_leaves_the_rest_in_order(script, body, patched, printed, tmp_path):
    first, last = body.loop[0].address, body.loop[-1].address
    for name in names(script, lambda one: one.deleted and not one.free):
        loop, code = patched[name]
        text = nvdisasm.printed(code, tmp_path)
        assert all(text[at] == printed[at] for at in printed if not first <= at <= last)
        gone = body.gone(script.patches.VARIANTS[name])
        left = [printed[one.address] for at, one in enumerate(body.loop) if at not in gone]
        now = [text[one.address] for one in body.loop]
        # Branches around what is gone lead elsewhere; the last one leads where it led.
        assert [one for one in left if "BRA" not in one] == [
            one for one in now[: len(left)] if "BRA" not in one
        ]
        assert now[len(left) - 1] == left[-1]
        assert now[len(left) :] == ["NOP"] * len(gone)
        # Whatever waited for a barrier, something still does.
        waits = [np.bitwise_or.reduce([one.control.wait_mask for one in x])
                 for x in (body.loop, loop)]  # fmt: skip
        assert waits[0] == waits[1]


def test_branches_around_copies_lead_behind_them_when_they_are_deleted(script, body, patched):
    around = [at for at, one in enumerate(body.loop[:-1]) if one.mnemonic == "BRA"]
    assert around
    gone = body.gone(script.patches.VARIANTS["FFMA only, deleted"])
    loop, _ = patched["FFMA only, deleted"]
    now = [one for one in loop[:-1] if one.mnemonic == "BRA"]
    left = [at for at in range(len(body.loop)) if at not in gone]
    for at, one in zip(around, now, strict=False):
        led_to = (body.loop[at].target - body.loop[0].address) // 16
        behind = next(x for x in left if x >= led_to)
        assert one.target == loop[left.index(behind)].address


def test_only_data_comes_too_late_in_any_patched_kernel(patched):
    """Counters and addresses arrive in time, or a kernel would run on, or read elsewhere."""
    for name in ("no copies, no addresses", "the same, deleted", "no empty reads, deleted",
                 "no barriers", "no reads", "FFMA only, deleted", "no port conflicts"):  # fmt: skip
        kernel = read_cubin(patched[name][1]).kernel()
        code = decode(kernel.code, kernel.arch)
        late = [code[one.address // 16] for one in hazards(code) if not one.copy]
        assert all(map(is_useful, late)), name


def test_flags_and_factors_are_all_that_other_changes_touch(body, patched, printed, tmp_path):
    text = nvdisasm.printed(patched["no reuse flags"][1], tmp_path)
    of_ffma = {one.address for one in body.loop if is_useful(one)}
    assert any(".reuse" in printed[at] for at in of_ffma)
    for at, was in printed.items():
        assert text[at] == (was.replace(".reuse", "") if at in of_ffma else was)
    assert nvdisasm.printed(patched["no advice to yield"][1], tmp_path) == printed
    assert not any(one.control.yields for one in patched["no advice to yield"][0])
    text = nvdisasm.printed(patched["no port conflicts"][1], tmp_path)
    for at, was in printed.items():
        if at not in of_ffma:
            assert text[at] == was
            continue
        d, a, b, c = re.findall(r"R\d+", text[at])
        assert (d, c) == tuple(re.findall(r"R\d+", was)[::3])
        assert a == b
        assert int(a[1:]) % 2 != int(c[1:]) % 2


def test_the_model_sees_no_conflict_where_there_is_none(script, body):
    rows = {row["variant"]: row for row in script.patches.predictions(body, 4, 64)}
    assert list(rows) == list(script.patches.VARIANTS)
    bare = rows["FFMA only, deleted, no conflicts"]
    assert bare["instructions"] == len(body.loop) - bare["gone"]
    assert bare["ports"] == bare["instructions"] < rows[script.patches.PLAIN]["ports"]
    assert bare["predicted"] < rows[script.patches.PLAIN]["predicted"]


def test_a_loop_that_something_leads_into_is_refused(script, body):
    """What a patch assumes of a loop would not hold there."""
    back = decode_one(word(BRA, extra=7 << 87), 0, body.arch)
    inside = edit(back, body.arch, address=0, target=body.loop[3].address)
    with pytest.raises(ValueError, match="its loop has other ways; unroll"):
        script.patches.Body.of(patch(body.cubin, [inside]))


@given(
    st.sampled_from([64, 128, 256]), st.sampled_from([64, 128, 256]), st.integers(1, 200),
    st.integers(1, 4), st.integers(512, 8192), st.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_tiles_fill_whole_waves(script, block_m, block_n, count, blocks, size, split):
    case = {"config": {"block_m": block_m, "block_n": block_n, "split_k": split}}
    m, n = script.measure.whole_waves(case, size, count * blocks)
    assert m % block_m == n % block_n == 0
    assert m // block_m * (n // block_n) * split % (count * blocks) == 0


def test_cycles_come_from_the_difference_of_two_depths(script):
    """A device of 2 multiprocessors at 1 GHz, whose loop reaches 80 % of the peak."""
    case = {"precision": "s", "multiply_adds": 1000}
    steps = 256 * 256 / (32 * 4 * 2)  # multiply-adds of a warp, of a scheduler, for one of k
    ns = {k: [round(5000 + steps * k / 0.8)] * 3 for k in (1024, 512)}
    found = script.measure.figures(case, (256, 256), ns, 1e9, 2)
    assert found["loop_share"] == pytest.approx(0.8)
    assert found["loop_cycles"] == pytest.approx(1250)
    assert found["whole_share"] == pytest.approx(steps * 1024 / (5000 + steps * 1024 / 0.8))


def test_cases_are_a_search_s_winners_or_what_a_file_says(script, tmp_path):
    won = script.main.cases_in(script.main.RESULT, None)
    assert sorted(case["trans"] for case in won) == ["NN", "NT", "TN", "TT"]
    for case in won:
        assert Config(case["stencil"], case["config"]).id == case["case"]
        assert stencil(case["stencil"])
    file = tmp_path / "one.json"
    file.write_text(json.dumps({"config": CASE["config"]}))
    (case,) = script.main.cases_in(file, ["TN"])
    assert {name: case[name] for name in CASE} == CASE
    with pytest.raises(SystemExit, match="has no config"):
        script.main.cases_in(script.main.RESULT, ["CC"])


class Device:
    """Stands for a GPU: patched kernels take 0.9 of the plain one's time."""

    arch, lost = "sm_90a", None

    def __init__(self):
        self.spec = SimpleNamespace(multiprocessors=4, clock_hz=1e9)
        self.written = []

    def allocate(self, size):
        return 1 << 30

    def write(self, memory, array, offset=0):
        assert np.all(np.isfinite(array))
        assert array.any()
        self.written.append((memory + offset, memory + offset + array.nbytes))

    def compile(self, source):
        return "plain"

    def launch_timed(self, kernel, launch, arguments):
        m, n, k = (int(value) for value in arguments[:3])
        assert m * n // (64 * 32) % (4 * 4) == 0
        faster = {"plain": 1.0, "patched": 0.9}[kernel]
        return SimpleNamespace(nanoseconds=lambda: round(m * n * k / 512 / 0.7 * faster) + 9)


def test_a_run_ends_in_a_table(script, monkeypatch, tmp_path):
    """Everything but the device: rows of a log, a failing variant with its reason, the table."""
    if nvrtc() is None:
        pytest.skip("NVRTC is not here: pip install 'tilewright[cuda]'")
    live, measure = Device(), script.measure
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("tilewright.backend.device", lambda name: live)
    monkeypatch.setattr("tilewright.bench.record.device_record", lambda *given: {"name": "it"})
    monkeypatch.setattr("tilewright.microbench.power.sensors", no_sensors)
    monkeypatch.setattr(measure, "in_processes", here)
    monkeypatch.setattr(measure, "SIDE", 256)
    monkeypatch.setattr(measure, "MOST", 0.01)
    plain = live_loads = None

    def loaded(self, cubin, source):
        nonlocal plain, live_loads
        live_loads = (live_loads or 0) + 1
        plain = plain or cubin.code
        if live_loads == 2:
            raise ValueError("it fails")
        assert live_loads == 1 or cubin.code != plain
        return "patched"

    monkeypatch.setattr(measure.Stage, "loaded", loaded)
    case = script.main.case_of(CASE, "TN")
    log = script.main.Log(tmp_path / "a.log")
    measure.measure(log, [case], 256, 128, time.time() + 60, 1)
    tried = {row["variant"]: row for row in log.of("tried")}
    assert list(tried) == list(script.patches.VARIANTS)
    assert tried["no copies"]["reason"] == "ValueError: it fails"
    found = tried["no reads"]["found"]
    assert found["plain"]["loop_share"] == pytest.approx(0.7, rel=1e-3)
    assert found["patched"]["loop_share"] == pytest.approx(0.7 / 0.9, rel=1e-3)
    assert len(live.written) >= 2
    assert "ELF" not in log.path.read_text()
    assert "codes" not in log.path.read_text()
    text = "\n".join(script.main.lines(log))
    assert "it fails" in text
    assert "77.8%  +7.8%" in text
    again = script.main.Log(log.path)  # a process that goes on where another ended
    measure.measure(again, [case], 256, 128, time.time() + 60, 1)
    assert len(again.of("tried")) == len(tried)


def no_sensors(device):
    raise ValueError("none here")


def here(work, jobs, calls, *rest):
    """Do in this process what others would."""
    return [(job, work(*call)) for job, call in zip(jobs, calls, strict=True)]


def test_a_variant_that_hangs_keeps_its_row_and_a_reason(script, tmp_path):
    """What the process that watches makes of a log whose last start has no end."""
    from hopper.watching import blame

    log = script.main.Log(tmp_path / "a.log")
    case = {**script.main.case_of(CASE, "TN"), "reason": ""}
    log.add(kind="prepared", **case)
    about = {"trans": "TN", "case": case["case"], "variant": "no barriers", "id": "x no barriers"}
    log.add(kind="started", **about)
    blame(log)
    (row,) = script.main.Log(log.path).of("tried")
    assert script.measure.key_of(row) == script.measure.key_of(case)
    (line,) = (one for one in script.main.lines(log) if "no barriers" in one)
    assert line.endswith("the process crashed or hung")
