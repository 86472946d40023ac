"""What benchmarks of the choice draw, and how they sum it up; timing takes a GPU."""

from __future__ import annotations

from types import SimpleNamespace

from tilewright.bench.benchmarks import regret
from tilewright.bench.benchmarks.regret import drawn, loss_lines
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem


def test_losses_are_told_for_each_precision():
    pairs = [("s", 10.0, 10.0), ("s", 12.0, 10.0), ("s", 11.0, 10.0), ("d", 5.0, 10.0)]
    rows = [
        {"precision": letter, "kernels": 4, "chosen_us": chosen, "best_us": best}
        for letter, chosen, best in pairs
    ]
    assert loss_lines(rows, "best_us") == [
        ["s", 3, 4, "10.0 %", "10.0 %", "19.0 %", "20.0 %"],
        ["d", 1, 4, "-50.0 %", "-50.0 %", "-50.0 %", "-50.0 %"],
    ]


def test_problems_fit_the_memory_that_they_share():
    found = drawn(PRECISIONS["z"], 3, 200)
    assert len(found) == 200
    assert found == drawn(PRECISIONS["z"], 3, 200) != drawn(PRECISIONS["z"], 4, 200)
    sizes = [max(p.m * p.n, p.m * p.k, p.k * p.n) for p in found]
    assert 16 * max(sizes) <= 1 << 30
    assert {f"{p.trans_a}{p.trans_b}" for p in found} == {"NN", "NT", "TN", "TT"}


def test_the_chosen_kernel_is_timed_as_the_others_are(monkeypatch):
    """Those that are expected to be far slower are not timed, the chosen one always is."""

    def choice(name, ns):
        return SimpleNamespace(
            digest=lambda: name, ns=ns, kernel=SimpleNamespace(name=name), mode="plain",
            stencil="", config={},
        )  # fmt: skip

    all_of_them = [choice("a", 10.0), choice("b", 12.0), choice("far", 51.0), choice("c", 20.0)]
    monkeypatch.setattr(regret, "choose", lambda *_: choice("b", 10.0))
    monkeypatch.setattr(regret, "choices", lambda *_: iter(all_of_them))
    monkeypatch.setattr(regret, "Workload", lambda *_: SimpleNamespace(run=None))
    monkeypatch.setattr(regret, "partial", lambda _, loaded, *__: loaded)
    timed = []

    def medians(timers):
        timed.extend(timers)
        return [None, 3000, 2000]

    monkeypatch.setattr(regret, "interleaved_medians", medians)
    loaded = SimpleNamespace(of=lambda one: one.digest())
    row = regret._row(None, Problem(8, 8, 8, "s"), {}, loaded)
    assert timed == ["a", "b", "c"]
    assert (row["chosen_us"], row["best_us"], row["kernels"]) == (3.0, 2.0, 3)
    assert (row["chosen"], row["best"]) == ("b plain", "c plain")
