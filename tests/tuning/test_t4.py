"""T4 files: others can read ours, ours come back whole, and bad ones change nothing."""

import json
import os
import tempfile
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuning.measurement_examples import example, few, measurements
from tilewright.space.config import Config
from tilewright.tuning.measurement import Status
from tilewright.tuning.store import Store
from tilewright.tuning.t4 import (
    INVALIDITY,
    T4Error,
    metadata_path,
    read_t4,
    t4_metadata,
    t4_results,
    write_t4,
)

file_utils = pytest.importorskip("kernel_tuner.file_utils")


def every_status():
    return [example(block=i, status=status) for i, status in enumerate(Status)]


# ------------------------------------------------------- what others make of ours


@few
@given(st.lists(measurements(), max_size=4))
def test_documents_meet_kernel_tuners_schemas(drawn):
    for target, document in (("results", t4_results(drawn)), ("metadata", t4_metadata(drawn))):
        version, schema = file_utils.output_file_schema(target)
        plain = json.loads(json.dumps(document, allow_nan=False))
        jsonschema.validate(plain, schema)
        assert plain["schema_version"] == version


def test_every_status_has_an_invalidity_of_the_schema():
    _, schema = file_utils.output_file_schema("results")
    allowed = schema["properties"]["results"]["items"]["properties"]["invalidity"]["enum"]
    assert set(INVALIDITY) == set(Status)
    assert set(INVALIDITY.values()) <= set(allowed)
    correct = [e["correctness"] for e in t4_results(every_status())["results"]]
    assert correct == [1, 0, 0, 0, 0, 0, 0]


def test_entries_say_what_kernel_tuner_itself_would_say():
    """Give Kernel Tuner our results as its own and compare what it writes."""
    from kernel_tuner import util

    ours = every_status()[:2]
    parameters = dict.fromkeys(ours[0].config)
    measured = {"compile_time": 250.0, "times": [0.003, 0.001, 0.002], "time": 0.002}
    refused = {"compile_time": 250.0, "time": 0, "__error__": util.CompilationFailedConfig()}
    zero = dict.fromkeys(
        ("benchmark_time", "framework_time", "strategy_time", "verification_time"), 0
    )
    theirs = [
        {**one.config, **zero, **result, "timestamp": one.created}
        for one, result in zip(ours, (measured, refused), strict=True)
    ]
    expected = file_utils.get_t4_results(theirs, parameters, objective="time")
    found = t4_results(
        example(block=m.config["block_m"], status=m.status, compile_seconds=0.25) for m in ours
    )
    assert found["metadata"].items() >= expected["metadata"].items()
    for mine, other in zip(found["results"], expected["results"], strict=True):
        for key in ("timestamp", "configuration", "invalidity", "objectives"):
            assert mine[key] == other[key]
        assert mine["times"]["compilation"] == other["times"]["compilation"]
        assert mine["times"]["runtimes"] == other["times"]["runtimes"]
        assert mine["measurements"][0]["name"] == other["measurements"][0]["name"] == "time"
        assert mine["measurements"][0]["unit"] == other["measurements"][0]["unit"] == "ms"
    assert found["results"][0]["measurements"][0]["value"] == 0.002


def test_kernel_tuner_simulates_a_tuning_run_from_an_export(tmp_path):
    """Its T4 support only writes; its cache is what it reads, and T4 holds all that needs."""
    import kernel_tuner
    from kernel_tuner import util

    blocks = [16, 32, 64]
    write_t4(tmp_path / "out.json", [example(block=b, times=(b * 1000,)) for b in blocks])
    entries = json.loads((tmp_path / "out.json").read_bytes())["results"]
    values = {name: [] for name in entries[0]["configuration"]}
    for entry in entries:
        for name, value in entry["configuration"].items():
            values[name] += [value] if value not in values[name] else []
    cache = {
        "device_name": "Tiny GPU",
        "kernel_name": "gemm",
        "problem_size": [512, 512],
        "tune_params_keys": list(values),
        "tune_params": values,
        "objective": "time",
        "cache": {
            ",".join(str(v) for v in entry["configuration"].values()): {
                **entry["configuration"],
                "time": entry["measurements"][0]["value"],
                "times": entry["times"]["runtimes"],
                **dict.fromkeys(("compile_time", "verification_time", "benchmark_time"), 0.0),
                **dict.fromkeys(("strategy_time", "framework_time"), 0.0),
                "timestamp": entry["timestamp"],
            }
            for entry in entries
        },
    }
    (tmp_path / "cache.json").write_text(json.dumps(cache, indent=0))
    assert len(util.read_cache(str(tmp_path / "cache.json"), open_cache=False)["cache"]) == 3
    results, _ = kernel_tuner.tune_kernel(
        "gemm", "__kernel void gemm(int n) {}", (512, 512), [np.int32(0)], values,
        lang="OpenCL", block_size_names=["block_m", "block_n"],
        cache=str(tmp_path / "cache.json"), simulation_mode=True, quiet=True,
    )  # fmt: skip
    assert min(results, key=lambda result: result["time"])["block_m"] == 16


# ----------------------------------------------------------------- round trips


@few
@given(st.lists(measurements(), max_size=4))
def test_a_round_trip_loses_nothing(drawn):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "out.json"
        assert write_t4(path, drawn) == len(drawn)
        assert read_t4(path) == drawn


def test_importing_twice_stores_once_and_keeps_fingerprints(tmp_path):
    path = tmp_path / "theirs.json"
    write_t4(path, [*every_status(), example(device="another-machine", stage="winner")])
    with Store(tmp_path / "mine") as store:
        assert store.add_all(read_t4(path)) == 8
        assert store.add_all(read_t4(path)) == 0
        assert store.winners("another-machine", "s", "NT") != []
        assert store.winners("a1b2c3d4e5f6", "s", "NT") == []


def test_metadata_lie_beside_the_results_and_say_where_they_come_from(tmp_path):
    write_t4(tmp_path / "out.json", [example(), example(device="f2", device_name="Big GPU")])
    assert metadata_path(tmp_path / "out.json") == tmp_path / "out.metadata.json"
    metadata = json.loads((tmp_path / "out.metadata.json").read_bytes())["metadata"]
    names = [one["name"] for one in metadata["hardware"]["hardware_description"]]
    assert names == ["Tiny GPU", "Big GPU"]
    assert metadata["environment"]["device_query"]["f2"][0]["driver"] == "1.2"


# ------------------------------------------------------------------ what is refused


def changed(*path, to):
    """Return a change of one value of the second entry; `...` removes it."""

    def change(document):
        inner = document["results"][1]
        for name in path[:-1]:
            inner = inner[name]
        if to is ...:
            del inner[path[-1]]
        else:
            inner[path[-1]] = to

    return change


ENTRY_CHANGES = [
    (changed("tilewright", to=...), "no tilewright record"),
    (changed("tilewright", to=[]), "no tilewright record"),
    (changed("invalidity", to="timeout"), "invalidity"),
    (changed("configuration", to=...), "parameters"),
    (changed("configuration", "block_m", to=1.5), "block_m"),
    (changed("configuration", "block_m", to=True), "block_m"),
    (changed("configuration", "block_m", to=None), "block_m"),
    (changed("configuration", "block_m", to=128), "identity"),
    (changed("tilewright", "config", to="000000000000"), "identity"),
    (changed("tilewright", "stencil", to="../../etc"), "identity"),
    (changed("tilewright", "stencil", to=3), "stencil"),
    (changed("tilewright", "stencil_version", to="1"), "stencil_version"),
    (changed("tilewright", "status", to="splendid"), "status"),
    (changed("tilewright", "stage", to="encore"), "stage"),
    (changed("tilewright", "times_ns", to=[1.5]), "times_ns"),
    (changed("tilewright", "times_ns", to=[-1]), "times_ns"),
    (changed("tilewright", "times_ns", to=[]), "times_ns"),
    (changed("tilewright", "times_ns", to=[10**30]), "times_ns"),
    (changed("tilewright", "error", to="small"), "error"),
    (changed("tilewright", "error", to=-1), "error"),
    (changed("tilewright", "error", to=10**400), "error"),
    (changed("tilewright", "created", to="then"), "created"),
    (changed("tilewright", "device", to=""), "device"),
    (changed("tilewright", "environment", to=[]), "environment"),
    (changed("tilewright", "environment", to={"x": "y" * 100_000}), "environment"),
    (changed("tilewright", "problem", "m", to=-1), "m=-1"),
    (changed("tilewright", "problem", "m", to=2**70), "m"),
    (changed("tilewright", "problem", "m", to="512"), "m is not an integer"),
    (changed("tilewright", "problem", "lda", to=1), "lda"),
    (changed("tilewright", "problem", "precision", to="q"), "precision"),
    (changed("tilewright", "problem", "trans_a", to="X"), "trans_a"),
    (changed("tilewright", "problem", to=None), "problem"),
]


@pytest.mark.parametrize(("change", "names"), ENTRY_CHANGES)
def test_a_bad_entry_is_named_and_nothing_is_read(change, names, tmp_path):
    document = json.loads(json.dumps(t4_results([example(), example(block=2)])))
    change(document)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document))
    with pytest.raises(T4Error, match=names) as refused:
        read_t4(path)
    assert "results[1]" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_macro_cannot_be_smuggled_in(tmp_path):
    """A config's words reach a compiler's command line."""
    evil = Config("portable", {"order": "rows -include /etc/passwd"})
    document = t4_results([example()])
    entry = document["results"][0]
    entry["configuration"] = dict(evil)
    entry["tilewright"]["config"] = evil.id
    (tmp_path / "bad.json").write_text(json.dumps(document))
    with pytest.raises(T4Error, match="not one plain word"):
        read_t4(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "nested"),
        ('{"results": [NaN]}', "NaN"),
        ("[]", "no list of results"),
        ('{"results": {}}', "no list of results"),
        ('{"results": []}', "schema_version"),
        ('{"results": [], "schema_version": "2.0.0"}', "schema_version"),
        ('{"results": [3], "schema_version": "1.0.0"}', r"results\[0\]: not an object"),
        ('{"results": [' + "9" * 5000 + "]}", "not JSON"),
        ("\udcff", "not JSON"),
    ],
)
def test_a_bad_file_is_one_line(text, names, tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(T4Error, match=names) as refused:
        read_t4(path)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(T4Error, match="cannot be read"):
        read_t4(tmp_path / "none.json")


def test_what_never_ends_is_refused_unopened(tmp_path):
    """Opening a FIFO waits for a writer, and a device may have no end."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/zero"), tmp_path):
        with pytest.raises(T4Error, match="no plain file"):
            read_t4(path)


def test_what_another_tuner_wrote_is_refused(tmp_path):
    parameters = {"block_size_x": [1]}
    zero = dict.fromkeys(
        ("compile_time", "benchmark_time", "framework_time", "strategy_time", "verification_time"),
        0,
    )
    results = [{"block_size_x": 1, "time": 1.0, **zero}]
    file_utils.store_output_file(str(tmp_path / "theirs.json"), results, parameters)
    with pytest.raises(T4Error, match="only Tilewright's own exports"):
        read_t4(tmp_path / "theirs.json")
