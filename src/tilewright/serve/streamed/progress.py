"""How far products of matrices in the host's memory are, told to whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["tell", "told"]

_observer: ContextVar[Callable[[int, int], None] | None] = ContextVar("observer", default=None)


@contextmanager
def told(observer: Callable[[int, int], None]) -> Iterator[None]:
    """Let an observer be told of the calls within a ``with`` block: tiles of C computed, and all.

    It is called in the caller's thread, between two tiles.
    """
    before = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(before)


def tell(done: int, of: int) -> None:
    """Tell the observer, if there is one."""
    observer = _observer.get()
    if observer is not None:
        observer(done, of)
