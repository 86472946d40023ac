"""Measurements for tests: one plain one, and a strategy that draws any that there can be."""

from dataclasses import replace
from datetime import UTC

from hypothesis import settings
from hypothesis import strategies as st

from tilewright.precision import PRECISIONS
from tilewright.problem import Problem, Trans
from tilewright.space.config import Config
from tilewright.tuning.measurement import Measurement, Stage, Status

INT64_MAX = 2**63 - 1

# Drawing takes as long as the machine's other work lets it.
few = settings(max_examples=40)


def example(block=64, size=512, status="ok", times=(3000, 1000, 2000), **changes):
    """Return a measurement; changes are fields of `Measurement`."""
    plain = Measurement(
        config=Config("portable", {"block_m": block, "block_n": 32, "order": "rows"}),
        problem=Problem(size, size, size, "s", "N", "T"),
        device="a1b2c3d4e5f6",
        device_name="Tiny GPU",
        backend="opencl",
        stencil_version=1,
        status=status,
        reason="" if status == "ok" else f"{status}: because",
        times_ns=times if status == "ok" else (),
        environment={"driver": "1.2", "python": "3.11", "cache": "warm"},
        created="2026-11-20T10:00:00+00:00",
    )
    return replace(plain, **changes)


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,20}", fullmatch=True)
words = st.from_regex(r"[A-Za-z0-9_.+-]{0,20}", fullmatch=True)
labels = st.text(
    st.characters(exclude_categories=["C", "Z"]) | st.just(" "), min_size=1, max_size=40
)
sizes = st.one_of(st.integers(0, 300), st.integers(0, INT64_MAX // 2))
numbers = st.integers(-INT64_MAX, INT64_MAX)
letters = st.sampled_from(list(Trans))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
facts = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def problems(draw):
    precision = draw(st.sampled_from(list(PRECISIONS)))
    m, n, k = draw(sizes), draw(sizes), draw(sizes)
    tight = Problem(m, n, k, precision, draw(letters), draw(letters))
    padding = st.integers(0, 9)
    return replace(
        tight,
        lda=tight.lda + draw(padding),
        ldb=tight.ldb + draw(padding),
        ldc=tight.ldc + draw(padding),
    )


@st.composite
def measurements(draw):
    status = draw(st.sampled_from(Status))
    return Measurement(
        config=Config(draw(names), draw(st.dictionaries(names, words | numbers, max_size=5))),
        problem=draw(problems()),
        device=draw(labels),
        device_name=draw(labels),
        backend=draw(names),
        stencil_version=draw(st.integers(1, INT64_MAX)),
        status=status,
        stage=draw(st.sampled_from(Stage)),
        reason=draw(st.text(max_size=50)),
        detail=draw(st.text(max_size=200)),
        times_ns=tuple(
            draw(st.lists(st.integers(1, INT64_MAX), min_size=int(status is Status.OK), max_size=5))
        ),
        error=draw(st.none() | st.floats(min_value=0) | st.just(float("nan"))),
        environment=draw(st.dictionaries(texts, facts, max_size=3)),
        compile_seconds=draw(st.none() | st.floats(0, 1e6)),
        created=draw(st.datetimes(timezones=st.just(UTC))).isoformat(),
    )
