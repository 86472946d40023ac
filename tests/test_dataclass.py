"""Our decorator makes what the standard library's makes of the same class."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, field
from functools import cached_property
from typing import Any, ClassVar

import pytest

from tilewright.dataclass import dataclass
from tilewright.precision import precision
from tilewright.problem import Problem


def made_by(decorator: Any) -> Any:
    """Return a class with a field of every kind, and one that extends it."""

    @decorator(frozen=True)
    class Base:
        """A class."""

        shared: ClassVar[int] = 7
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        unseen: float = field(default=0.5, compare=False, repr=False)
        worked_out: int = field(init=False)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError(f"a={self.a} is negative")
            object.__setattr__(self, "worked_out", 2 * self.a)

        @cached_property
        def slow(self) -> int:
            return self.a + 1

    @decorator(frozen=True)
    class Extended(Base):
        """One more."""

        d: tuple[int, ...] = ()
        e: int = field(kw_only=True)

    return Base, Extended


OURS, THEIRS = made_by(dataclass), made_by(dataclasses.dataclass)
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}), ((1, "x"), {}), ((1,), {"c": [2]}), ((1, "x", [2], 0.25), {}), ((), {"a": 3}),
    ((), {"b": "y", "a": 3}), ((1,), {"unseen": 2.0}),
]  # fmt: skip
WRONG: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((1, "x", [2], 0.25, 9), {}), ((1,), {"a": 2}), ((1,), {"other": 2}),
    ((1,), {"worked_out": 2}), ((), {"b": "y"}), ((), {"other": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "named"), CALLS)
def test_instances_have_the_same_fields_and_texts(given: Any, named: Any) -> None:
    ours, theirs = OURS[0](*given, **named), THEIRS[0](*given, **named)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert dataclasses.astuple(ours) == dataclasses.astuple(theirs)
    assert repr(ours) == repr(theirs)
    assert ours.slow == theirs.slow
    again = dataclasses.replace(ours, a=5)
    assert (again.a, again.worked_out, again.b) == (5, 10, ours.b)
    assert copy.copy(ours) == ours == copy.deepcopy(ours)


@pytest.mark.parametrize(("given", "named"), WRONG)
@pytest.mark.parametrize("classes", [OURS, THEIRS], ids=["ours", "theirs"])
def test_wrong_arguments_are_refused(classes: Any, given: Any, named: Any) -> None:
    with pytest.raises(TypeError, match="Base"):
        classes[0](*given, **named)


@pytest.mark.parametrize("classes", [OURS, THEIRS], ids=["ours", "theirs"])
def test_instances_compare_by_their_fields(classes: Any) -> None:
    base, extended = classes
    assert base(1, unseen=1.0) == base(1, unseen=2.0)
    assert base(1) != base(2)
    assert base(1) != (1, "b", [], 2)
    assert extended(1, e=2) != base(1), "another class"
    assert hash(base(1, c=())) == hash(base(1, c=(), unseen=2.0))
    assert extended(1, e=2) != extended(1, e=3)
    with pytest.raises(ValueError, match="a=-1 is negative"):
        base(-1)


@pytest.mark.parametrize("classes", [OURS, THEIRS], ids=["ours", "theirs"])
def test_instances_stay_as_they_are(classes: Any) -> None:
    one = classes[1](1, e=2)
    assert classes[0](1).c is not classes[0](1).c
    for name in ("a", "d", "other"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(one, name, 3)
        with pytest.raises(FrozenInstanceError, match=name):
            delattr(one, name)
    extended = classes[1]
    match one:
        case extended(a, b):
            assert (a, b) == (1, "b")


def test_signatures_are_shown() -> None:
    for ours, theirs in zip(OURS, THEIRS, strict=True):
        shown, wanted = (inspect.signature(one).parameters.values() for one in (ours, theirs))
        assert [(x.name, x.kind) for x in shown] == [(x.name, x.kind) for x in wanted]
    assert str(inspect.signature(Problem)).startswith("(m, n, k, precision=")


def test_a_class_keeps_what_it_defines_itself() -> None:
    @dataclass(frozen=True, eq=False)
    class Plain:
        a: int

        def __repr__(self) -> str:
            return "plain"

    one = Plain(1)
    assert repr(one) == "plain"
    assert one != Plain(1)
    assert len({one, Plain(1)}) == 2


def test_products_classes_are_pickled() -> None:
    problem = Problem(2, 3, 4, precision("d"))
    assert pickle.loads(pickle.dumps(problem)) == problem


def test_what_a_first_call_imports_is_quick_to_define() -> None:
    """A class of the standard library's decorator takes ten times as long."""
    code = (
        "import sys\nfrom tilewright.serve.arrays import device\n"
        "from tilewright.serve.routes.split import serve\n"
        "from tilewright.serve.narrow import serve\n"
        "print(sorted({f'{one.__module__}.{one.__qualname__}' for name, module"
        " in list(sys.modules.items()) if name.startswith('tilewright') for one in"
        " vars(module).values() if isinstance(one, type)"
        " and getattr(vars(one).get('__dataclass_params__'), 'frozen', False)}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
