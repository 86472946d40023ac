"""The timeline: who does what when, and a file that Perfetto opens."""

from __future__ import annotations

import json
import threading
import time

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import timeline
from tilewright.timeline import span
from tilewright.timeline.chrome import on_host_clock, recording, trace_document
from tilewright.timeline.spans import DeviceSpan

# What Perfetto's JSON importer reads of Chrome's trace event format.
SCHEMA = {
    "type": "object",
    "required": ["traceEvents", "displayTimeUnit"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "ph", "ts", "pid", "tid"],
                "properties": {
                    "name": {"type": "string", "minLength": 1},
                    "ph": {"enum": ["X", "M"]},
                    "ts": {"type": "number"},
                    "dur": {"type": "number", "minimum": 0},
                    "pid": {"type": "integer"},
                    "tid": {"type": "integer"},
                    "args": {"type": "object"},
                },
                "if": {"properties": {"ph": {"const": "X"}}},
                "then": {"required": ["dur", "cat"]},
                "else": {"properties": {"name": {"enum": ["process_name", "thread_name"]}}},
            },
        },
    },
}


def events(path, phase="X"):
    document = json.loads(path.read_text())
    jsonschema.validate(document, SCHEMA)
    return [event for event in document["traceEvents"] if event["ph"] == phase]


def test_spans_of_threads_nest_and_are_written(tmp_path):
    path = tmp_path / "out.json"

    def work():
        with span("inner", {"size": 3, "odd": float("nan")}):
            time.sleep(0.001)

    with recording(path), span("outer"):
        thread = threading.Thread(target=work, name="helper")
        thread.start()
        thread.join()
        work()
    outer, *inner = sorted(events(path), key=lambda event: -event["dur"])
    assert outer["name"] == "outer"
    assert len(inner) == 2
    assert {event["tid"] for event in inner} > {outer["tid"]}
    for event in inner:
        assert event["name"] == "inner"
        assert event["args"] == {"size": 3, "odd": "nan"}
        assert outer["ts"] <= event["ts"]
        assert event["ts"] + event["dur"] <= outer["ts"] + outer["dur"]
    named = {event["args"]["name"] for event in events(path, "M")}
    assert named == {"tilewright", "MainThread", "helper"}


def test_nothing_is_recorded_unless_asked(tmp_path):
    with span("before"):
        timeline.device_span("gpu", "gemm", 0, 1)
    with recording(None) as nobody, span("unheard"):
        assert nobody is None
        assert not timeline.is_recording()
    with recording(tmp_path / "out.json") as recorder:
        assert timeline.is_recording()
    assert recorder.host == recorder.device == []
    assert timeline.drain() == {}


def test_exceptions_pass_and_what_was_recorded_is_kept(tmp_path):
    with pytest.raises(KeyError), span("off"):
        raise KeyError
    with pytest.raises(KeyError), recording(tmp_path / "out.json"), span("on"):
        raise KeyError
    assert [event["name"] for event in events(tmp_path / "out.json")] == ["on"]


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere" / "out.json"):
        with pytest.raises(ValueError, match="trace="), recording(path):
            pytest.fail("it ran")
    assert not timeline.is_recording()


def test_one_recording_at_a_time(tmp_path):
    with recording(tmp_path / "out.json"), pytest.raises(RuntimeError, match="already"):
        timeline.start()


def test_who_keeps_a_traced_function_is_told_when_to_make_it_anew(tmp_path):
    def launch():
        return 42

    told = []
    timeline.on_change(lambda: told.append(timeline.traced("launch", launch)))
    with recording(tmp_path / "out.json"):
        assert told[0]() == 42
    assert told[1] is launch
    assert [event["name"] for event in events(tmp_path / "out.json")] == ["launch"]


def test_spans_of_another_process_are_merged(tmp_path):
    recorder = timeline.start()
    with span("there"):
        timeline.device_span("gpu", "gemm", 0, 10)
    sent = json.loads(json.dumps(timeline.drain()))
    assert recorder.host == recorder.device == []
    timeline.stop()
    for rows in sent.values():
        for row in rows:
            row[row.index(recorder.pid)] = 99
    with recording(tmp_path / "out.json"):
        timeline.merge(sent)
    assert {event["pid"] for event in events(tmp_path / "out.json")} == {99}


def test_too_many_spans_are_counted(monkeypatch):
    monkeypatch.setattr("tilewright.timeline.spans.MOST_SPANS", 2)
    recorder = timeline.start()
    for _ in range(5):
        with span("one"):
            pass
    timeline.stop()
    assert len(recorder.host) == 2
    assert trace_document(recorder)["otherData"]["dropped"] == {"one": 3}


instants = st.integers(0, 1000)


@given(st.lists(st.tuples(instants, st.integers(0, 50)), min_size=1), st.integers(-1000, 1000))
def test_no_kernel_ends_after_the_host_saw_its_end(kernels, distance):
    track = [
        DeviceSpan("gpu", "gemm", end - 10, end, end + distance + late, 1, {})
        for end, late in kernels
    ]
    moved = on_host_clock(track)
    assert all(m.ended <= d.seen for m, d in zip(moved, track, strict=True))
    assert all(m.ended - m.begun == 10 for m in moved)
    assert any(m.ended == d.seen for m, d in zip(moved, track, strict=True))
