"""Plans of other accuracies that a preloaded library asks for."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.export.building import Caller, needs_c
from tests.export.calling import C, plain
from tilewright.cli import run
from tilewright.export import find_target
from tilewright.export.plans import Planner, serving

MULTIPROCESSORS = 132


@pytest.fixture
def planner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planner:
    """Of what ships for an H100; what would be compiled is a file of its name."""
    made = Planner(find_target("sm_90a", defaults=True), tmp_path)
    monkeypatch.setattr(
        made, "compile", lambda source: made._kept(source.identity.encode(), "x", "", 0, 0)
    )
    return made


def request(which: int, side: int, batch: int = 1, *, many: int = MULTIPROCESSORS) -> bytes:
    """Return what is asked for a product of squares, B transposed."""
    steps = [side * side if batch > 1 else 0] * 3
    sides = [side] * 6
    return struct.pack("<17q", many, which, 0, 1, *sides, 0, 0, 1, batch, *steps)


@pytest.mark.parametrize(("which", "side"), [(0, 4096), (1, 8192), (2, 2048), (3, 4096)])
def test_a_plan_is_launches_arguments_and_files(planner: Planner, which: int, side: int) -> None:
    answer = planner.answer(request(which, side))
    launches, places, maps, patches, codes, _, scratch, repeats = struct.unpack_from("<8Q", answer)
    rows = 64 + 760 * codes + 48 * launches + 16 * places + 8 * ((places + 1) // 2) + 16 * patches
    assert len(answer) == rows + 144 * maps
    assert launches > 4
    assert maps > 0
    assert scratch > side * side
    assert repeats == 0
    for at in range(codes):
        file = answer[64 + 760 * at :][:256].rstrip(b"\0")
        assert Path(file.decode()).is_file()
    numbers = [
        struct.unpack_from("<Q", answer, 64 + 760 * codes + 48 * at)[0] for at in range(launches)
    ]
    assert {number // 2 for number in numbers} == set(range(codes))


def test_a_batch_is_one_chain_or_repeated(planner: Planner) -> None:
    for asked, repeated in ((request(0, 512, 64), 0), (request(1, 8192, 3), 1)):
        launches, *_, repeats = struct.unpack_from("<8Q", planner.answer(asked))
        assert launches > 4
        assert repeats == repeated


def test_what_ieee_arithmetic_serves_has_no_launches(planner: Planner) -> None:
    for asked in (request(0, 256), request(1, 512), request(0, 4096, many=114)):
        assert planner.answer(asked) == bytes(64)


def test_answers_come_through_a_socket(planner: Planner, tmp_path: Path) -> None:
    asked = [(request(0, 4096), planner.answer(request(0, 4096))), (b"x" * 136, bytes(64))]
    with serving(planner, tmp_path / "plans"):
        for one, wanted in (*asked, *asked):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / "plans"))
                client.sendall(one)
                with client.makefile("rb") as answer:
                    (size,) = struct.unpack("<Q", answer.read(8))
                    assert answer.read(size) == wanted
    assert not (tmp_path / "plans").exists() or not _answers(tmp_path / "plans")


def test_the_first_error_is_told(
    planner: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fails(asked: bytes) -> bytes:
        raise ValueError(f"of {len(asked)}\nbytes")

    monkeypatch.setattr(planner, "answer", fails)
    with serving(planner, tmp_path / "plans"):
        for _ in range(2):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / "plans"))
                client.sendall(request(0, 4096))
                with client.makefile("rb") as answer:
                    assert answer.read() == struct.pack("<Q", 64) + bytes(64)
    assert capfd.readouterr().err.count("\n") == 1


def test_a_program_runs_without_plans_where_a_socket_has_no_room(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with run._planned("sm_90a", ["fp32"], tmp_path / ("x" * 100)) as environment:
        assert environment == {}
    assert "--accuracy is left aside" in capfd.readouterr().err
    with pytest.raises(OSError, match="the program's"), run._planned("sm_90a", ["fp32"], tmp_path):
        raise OSError("the program's")


# As large as products are that are emulated.
LARGE = dict.fromkeys(("m", "n", "k", "lda", "ldb", "ldc"), 512)


def packed(file: Path, places: int = 16, patches: int = 1, function: int = 0) -> bytes:
    """Return a plan of one launch that is told where C is, behind 13 other arguments."""
    head = struct.pack("<8Q", 1, places, 0, patches, 1, 0, 0, 0)
    code = struct.pack("<256s248s248sQ", bytes(file), b"gemm", b"", 1024)
    launch = struct.pack("<Q9I4x", function, 3, 2, 1, 32, 1, 1024, 0, 0, 16)
    if places > 16:
        return head + code + launch
    values = b"".join(struct.pack("<Q8x", number) for number in range(16))
    patch = struct.pack("<IBBHq", 13, 2, 0, 0, 8)
    return b"".join((head, code, launch, values, b"\xff" * 64, patch))


def _called(
    preloaded: Path, tmp_path: Path, patch: pytest.MonkeyPatch, answer: Callable[[Caller], bytes]
) -> Any:
    """Return what a library launches whose process is given an answer."""
    patch.setenv("TILEWRIGHT_CUBLAS_ACCURACY", "fp32")
    patch.setenv("TILEWRIGHT_CUBLAS_PLANS", str(tmp_path / "plans"))
    caller = Caller(preloaded / "ours.so", preloaded / "libcuda.so.1")
    planner: Any = SimpleNamespace(answer=lambda asked: answer(caller))
    with serving(planner, tmp_path / "plans"):
        said = caller("gemm", *plain(**LARGE))
        caller.close()
    return said


@needs_c
def test_a_library_launches_a_plan_though_it_is_stopped_while_it_waits(
    preloaded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").write_bytes(b"an emulated kernel".ljust(104, b"\0"))

    def answer(caller: Caller) -> bytes:
        time.sleep(0.05)  # which it waits for
        for number in (signal.SIGSTOP, signal.SIGCONT):
            os.kill(caller.process, number)
        return packed(tmp_path / "code")

    found = _called(preloaded, tmp_path, monkeypatch, answer)
    assert found["status"] == 0
    launch = found["launch"]
    assert (launch["name"], launch["grid"], launch["block"]) == (
        "an emulated kernel", [3, 2, 1], [32, 1, 1]
    )  # fmt: skip
    assert launch["arguments"][:13] == [*range(13)]
    assert launch["arguments"][13] == C + 8


@needs_c
@pytest.mark.parametrize(
    "wrong",
    [
        {"function": 2},  # of the second code
        {"patches": 2},  # one more than there is
        {"places": 1 << 60, "patches": 3 << 58},  # their bytes are 0 in 64 bits
    ],
)
def test_ieee_arithmetic_serves_where_an_answer_is_no_plan(
    preloaded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, int]
) -> None:
    (tmp_path / "code").write_bytes(b"an emulated kernel".ljust(104, b"\0"))
    answer = packed(tmp_path / "code", **wrong)
    found = _called(preloaded, tmp_path, monkeypatch, lambda caller: answer)
    assert found["status"] == 0
    assert found["launch"]["name"].startswith("tw_sgemm_")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
