"""How far products of matrices in the host's memory are, told to whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from tilewright.serve.streamed.tiling import Place, Tiling

__all__ = ["said_of", "tell", "told"]

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


def said_of(done: Sequence[Place], tiling: Tiling) -> str:
    """Return which tiles of C are whole, for people."""
    count, every = len(done), len(tiling.places())
    places = ", ".join(
        f"[{a}:{b}, {c}:{d}]"
        for (a, b), (c, d) in ((tiling.m[i], tiling.n[j]) for i, j in done[:64])
    )
    named = f" ({places}{', ...' if count > 64 else ''})" if count else ""
    return f"{count} of {every} tiles of c are computed{named}, the others not, or in part"
