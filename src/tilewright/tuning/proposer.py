"""A strategy that thinks while processes work.

::

    runner      | takes a proposal, asks for the next | hears of times ... | takes a proposal
    strategy                           | fits a model, proposes ...        |
    devices     | times | times | times | times ...

To fit a model of what was tried takes up to a second, in which the runner would leave devices
idle.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import Future, ThreadPoolExecutor

from tilewright.space import Config
from tilewright.tuning.strategies import Strategy

__all__ = ["Proposer"]


class Proposer:
    """A strategy in a thread of its own; it is told and asked things in the order of the calls.

    Parameters
    ----------
    strategy : Strategy
        Proposes and learns.
    waits : bool
        Whether who asks waits for the answer: where its thread would disturb what is timed.
    """

    def __init__(self, strategy: Strategy, *, waits: bool) -> None:
        self._strategy, self._waits = strategy, waits
        self._thread = ThreadPoolExecutor(1, "tilewright-strategy")
        self._proposal: Future[Config | None] | None = None
        self._told = False  # a time since it was asked
        self._error: BaseException | None = None
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)

    def __enter__(self) -> Proposer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)
        os.close(self._readable)
        os.close(self._writable)
        if kind is None and self._error is not None:  # and nobody asked since
            raise self._error

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a proposal is there."""
        return self._readable

    @property
    def is_asked(self) -> bool:
        """Whether a proposal was asked for that nobody has taken."""
        return self._proposal is not None

    def propose(self) -> Config | None:
        """Return a proposal; None if there is none, or none yet, and then `is_asked`."""
        if self._waits:
            return self._strategy.propose()
        if self._proposal is None:
            self._ask()
        assert self._proposal is not None
        if not self._proposal.done():
            return None
        found, self._proposal = self._proposal.result(), None
        if found is None and self._told:  # which may give it something to propose
            self._ask()
        return found

    def _ask(self) -> None:
        self._told = False
        self._proposal = self._thread.submit(self._think)
        self._proposal.add_done_callback(lambda _: os.write(self._writable, b"."))

    def _think(self) -> Config | None:
        if self._error is not None:
            raise self._error
        return self._strategy.propose()

    def observe(self, config: Config, seconds: float | None) -> None:
        """Let it learn a time."""
        if self._waits:
            self._strategy.observe(config, seconds)
        else:
            self._told = True
            self._thread.submit(self._learn, config, seconds)

    def _learn(self, config: Config, seconds: float | None) -> None:
        try:
            self._strategy.observe(config, seconds)
        except BaseException as error:  # raised where it is asked next
            self._error = error

    def hear(self) -> None:
        """Take the word that a proposal is there from the descriptor."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._readable, 1 << 10)
