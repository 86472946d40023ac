"""What a device's thread does while others' code runs in it, without a device."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from tilewright.serve.streamed.host import HostMatrix
from tilewright.serve.streamed.worker import Worker


class Others:
    """An array that reads its parts, with another device maybe."""

    shape, dtype = (4, 4), np.dtype("f4")

    def __getitem__(self, part):
        return np.zeros(self.shape, self.dtype)[part]


def test_a_context_stays_current_where_no_code_of_others_runs():
    entered = []

    @contextmanager
    def staying_current():
        entered.append(True)
        yield

    here, others = HostMatrix(np.zeros((4, 4), "f4")), HostMatrix(Others())
    transport = SimpleNamespace(live=SimpleNamespace(staying_current=staying_current))
    for c, expected in ((here, 1), (others, 0)):
        entered.clear()
        job = SimpleNamespace(a=here, b=here, c=c)
        with Worker.current(SimpleNamespace(_job=job, _transport=transport)):
            assert len(entered) == expected
