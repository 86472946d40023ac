"""A portfolio's files read as they were written; damaged ones are refused in one line."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.portfolio.examples import EVERY_MODE, H100, costs, digest, geometries, kernel, write
from tilewright import paths
from tilewright.portfolio import PortfolioError, portfolio
from tilewright.portfolio.portfolio import Copying, read_portfolio
from tilewright.problem import Problem
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import PLAIN, Mode

PROBLEM = Problem(64, 64, 64, "s")
STARTS = stencil("simt_async").starts(Variant.of(PROBLEM), H100)


CUT = {"step_cycles": 1, "part_bytes": 8, "reduction_blocks": 1, "reduction_threads": 1}


def planted(folder: Path, count: int = 2, **facts):
    """Write a portfolio of some kernels in all modes."""
    made = [
        kernel(PROBLEM, one, EVERY_MODE, costs=costs(5.0), won={(at, 2, 3): 7.0}, routed=[PLAIN])
        for at, one in enumerate(STARTS[:count])
    ]
    return write(folder, made, **facts)


def manifest(folder: Path) -> dict:
    return json.loads((folder / "s.json").read_text())


def change(folder: Path, **changes) -> None:
    (folder / "s.json").write_text(json.dumps(manifest(folder) | changes))


def refused(folder: Path) -> str:
    """Return why a manifest is refused: in one line, and as nothing else."""
    with pytest.raises(PortfolioError) as told:
        read_portfolio(folder, "s")
    assert "\n" not in str(told.value)
    return str(told.value)


# -- as they were written ----------------------------------------------------------------


def test_a_portfolio_reads_as_it_was_written(tmp_path):
    facts = {"copying": Copying(1200.0, 3000.0), "made": {"date": "2026"}, "sources": {"a": "b"}}
    made = planted(tmp_path, **facts)
    found = read_portfolio(tmp_path, "s")
    for name in ("name", "arch", "device", "multiprocessors", "kernels", "codes", "blocks", *facts):
        assert getattr(found, name) == getattr(made, name), name
    assert found.copying == facts["copying"]
    assert len(found.codes) == 2 * 9
    for one in found.codes:
        assert digest(found.machine_code(one)) == one


def test_kernels_read_one_by_one_are_the_same(tmp_path):
    planted(tmp_path)
    whole, late = (read_portfolio(tmp_path, "s", trusted=trusted) for trusted in (False, True))
    of = Variant.of(PROBLEM)
    assert late.of_variant(of) == whole.of_variant(of) == tuple(late.kernels) == whole.kernels
    assert late.of_variant(Variant.of(Problem(1, 1, 1, "s", "T"))) == ()
    assert late.kernels[0] is late.kernels[0]
    assert late.kernels[-1:] == whole.kernels[-1:]


@given(
    geometries(),
    st.lists(st.floats(0, 1e6), max_size=11),
    st.dictionaries(st.tuples(*[st.integers(1, 9999)] * 3), st.integers(1, 10**9), max_size=3),
    st.sets(st.sampled_from(EVERY_MODE)),
)
def test_any_kernel_is_the_same_after_json(geometry, its_costs, won, modes):
    made = kernel(
        PROBLEM, geometry=geometry, modes=sorted(modes, key=str), costs=tuple(its_costs), won=won
    )
    found = type(made).from_json(json.loads(json.dumps(made.to_json())))
    assert found.costs == pytest.approx(made.costs, rel=1e-5)
    for name in ("config", "version", "variant", "geometry", "modes", "won", "routed"):
        assert getattr(found, name) == getattr(made, name)


def test_a_kernel_whose_config_names_a_launch_mode_has_its_code_in_that_mode():
    """As tuners wrote it when modes were parameters: its plain code was compiled so."""
    made = kernel(PROBLEM, STARTS[0], modes=[PLAIN, Mode(staged=True)])
    row = made.to_json()
    found = type(made).from_json(row | {"config": {**row["config"], "narrow": 1, "guarded": 0}})
    scalar = Mode(scalar=True)
    assert found.config == made.config
    assert found.modes == {mode | scalar: code for mode, code in made.modes.items()}


def test_two_machine_codes_may_be_asked_for_in_any_order(tmp_path):
    """More blocks than stay unpacked."""
    configs = stencil("portable").space(Variant.of(PROBLEM), H100).sample(12, 0)
    made = write(tmp_path, [kernel(PROBLEM, one) for one in configs])
    assert len(made.blocks) == 12
    for one in [*made.codes, *reversed(made.codes)]:
        assert digest(made.machine_code(one)) == one


def test_a_block_is_unpacked_as_far_as_somebody_asks(tmp_path):
    """What lies behind is: in the same block, later."""
    made = planted(tmp_path, 1)
    (block,) = made.blocks
    codes = sorted(made.codes.values(), key=lambda one: one.at)
    assert len(codes) > 2
    found = read_portfolio(tmp_path, "s")
    assert digest(found.machine_code(codes[0].digest)) == codes[0].digest
    assert len(found._unpacked[block]._found) == codes[0].size
    for one in reversed(codes):
        assert digest(found.machine_code(one.digest)) == one.digest


def test_a_portfolio_without_kernels_is_one(tmp_path):
    assert write(tmp_path, []).kernels == ()


# -- damaged -----------------------------------------------------------------------------


def data_of(folder: Path) -> Path:
    (found,) = folder.glob("s-*.xz")
    return found


def test_a_flipped_byte_is_found(tmp_path):
    """Wherever in the data it is: what is loaded has its digest, or nothing is."""
    made = planted(tmp_path, 1)
    path = data_of(tmp_path)
    good = path.read_bytes()
    for at in range(0, len(good), 7):
        bad = bytearray(good)
        bad[at] ^= 0x10
        path.write_bytes(bad)
        found = read_portfolio(tmp_path, "s")
        for one in list(made.codes)[:3]:
            with contextlib.suppress(PortfolioError):
                assert digest(found.machine_code(one)) == one


@pytest.mark.parametrize("share", [0, 0.1, 0.5])
def test_a_truncated_file_is_found(tmp_path, share):
    made = planted(tmp_path, 1)
    path = data_of(tmp_path)
    text = path.read_bytes()
    path.write_bytes(text[: round(share * len(text))])
    found = read_portfolio(tmp_path, "s")
    last = max(made.codes.values(), key=lambda one: one.at)
    with pytest.raises(PortfolioError, match=r"is damaged|cannot be read"):
        found.machine_code(last.digest)


def test_missing_data_and_missing_codes_are_told(tmp_path):
    made = planted(tmp_path, 1)
    with pytest.raises(PortfolioError, match="has no machine code"):
        made.machine_code("0" * 64)
    data_of(tmp_path).unlink()
    with pytest.raises(PortfolioError, match="cannot be read"):
        made.machine_code(next(iter(made.codes)))


def test_another_kernels_machine_code_is_not_taken_for_it(tmp_path):
    planted(tmp_path, 1)
    codes = manifest(tmp_path)["codes"]
    first, second = list(codes)[:2]
    change(tmp_path, codes=codes | {first: codes[second], second: codes[first]})
    with pytest.raises(PortfolioError, match="differs from its digest"):
        read_portfolio(tmp_path, "s").machine_code(first)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"null", b"[]", b"3", b'"format"', b"{}", b'{"format": 2}', b"\xff\xfe{}", b"\x00",
     b"[" * 100_000, b'{"format": 1}', b"MZ\x90\x00"],
    ids=lambda text: repr(text[:12]),
)  # fmt: skip
def test_a_file_of_something_else_is_refused(tmp_path, text):
    (tmp_path / "s.json").write_bytes(text)
    refused(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2}, {"data": "../s.xz"}, {"data": "/etc/passwd"}, {"data": "..\\s.xz"},
        {"data": ".hidden"}, {"data": ".."}, {"data": ""}, {"data": "s\0.xz"}, {"data": "s.xz:x"},
        {"blocks": {}}, {"blocks": {"a": [0]}}, {"blocks": [1, 2]}, {"multiprocessors": "many"},
        {"multiprocessors": float("inf")}, {"codes": [1]}, {"codes": {"a": {"b": 1}}},
        {"kernels": 3}, {"kernels": [1]}, {"kernels": [{}]}, {"copying": [1]}, {"usual": 5},
        {"copying": ["x", "y"]}, {"sources": []}, {"made": 5},
    ],
    ids=str,
)  # fmt: skip
def test_a_manifest_that_says_something_else_is_refused(tmp_path, changes):
    planted(tmp_path, 1)
    change(tmp_path, **changes)
    refused(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"config": [1]}, {"config": {"a": [1]}}, {"version": "x"}, {"precision": "q"},
        {"trans": "NTT"},
        {"trans": "QQ"}, {"modes": {"fast": "ab"}}, {"modes": []}, {"costs": ["x"]}, {"costs": 1},
        {"won": [[1, 2, 3]]}, {"won": {"a": 1}}, {"geometry": {}}, {"won": [[1, 2, 3, None]]},
        {"geometry": {"tile_m": 8, "tile_n": 8, "threads": [32, 1], "os.system": "ls"}},
    ],
    ids=str,
)  # fmt: skip
def test_a_kernel_that_is_none_is_refused(tmp_path, changes):
    planted(tmp_path, 2)
    kernels = manifest(tmp_path)["kernels"]
    change(tmp_path, kernels=[kernels[0], kernels[1] | changes])
    refused(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [{"tile_m": 0}, {"tile_n": -8}, {"tile_k": 0}, {"cluster_m": 0}, {"cluster_k": -1},
     {"threads": [0, 1]}, {"stages": 0}, {"resident": -1}, {"stream_k": -1},
     {"split_k": CUT | {"part_bytes": 0}}, {"split_k": CUT | {"step_cycles": "1"}}],
    ids=str,
)  # fmt: skip
def test_a_geometry_that_no_launch_has_is_refused(tmp_path, changes):
    """Before a call divides by it."""
    planted(tmp_path, 1)
    (one,) = manifest(tmp_path)["kernels"]
    change(tmp_path, kernels=[one | {"geometry": one["geometry"] | changes}])
    refused(tmp_path)


@pytest.mark.parametrize("where", [{"at": -1}, {"size": -1}, {"block": "none"}, {"at": "x"}])
def test_codes_lie_in_blocks_of_the_data(tmp_path, where):
    planted(tmp_path, 1)
    codes = manifest(tmp_path)["codes"]
    change(tmp_path, codes={key: row | where for key, row in codes.items()})
    refused(tmp_path)


def test_nothing_that_a_file_says_is_executed(tmp_path):
    """Names of stencils, modes and symbols are looked up, or passed on, as words."""
    planted(tmp_path, 1)
    (one,) = manifest(tmp_path)["kernels"]
    evil = f"__import__('pathlib').Path({str(tmp_path / 'pwned')!r}).touch()"
    change(tmp_path, kernels=[one | {"stencil": evil}], made={evil: evil}, device=evil)
    found = read_portfolio(tmp_path, "s")
    assert found.kernels[0].config.stencil == evil
    assert not (tmp_path / "pwned").exists()


def test_there_is_none_of_another_name(tmp_path):
    with pytest.raises(PortfolioError, match="cannot be read: No such file"):
        read_portfolio(tmp_path, "d")


# -- replaced ----------------------------------------------------------------------------


def test_the_manifest_is_written_last_and_old_data_goes_then(tmp_path, monkeypatch):
    planted(tmp_path, 1)
    before = data_of(tmp_path)
    written = []

    def write_atomically(path, data):
        written.append((path.name, before.exists()))
        paths.write_atomically(path, data)

    monkeypatch.setattr(portfolio, "write_atomically", write_atomically)
    planted(tmp_path, 2)
    (data, there), (last, still) = written
    assert (data.endswith(".xz"), last, there, still) == (True, "s.json", True, True)
    assert not before.exists()
    assert data_of(tmp_path).name == data


def test_a_write_that_fails_midway_leaves_the_old_portfolio(tmp_path, monkeypatch):
    made = planted(tmp_path, 1)

    def write_atomically(path, data):
        if path.suffix == ".json":
            raise OSError("disk full")
        paths.write_atomically(path, data)

    monkeypatch.setattr(portfolio, "write_atomically", write_atomically)
    with pytest.raises(OSError, match="disk full"):
        planted(tmp_path, 2)
    found = read_portfolio(tmp_path, "s")
    assert found.kernels == made.kernels
    assert all(found.machine_code(one) for one in found.codes)


READER = """
import sys, pathlib
from tilewright.portfolio.portfolio import PortfolioError, read_portfolio
folder, seen = pathlib.Path(sys.argv[1]), set()
print("ready", flush=True)
while not (folder / "end").exists():
    seen.add(len(read_portfolio(folder, "s").kernels))
print(sorted(seen))
"""


def test_another_process_sees_the_old_or_the_new(tmp_path):
    planted(tmp_path, 1)
    command = [sys.executable, "-c", READER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout.readline() == "ready\n"
        for turn in range(12):
            planted(tmp_path, 2 - turn % 2)
        (tmp_path / "end").touch()
        assert set(json.loads(reader.stdout.readline())) <= {1, 2}
    assert reader.returncode == 0
