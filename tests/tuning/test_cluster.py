"""Candidates on a Dask cluster: rows stream into one store, lost workers lose little."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from types import SimpleNamespace

import pytest

import tests.tuning.faulty
from tests.tuning.test_faults import EXPECTED, LIMITS, MODULES, PROBLEM, ROOT
from tilewright.backend import device
from tilewright.portfolio.find import own
from tilewright.portfolio.tuned import tune
from tilewright.tuning.cluster import Cluster, RemoteDevice
from tilewright.tuning.measurement import Stage
from tilewright.tuning.store import Store

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

OPTIONS = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}


@pytest.fixture
def cluster(monkeypatch):
    """Two workers on this machine, which can import the faulty stencil."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    with distributed.LocalCluster(processes=True, silence_logs=50, **OPTIONS) as made:
        yield made


def test_lost_workers_cost_what_they_had_in_hand(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(tests.tuning.faulty.Faulty, "faults", (0, 1, 3))
    monkeypatch.setattr(tests.tuning.faulty.Faulty, "speeds", (1, *range(16, 20)))
    draw, seen, killed = random.Random(0), {}, [0]

    def observe(now) -> None:
        seen.update(now.places)
        nanny = draw.choice(list(cluster.workers.values()))
        if now.tried >= killed[-1] + 5 and nanny.pid is not None:
            os.kill(nanny.pid, signal.SIGKILL)
            killed.append(now.tried)

    with Store(tmp_path / "store.sqlite") as store:
        found = tune(
            PROBLEM, "opencl", budget=200, strategy="exhaustive", stencil="faulty",
            limits=LIMITS, modules=MODULES, store=store, cluster=cluster.scheduler_address,
            observer=observe,
        )  # fmt: skip
        rows = list(store.query(stage=Stage.SCREEN))
    assert len(killed) > 2
    assert len({m.config for m in rows}) == len(rows) == found.tried == 15
    assert all(m.status == EXPECTED[m.config.integer("fault")] for m in rows)
    assert (found.winner.config["fault"], found.winner.config["rounds"]) == (0, 1)
    assert sum(seen.values()) == 15
    assert len(seen) >= 2
    served = own(device("opencl").portfolio_key, "s")  # kept where the workers are
    assert served is not None


def test_workers_with_another_device_get_nothing(monkeypatch):
    def told(fingerprint: str) -> SimpleNamespace:
        of = dict.fromkeys(RemoteDevice.__dataclass_fields__, "")
        row = {
            **of,
            "fingerprint": fingerprint,
            "spec": SimpleNamespace(name=f"model {fingerprint}"),
        }
        return SimpleNamespace(status="finished", result=lambda timeout: row, done=lambda: True)

    client = SimpleNamespace(
        nthreads=lambda: {"tcp://one:1": 4, "tcp://two:2": 4, "tcp://three:3": 2},
        submit=lambda *_, workers, **__: told("b" if "two" in workers[0] else "a"),
    )
    joined = Cluster(client, None, "s")
    kind = joined.live.fingerprint
    joined.look()
    assert {one.name for one in joined.workers.values()} == (
        {"one:1", "three:3"} if kind == "a" else {"two:2"}
    )
    assert joined.others == Counter(
        {f"model {'b' if kind == 'a' else 'a'}": 1 if kind == "a" else 2}
    )
    client.nthreads = dict
    assert len(joined.look()) == (2 if kind == "a" else 1)
    assert joined.workers == {}


def test_what_is_no_cluster_is_refused():
    hasty = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with hasty, pytest.raises(ValueError, match=r"cluster='tcp://127\.0\.0\.1:1' does not answer"):
        tune(PROBLEM, budget=5, cluster="tcp://127.0.0.1:1")
    for none in ("", "head", "head:port", "zz://head:1"):
        with pytest.raises(ValueError, match=r"is no address .*; write it like tcp://HOST:8786"):
            tune(PROBLEM, budget=5, cluster=none)
