"""Plans of other accuracies that a preloaded library asks for."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

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


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
