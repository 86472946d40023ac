"""A sweep's file: complete after each problem, gone on with, never of another device."""

from __future__ import annotations

import csv
import json

import pytest

from tilewright.backend import BackendError, device
from tilewright.bench import session as sessions
from tilewright.bench.counters import COUNTERS
from tilewright.bench.profile import ProfileError
from tilewright.bench.sweep import sweep
from tilewright.cli.app import run

COMMAND = ["bench", "--size", "48,32x16x8", "--trans", "NT", "--rounds", "1"]


def rows(path):
    return json.loads(path.read_text())["devices"][0]["results"]


def table(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture
def measured(monkeypatch):
    """The problems that were measured, not taken over."""
    seen = []

    def noting(live, problems, *rest):
        seen.extend(str(problem) for problem in problems)
        return sweep(live, problems, *rest)

    monkeypatch.setattr(sessions, "sweep", noting)
    return seen


def test_the_command_writes_one_file_that_tells_everything(tmp_path, capsys):
    out = tmp_path / "bench.json"
    assert run([*COMMAND, "--peer", "numpy", "-o", str(out), "--json"]) == 0
    document = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == document
    assert [row["size"] for row in rows(out)] == [[48, 48, 48], [32, 16, 8]]
    assert all(set(row["seconds"]) == {"tilewright", "numpy"} for row in rows(out))
    assert rows(out)[0]["options"]["cache"] == "warm"
    assert document["environment"]["commit"] is not None
    assert "warm cache" in document["environment"]["method"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--peer", "nobody"], 2, "peer='nobody'"),
        (["--peer", "cublas", "--device", "opencl"], 1, "cublas runs on CUDA devices"),
        (["--size", "8:"], 2, "size='8:'"),
        (["--cache", "tepid"], 2, "cache='tepid'"),
        (["--tune", "soon"], 2, "tune='soon'"),
        (["--resume", "nowhere/x.json"], 1, "nowhere/x.json is in no directory"),
        (["--profile"], 1, "--profile counts on CUDA devices"),
        (["--trace", "nowhere/t.json"], 1, "nowhere/t.json is in no directory"),
    ],
)
def test_wrong_usage_is_one_line(capsys, arguments, status, message):
    assert run(["bench", "--size", "16", *arguments]) == status
    told = capsys.readouterr().err
    assert message in told
    assert len(told.strip().splitlines()) == 1


def test_csv_has_one_line_for_each_librarys_times(tmp_path):
    out = tmp_path / "bench.csv"
    assert run([*COMMAND, "--peer", "numpy", "--with-transfers", "-o", str(out)]) == 0
    lines = table(out)
    assert len(lines) == 2 * 2 * 2
    assert {line["includes"] for line in lines} == {"kernel", "kernel and transfers"}
    for line in lines:
        flops = 2 * int(line["m"]) * int(line["n"]) * int(line["k"])
        assert float(line["flops_per_second"]) == pytest.approx(flops / float(line["median_s"]))
        assert (line["config"] != "") == (line["library"] == "tilewright")


def test_what_is_there_is_not_measured_again(tmp_path, measured, capsys):
    out = tmp_path / "bench.json"
    out.touch()  # an empty file holds nothing yet
    command = [*COMMAND, "--resume", str(out)]
    assert run(["bench", "--size", "48", *COMMAND[3:], "--resume", str(out)]) == 0
    first = rows(out)
    assert run(command) == 0
    assert measured == ["SGEMM NT 48", "SGEMM NT 32x16x8"]
    assert "holds 1 results" in capsys.readouterr().out
    assert rows(out)[0] == first[0]
    # A third time there is nothing to do, and CSV can be had from what is there.
    assert run([*command, "-o", str(tmp_path / "bench.csv")]) == 0
    assert len(measured) == 2
    assert len((tmp_path / "bench.csv").read_text().splitlines()) == 3
    # Other options are another measurement, beside the first.
    assert run([*command[:-3], "2", *command[-2:]]) == 0
    assert len(measured) == 4
    assert [row["options"]["rounds"] for row in rows(out)] == [1, 1, 2, 2]
    document = json.loads(out.read_text())
    assert len(document["earlier_environments"]) == 3


def test_an_interrupted_sweep_keeps_all_and_goes_on(tmp_path, measured, monkeypatch, capsys):
    out = tmp_path / "bench.json"

    def interrupted(live, problems, *rest):
        if "48" not in str(problems[0]):
            raise KeyboardInterrupt
        return sweep(live, problems, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(sessions, "sweep", interrupted)
        assert run([*COMMAND, "--resume", str(out)]) == 130
    assert "tilewright: stopped; what was written until then stays\n" in capsys.readouterr().err
    assert [row["problem"] for row in rows(out)] == ["SGEMM NT 48"]
    assert run([*COMMAND, "--resume", str(out)]) == 0
    assert measured == ["SGEMM NT 32x16x8"]
    assert len(rows(out)) == 2


def test_a_problem_that_fails_is_a_row_with_a_reason(tmp_path, measured, monkeypatch, capsys):
    out = tmp_path / "bench.json"

    def failing(live, problems, *rest):
        if "48" in str(problems[0]):
            raise BackendError("out of luck\nand more")
        return sweep(live, problems, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(sessions, "sweep", failing)
        assert run([*COMMAND, "--resume", str(out), "-o", str(tmp_path / "b.csv")]) == 1
    assert "SGEMM NT 48 on opencl:0: out of luck" in capsys.readouterr().err
    assert [row.get("error") for row in rows(out)] == ["out of luck", None]
    first = table(tmp_path / "b.csv")[0]
    assert first["missing"] == "out of luck"
    # What failed is tried again, and replaced.
    assert run([*COMMAND, "--resume", str(out)]) == 0
    assert measured == ["SGEMM NT 48"]
    assert ["error" in row for row in rows(out)] == [False, False]


def test_a_problem_too_large_for_the_machine_is_refused_by_itself(tmp_path):
    out = tmp_path / "bench.json"
    assert run(["bench", "--size", "900000,16", "--rounds", "1", "-o", str(out)]) == 1
    assert "GiB in three matrices" in rows(out)[0]["error"]
    assert rows(out)[1]["seconds"]


def test_results_of_another_device_are_refused(tmp_path, capsys):
    out = tmp_path / "bench.json"
    assert run(["bench", "--size", "16", "--rounds", "1", "--resume", str(out)]) == 0
    document = json.loads(out.read_text())
    document["devices"][0] |= {"fingerprint": "0" * 12, "name": "abacus"}
    out.write_text(json.dumps(document))
    assert run(["bench", "--size", "16", "--resume", str(out)]) == 2
    assert "holds results of abacus" in capsys.readouterr().err
    assert json.loads(out.read_text()) == document


@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: row.pop("config"),
        lambda row: row.pop("flops_per_second"),
        lambda row: row["flops_per_second"].pop("tilewright"),
        lambda row: row["seconds"].update(tilewright=[]),
        lambda row: row["flops_per_second"].update(tilewright=[1.0]),
        lambda row: row.update(tuned_on=5),
        lambda row: row.update(seconds=5),
    ],
)
def test_rows_that_miss_something_are_refused(tmp_path, capsys, spoil):
    out = tmp_path / "bench.json"
    assert run(["bench", "--size", "16", "--rounds", "1", "-o", str(out)]) == 0
    document = json.loads(out.read_text())
    spoil(document["devices"][0]["results"][0])
    out.write_text(json.dumps(document))
    assert run(["bench", "--size", "16", "--resume", str(out)]) == 2
    assert "is no result of tilewright bench" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        *("no", "[]", "{}", "[" * 100_000, '{"environment": {}, "devices": [{}]}'),
        *('{"environment": 1, "devices": []}', '{"environment": {}, "devices": 5}'),
        '{"environment": {}, "devices": [{"id": "a", "name": "b", "fingerprint": "c",'
        ' "peers": {}, "results": [{"problem": "SGEMM", "size": 5}]}]}',
    ],
)
def test_files_that_are_no_results_are_refused_and_kept(tmp_path, capsys, text):
    out = tmp_path / "bench.json"
    out.write_text(text)
    assert run(["bench", "--size", "16", "--resume", str(out)]) == 2
    assert "is no result of tilewright bench" in capsys.readouterr().err
    assert out.read_text() == text


def test_csv_is_not_resumed_from(tmp_path, capsys):
    out = tmp_path / "bench.csv"
    for _ in range(2):
        assert run(["bench", "--size", "16", "--resume", str(out)]) == 2
        assert "is CSV" in capsys.readouterr().err
        out.write_text("problem\n")


def test_a_device_that_is_named_twice_is_one(tmp_path):
    out = tmp_path / "bench.json"
    command = ["bench", "--size", "16,8", "--rounds", "1", "-o", str(out)]
    assert run([*command, "--device", "opencl:0,opencl:0"]) == 0
    (told,) = json.loads(out.read_text())["devices"]
    assert told["id"] == device("opencl:0").id
    assert [row["problem"] for row in told["results"]] == ["SGEMM NN 16", "SGEMM NN 8"]


# -- with counters ---------------------------------------------------------------------


class Counted:
    """In the place of a profiler: says what it is told to."""

    answer: object = None

    def __init__(self, live, method):
        self.asked = []

    def profile(self, problem, choice, peers):
        if isinstance(self.answer, Exception):
            raise self.answer
        kernel = {
            "name": "gemm_with_a_very_long_name_that_nobody_wants_to_read_in_full",
            "grid": "(1, 1, 1)",
            "block": "(64, 1, 1)",
            "counters": {one.name: 12.5 for one in COUNTERS},
            "stalls": {"wait": 0.5, "selected": 1.0, "barrier": 0.0},
        }
        return {"libraries": {"tilewright": {"kernels": [kernel, kernel]}, **self.answer}}


def profiled(tmp_path, monkeypatch, answer, *more):
    monkeypatch.setattr(Counted, "answer", answer)
    monkeypatch.setattr("tilewright.bench.profile.Profiler", Counted)
    out = tmp_path / "bench.json"
    return out, run([*COMMAND, "--profile", "--resume", str(out), *more])


def test_counters_are_stored_with_the_times_and_shown(tmp_path, monkeypatch, measured, capsys):
    csv_file = tmp_path / "b.csv"
    out, status = profiled(tmp_path, monkeypatch, {}, "-o", str(csv_file))
    assert status == 0
    told = capsys.readouterr().out
    assert "issue slots used" in told
    assert "stalled: wait" in told
    assert "barrier" not in told
    kernel = rows(out)[0]["profile"]["libraries"]["tilewright"]["kernels"][0]
    assert kernel["counters"]["issue_pct"] == 12.5
    line = table(csv_file)[0]
    assert (line["issue_pct"], line["stall_wait"]) == ("12.5", "0.5")
    assert profiled(tmp_path, monkeypatch, {})[1] == 0
    assert len(measured) == 2


def test_without_counters_the_times_are_kept(tmp_path, monkeypatch, capsys, measured):
    out, status = profiled(tmp_path, monkeypatch, ProfileError("may not count; run as root"))
    assert status == 1
    assert capsys.readouterr().err.strip().endswith("tilewright: may not count; run as root")
    assert all(row["seconds"]["tilewright"] for row in rows(out))
    assert all("run as root" in row["profile"]["error"] for row in rows(out))
    # Once it may, what lacks counters is done again.
    assert profiled(tmp_path, monkeypatch, {})[1] == 0
    assert len(measured) == 4
    assert len(rows(out)) == 2


def test_a_peer_that_could_not_be_counted_says_why(tmp_path, monkeypatch, capsys):
    answer = {"cublas": {"error": "Nsight Compute failed: no"}}
    _, status = profiled(tmp_path, monkeypatch, answer)
    assert status == 1
    told = capsys.readouterr()
    assert "SGEMM NT 48, cublas: Nsight Compute failed: no" in told.out
    assert "Nsight Compute failed: no" in told.err
