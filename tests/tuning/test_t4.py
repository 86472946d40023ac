"""T4 files: others can read ours, ours come back whole, and bad ones change nothing."""

import json
import os
import tempfile
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuning.measurement_examples import example, few, measurements
from tilewright.space.config import Config
from tilewright.tuning.measurement import Status
from tilewright.tuning.t4 import (
    INVALIDITY,
    T4Error,
    read_t4,
    t4_results,
    write_t4,
)

file_utils = pytest.importorskip("kernel_tuner.file_utils")


def every_status():
    return [example(block=i, status=status) for i, status in enumerate(Status)]


# ------------------------------------------------------- what others make of ours


@few
@given(st.lists(measurements(), max_size=4))
def test_documents_meet_kernel_tuners_schema(drawn):
    version, schema = file_utils.output_file_schema("results")
    plain = json.loads(json.dumps(t4_results(drawn), allow_nan=False))
    jsonschema.validate(plain, schema)
    assert plain["schema_version"] == version


def test_every_status_has_an_invalidity_of_the_schema():
    _, schema = file_utils.output_file_schema("results")
    allowed = schema["properties"]["results"]["items"]["properties"]["invalidity"]["enum"]
    assert set(INVALIDITY) == set(Status)
    assert set(INVALIDITY.values()) <= set(allowed)
    correct = [e["correctness"] for e in t4_results(every_status())["results"]]
    assert correct == [1, 0, 0, 0, 0, 0, 0]


# ----------------------------------------------------------------- round trips


@few
@given(st.lists(measurements(), max_size=4))
def test_a_round_trip_loses_nothing(drawn):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "out.json"
        assert write_t4(path, drawn) == len(drawn)
        assert read_t4(path) == drawn


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
    document = t4_results([example()])
    del document["results"][0]["tilewright"]
    (tmp_path / "theirs.json").write_text(json.dumps(document))
    with pytest.raises(T4Error, match="only Tilewright's own exports"):
        read_t4(tmp_path / "theirs.json")
