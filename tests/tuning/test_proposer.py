"""A strategy that thinks in a thread of its own."""

from __future__ import annotations

import select
import threading

import pytest

from tilewright.space import Config
from tilewright.tuning.proposer import Proposer

ONE, OTHER = (Config("family", {"x": x}) for x in (1, 2))


class Slow:
    """Proposes what it was told last, once it is let."""

    def __init__(self):
        self.let, self.known = threading.Event(), []

    def propose(self):
        assert self.let.wait(10)
        return self.known[-1] if self.known else None

    def observe(self, config, seconds):
        if seconds is None:
            raise ValueError("no time")
        self.known.append(config)


def proposed(proposer):
    found = proposer.propose()
    while proposer.is_asked:
        select.select([proposer], [], [], 10)
        proposer.hear()
        found = proposer.propose()
    return found


def test_who_asks_does_not_wait_and_hears_of_the_answer():
    slow = Slow()
    with Proposer(slow, waits=False) as proposer:
        proposer.observe(ONE, 1.0)
        assert proposer.propose() is None
        assert proposer.is_asked
        proposer.observe(OTHER, 1.0)  # after what was asked before
        assert not select.select([proposer], [], [], 0)[0]
        slow.let.set()
        assert proposed(proposer) == ONE
        assert proposed(proposer) == OTHER


def failing(ask):
    slow = Slow()
    slow.let.set()
    with Proposer(slow, waits=False) as proposer:
        proposer.observe(ONE, None)
        ask(proposer)


def test_what_fails_is_raised_where_it_is_asked_next():
    with pytest.raises(ValueError, match="no time"):
        failing(proposed)


def test_what_fails_is_raised_at_the_end_where_nobody_takes_an_answer():
    def ask(proposer):
        proposer.propose()
        select.select([proposer], [], [], 10)

    with pytest.raises(ValueError, match="no time"):
        failing(ask)


def test_nothing_to_propose_is_asked_again_where_a_time_was_told_meanwhile():
    slow = Slow()
    with Proposer(slow, waits=False) as proposer:
        assert proposer.propose() is None
        proposer.observe(ONE, 1.0)
        slow.let.set()
        assert proposed(proposer) == ONE


def test_who_waits_is_answered_at_once():
    slow = Slow()
    slow.let.set()
    with Proposer(slow, waits=True) as proposer:
        proposer.observe(ONE, 1.0)
        assert proposer.propose() == ONE
