"""What a decision's words are to threads that ask at once."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.serve import decision
from tilewright.serve.decision import Decision


class Device:
    """Memory that is read once all threads that ask wait for it, or a moment has passed."""

    def __init__(self, threads: int) -> None:
        self._met = threading.Barrier(threads)
        self.reads = 0

    def wait(self) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            self._met.wait(0.2)

    def download(self, memory: object, words: np.ndarray) -> None:
        self.reads += 1
        words[:] = 7

    def free(self, memory: object) -> None:
        raise AssertionError("nobody looked")


def test_threads_that_ask_at_once_read_the_words_once() -> None:
    live, memory = Device(4), object()
    told = Decision()
    told.pending(live, memory, SimpleNamespace(wait=live.wait), SimpleNamespace())
    seen: list[np.ndarray | None] = []
    threads = [threading.Thread(target=lambda: seen.append(told.words())) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [words is not None and words.tolist() for words in seen] == [[7] * 8] * 4
    assert live.reads == 1
    assert decision._spare[live] == [memory]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda told: pickle.loads(pickle.dumps(told))])
def test_a_copy_of_a_decision_tells_the_same(again) -> None:
    told = Decision()
    told.fixed("ieee", "no tensor cores")
    assert again(told).as_dict() == told.as_dict()
    live = Device(1)
    told.pending(live, object(), SimpleNamespace(wait=live.wait), SimpleNamespace(reason=sum))
    words = again(told).words()
    assert words is not None
    assert words.tolist() == [7] * 8
