"""What text costs when it is first run: stamps of a device that is made up, and its table."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tests.library.test_shipped import ROOT, script
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.sass import decode, main_loop, read_cubin
from tilewright.stencil import Source

COMMITTED = ROOT / "benchmarks/results/h100/text_first_run.json"
LATER, NEAR, BEYOND = 16, 3, 35  # cycles of a line, made up


@pytest.fixture
def first_run():
    return script("text_first_run")


class Live:
    """A device of three multiprocessors, that has 64 KiB of a kernel near when it begins."""

    id, backend, platform, driver, fingerprint = "cuda:0", "cuda", "none", "1", "abc"
    spec = SimpleNamespace(multiprocessors=3, name="Made up", kind="cpu")

    def __init__(self, first_run):
        self.first_run, self.ran, self.stamps, self.launches = first_run, None, None, 0

    def allocate(self, size):
        assert size == 3 * self.first_run.STAMPS * 8
        return 1

    def launch_timed(self, kernel, launch, arguments):
        assert (launch.grid, launch.block) == ((3, 1), (self.first_run.THREADS, 1))
        begin, length = kernel
        lines, beyond = 8 * length, self.first_run.lines_beyond(begin, length, 64)
        near = NEAR * (lines - beyond)
        first = near + BEYOND * beyond if self.ran != kernel else 0
        passes = int(arguments[1])
        each = np.full((3, passes), LATER * lines) + np.array([[-1], [0], [1]])
        each[:, 0] += int(first)
        self.stamps = 1000 + np.concatenate([np.zeros((3, 1)), each.cumsum(axis=1)], axis=1)
        self.ran, self.launches = kernel, self.launches + 1
        return SimpleNamespace(nanoseconds=lambda: 1)

    def download(self, memory, array):
        array[:, : self.stamps.shape[1]] = self.stamps


@pytest.fixture
def live(first_run, monkeypatch):
    monkeypatch.setattr(
        first_run, "loaded", lambda live, pad, length: ((pad + 1.0, length), pad + 1.0)
    )
    return Live(first_run)


def test_a_fit_finds_what_it_was_made_from(first_run):
    points = [
        (begin, 26, 35 * first_run.lines_beyond(begin, 26, 64))
        for begin in (0, 16, 32, 48, 56, 64, 96)
    ]
    assert first_run.fitted(points) == {
        "near_kib": 64,
        "extra_per_line_near": pytest.approx(0, abs=0.01),
        "extra_per_line_beyond": 35,
    }


def test_a_fit_tells_lines_near_from_those_beyond(first_run):
    def more(begin, length):
        beyond = first_run.lines_beyond(begin, length, 40)
        return 3 * (8 * length - beyond) + 20 * beyond

    points = [(begin, length, more(begin, length)) for begin in (0, 30, 80) for length in (8, 26)]
    found = first_run.fitted(points)
    assert found == {"near_kib": 40, "extra_per_line_near": 3, "extra_per_line_beyond": 20}


@pytest.mark.parametrize(("begin", "lines"), [(0, 0), (38, 0), (48, 80), (64, 208), (100, 208)])
def test_lines_beyond(first_run, begin, lines):
    assert first_run.lines_beyond(begin, 26, 64) == lines


def test_another_kernel_runs_before_what_is_timed_behind_it(first_run, live):
    rows = list(first_run.measure(live))
    assert [(row["pad_kib"], row["length_kib"]) for row in rows] == first_run.POINTS
    assert live.launches == 3 * first_run.ROUNDS * len(rows)
    for row in rows:
        lines = 8 * row["length_kib"]
        # The first round warms up, and is left out.
        assert row["itself"] == {"passes": [LATER * lines] * 4, "slowest_first": LATER * lines + 1}
        beyond = first_run.lines_beyond(row["begin_kib"], row["length_kib"], 64)
        first = LATER * lines + NEAR * (lines - beyond) + BEYOND * beyond
        assert row["behind"]["passes"] == [first, *[LATER * lines] * 3]


def test_the_file_and_its_table(first_run, live, monkeypatch, capsys, tmp_path):
    path = tmp_path / "text.json"
    monkeypatch.setattr("tilewright.backend.device", lambda name: live)
    monkeypatch.setattr(sys, "argv", ["text_first_run.py", "--json", str(path)])
    first_run.main()
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert len(lines) == len(first_run.POINTS) + 2
    assert lines[1].split() == ["0", "26", str(208 * (LATER + NEAR)), "3328", "-"]
    assert lines[1 + first_run.PADS.index(64)].split() == [
        "64",
        "26",
        str(208 * (LATER + BEYOND)),
        "3328",
        "51.0",
    ]
    assert lines[-1] == (
        "The first 64 KiB come with the launch.  A line takes 16.0 cycles in later passes;"
        " in the first 35.0 more beyond them, 3.0 more among them"
    )
    file, kept = json.loads(path.read_text()), json.loads(COMMITTED.read_text())
    assert file["environment"]["rounds"] == first_run.ROUNDS
    assert file["environment"]["method"] == kept["environment"]["method"]
    assert list(file) == list(kept)
    assert file["device"].keys() == kept["device"].keys()
    assert file["fit"].keys() == kept["fit"].keys()
    for row in kept["rows"]:
        assert row.keys() == file["rows"][0].keys()
        assert row["behind"].keys() == file["rows"][0]["behind"].keys()

    monkeypatch.setattr(sys, "argv", ["text_first_run.py", "--table", "--json", str(path)])
    first_run.main()
    assert capsys.readouterr().out == printed


def test_the_committed_file_says_what_its_rows_do(first_run):
    file = json.loads(COMMITTED.read_text())
    assert file["fit"] == first_run.fit(file["rows"])
    assert {(row["pad_kib"], row["length_kib"]) for row in file["rows"]} <= set(first_run.POINTS)


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here")
@pytest.mark.parametrize(("pad", "length"), [(0, 8), (16, 8)])
def test_text_that_never_runs_is_before_the_passes(first_run, pad, length):
    code = compile_cubin(Source(first_run.text(pad, length), {}, "first_run"), "sm_90a").code
    assert pad < first_run.begin_kib(code) < pad + 1
    (kernel,) = read_cubin(code).kernels
    loop = main_loop(decode(kernel.code, kernel.arch))
    assert loop.names()["FFMA"] == length * first_run.FFMA_PER_KIB
    assert length * 1024 < loop.end - loop.start < (length + 1) * 1024


@pytest.mark.parametrize(
    ("options", "trouble"),
    [
        (["--json", "nowhere/x.json"], "nowhere/x.json is in no directory that is there"),
        (["--table", "--json", "nowhere"], "nowhere cannot be read"),
        (["--table", "--json", str(COMMITTED.with_name("depths.json"))], "has other results"),
        ([], "arguments are required: --json"),
    ],
)
def test_wrong_files_are_a_line(first_run, monkeypatch, capsys, options, trouble):
    monkeypatch.setattr(sys, "argv", ["text_first_run.py", *options])
    with pytest.raises(SystemExit) as ended:
        first_run.main()
    assert ended.value.code == 2
    assert trouble in capsys.readouterr().err.splitlines()[-1]


def test_no_device_is_a_line(first_run, monkeypatch, tmp_path):
    monkeypatch.setattr("tilewright.backend.devices", list)
    path = tmp_path / "x.json"
    monkeypatch.setattr(sys, "argv", ["text_first_run.py", "--json", str(path)])
    with pytest.raises(SystemExit, match=r"^text_first_run.py: no device was found") as ended:
        first_run.main()
    assert "\n" not in str(ended.value)
    assert not path.exists()
