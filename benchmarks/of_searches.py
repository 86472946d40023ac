"""What committed searches of recorded spaces say, as `draw.py` puts it into pages."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from committed import ROOT, load, table
from tilewright.tuning.recorded import read_recordings

PEER = "kernel_tuner "
# The learned strategy's constants were chosen with the other spaces in view.
NEVER_LOOKED_AT = {
    "convolution_milo/A6000", "dedispersion_milo/A6000", "dedispersion_milo/W6600",
    "dedispersion_milo/W7800",
}  # fmt: skip
LOOKED_AT = {"gemm/RTX_3090"}

HUB, GEMM = "searches/hub", "searches/gemm"
DRAWS, TILINGS = "searches/h100", "searches/h100_tilings"


def _named(name: str) -> str:
    return f"Kernel Tuner, `{name.removeprefix(PEER)}`" if name.startswith(PEER) else f"`{name}`"


def _own(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["strategy"] == name]


def _whole(rows: list[dict[str, Any]]) -> list[str]:
    """Return the strategies that were run on every space."""
    spaces = {row["space"] for row in rows}
    names = dict.fromkeys(row["strategy"] for row in rows)
    return [name for name in names if len(_own(rows, name)) == len(spaces)]


def _after(rows: list[dict[str, Any]], tries: str) -> str:
    away = [x for row in rows for x in row["times_of_best"].get(tries, [])]
    return f"{statistics.median(away):.3f}" if away else ""


def scores() -> str:
    """Return the mean scores on the public spaces, the best first."""
    rows = load(HUB)["results"]
    lines = []
    for name in _whole(rows):
        own = _own(rows, name)
        parts = [
            statistics.mean(row["score"] for row in own if row["space"].startswith(kernel))
            for kernel in ("convolution", "dedispersion")
        ]
        parts.append(statistics.mean(x["score"] for x in own if x["space"] in NEVER_LOOKED_AT))
        clock = statistics.mean(row["score_over_seconds"] for row in own)
        lines.append(
            (statistics.mean(row["score"] for row in own), _named(name), own, parts, clock)
        )
    lines.sort(key=lambda line: -line[0])
    seeds = {row["seeds"] for name in _whole(rows) for row in _own(rows, name)}
    shown = table(
        ["strategy", "score", "convolution", "dedispersion", "four never looked at",
         "over seconds", "best after 50"],
        [
            [name, f"{mean:.2f}", *(f"{part:.2f}" for part in parts), f"{clock:.2f}",
             _after(own, "50")]
            for mean, name, own, parts, clock in lines
        ],
    )  # fmt: skip
    spaces = len({row["space"] for row in rows})
    runs = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
    return f"{spaces} spaces, {runs} runs of each.\n\n{shown}"


def gemm_spaces() -> str:
    """Return how far from the optimum searches of recorded GEMM spaces are."""
    lines = []
    for file, what in (
        (GEMM, "CLBlast's on three GPUs"), (DRAWS, "draws, H100"), (TILINGS, "tilings, H100"),
    ):  # fmt: skip
        rows = [row for row in load(file)["results"] if row["space"] not in LOOKED_AT]
        for name in _whole(rows):
            own = _own(rows, name)
            lines.append(
                [what, _named(name), *(_after(own, tries) for tries in ("10", "25", "50"))]
            )
    return table(["spaces", "strategy", "best after 10", "after 25", "after 50"], lines, 2)


def _of(space: str) -> str:
    """Return what a recorded space of ours is called in tables."""
    return f"{'tilings' if 'tilings' in space else 'draws'}, {space.split(' ', 1)[1]}"


def _median(counts: list[int | None]) -> str:
    """Return the median of counts of which some were never reached."""
    known = sorted(counts, key=lambda one: (one is None, one or 0))
    middle = known[len(known) // 2]
    return "-" if middle is None else str(middle)


def h100_spaces() -> str:
    """Return after how many candidates each strategy had 98 % of the optimum's speed."""
    rows = [row for file in (DRAWS, TILINGS) for row in load(file)["results"]]
    names = [name for name in _whole(rows) if name != "evolutionary"]
    spaces = list(dict.fromkeys(row["space"] for row in rows))
    lines = []
    for space in spaces:
        found = {row["strategy"]: row for row in rows if row["space"] == space}
        cells = [_median(found[name]["candidates_until"]["0.98"]) for name in names]
        points = str(next(iter(found.values()))["points"])
        lines.append([_of(space), points, *cells])
    heads = ["98 % of the optimum's speed after", "points", *(f"`{name}`" for name in names)]
    told = [
        _reached(rows, name, "0.98", "in a twentieth of the points", lambda row: row["points"] / 20)
        for name in names
    ]
    third = {row["space"]: int(_median(row["candidates_until"]["0.98"])) / 3
             for row in _own(rows, "random")}  # fmt: skip
    name = "learned with lessons"
    told.append(_reached(
        rows, name, "0.98", "in a third of the candidates of `random`",
        lambda row: third[row["space"]],
    ))  # fmt: skip
    told.append(_reached(rows, name, "0.99", "in 16 candidates", lambda row: 16))
    return table(heads, lines) + "\n\n" + " ".join(told)


def _reached(
    rows: list[dict[str, Any]], name: str, share: str, what: str, most: Callable[[Any], float]
) -> str:
    """Return on how many spaces a strategy's median run has a share of the speed in time."""
    own = _own(rows, name)
    told = [_median(row["candidates_until"][share]) for row in own]
    good = sum(x != "-" and int(x) <= most(row) for x, row in zip(told, own, strict=True))
    return f"`{name}` has {float(share):.0%} {what} on {good} of {len(own)}.".replace("%", " %")


def pruning() -> str:
    """Return how many of the ten fastest points thresholds keep, and a model."""
    parts = ("thresholds", "learned_as_many", "learned_tenth", "learned_apart_tenth")
    rows = load("searches/pruning")["results"]
    lines = [
        [_of(row["space"]), str(row["points"]),
         *(f"{row[part]['of_best']} of 10 in {row[part]['kept']}" for part in parts)]
        for row in rows
    ]  # fmt: skip
    shown = table(
        ["problem", "points", "thresholds", "learned, as many", "learned, a tenth",
         "a tenth, of configs unseen"], lines,
    )  # fmt: skip
    told = []
    for part, what in (
        ("thresholds", "The thresholds"), ("learned_tenth", "A learned tenth"),
        ("learned_apart_tenth", "A learned tenth of configs unseen"),
    ):  # fmt: skip
        pruned = [row for row in rows if row[part]["kept"] < row["points"]]
        kept = sum(row[part]["of_best"] for row in pruned)
        whole = sum(row[part]["of_best"] == 10 for row in pruned)
        least = min(row[part]["fastest_share"] for row in pruned)
        told.append(
            f"{what} keep{'s' * what.startswith('A')} {kept} of {10 * len(pruned)}, all ten on"
            f" {whole} of {len(pruned)} problems, and a point of at least {100 * least:.1f} %"
            " of the fastest's speed on all."
        )
    told += [_lost(rows), _crowd({row["space"] for row in rows})]
    return shown + "\n\n" + " ".join(told)


def _lost(rows: list[dict[str, Any]]) -> str:
    """Return how fast those are that a learned tenth loses, and what would keep all ten."""
    tenths = [(row["learned_tenth"], row["points"]) for row in rows]
    lost = [share for tenth, _ in tenths for share in tenth["lost_shares"]]
    within = sorted(tenth["all_best_in"] / points for tenth, points in tenths)
    return (
        f"The {len(lost)} that a learned tenth loses have {100 * min(lost):.0f} to"
        f" {100 * max(lost):.0f} % of the fastest's speed. All ten are among the first"
        f" {100 * statistics.median(within):.1f} % that the model ranks in the median over"
        f" problems, and among the first {100 * within[-1]:.0f} % on all. Of the half of the"
        f" problems that models were chosen by {_whole_tenths(rows, 0)} keep all ten, of the other"
        f" half {_whole_tenths(rows, 1)}."
    )


def _whole_tenths(rows: list[dict[str, Any]], half: int) -> int:
    """Return how many of every other problem, in turns from case to case, keep all ten."""
    own = (row for at, row in enumerate(rows) if (at + at // 4) % 2 == half)
    return sum(row["learned_tenth"]["of_best"] == 10 for row in own)


def _crowd(spaces: set[str]) -> str:
    """Return how close to each other the best tilings are."""
    slower, many = [], []
    for path in sorted((ROOT / "benchmarks/spaces/h100").glob("*_tilings.json.gz")):
        for times in (one.seconds for one in read_recordings(path) if one.name in spaces):
            fastest, tenth = np.sort(times)[[0, 9]]
            slower.append(tenth / fastest - 1)
            many.append(int(np.sum((times > tenth) & (times < 1.01 * tenth))))
    return (
        f"Of tilings the tenth takes {100 * statistics.median(slower):.1f} % longer than the"
        f" fastest, in the median over problems, and {statistics.median(many):.0f} more take less"
        " than 1 % longer than it."
    )


def shortlist() -> str:
    """Return how far the best of some configs is from the best of those that ship."""
    (case,) = load("searches/shortlist")["cases"].values()
    lines = []
    for names, what in (
        (("starts",), "what the stencil begins with"),
        (("short",), "what the static model lists"), (("starts", "short"), "both"),
    ):  # fmt: skip
        able = sorted({at for name in names for at in case["sets"][name]})
        ratios = [
            min(row[at] for at in able if row[at])
            / min(row[at] for at in case["sets"]["shipped"] if row[at])
            for row in case["ns"]
        ]
        means = statistics.geometric_mean(ratios), statistics.median(ratios), max(ratios)
        lines.append([what, str(len(able)), *(f"{mean:.3f}" for mean in means)])
    heads = ["time of the best, as a multiple of the best that ships", "configs",
             "geometric mean", "median", "most"]  # fmt: skip
    told = f"SGEMM NN by `simt_async` on an H100, {len(case['shapes'])} shapes of every kind."
    return f"{told}\n\n{table(heads, lines)}"


def adopted() -> str:
    """Return what a portfolio adopted from nothing takes beside the one that ships."""
    told = load("h100/adopted")
    lines = []
    for letter, (what, timed, least_us) in itertools.product(
        dict.fromkeys(row["precision"] for row in told["results"]),
        (("single launches", "us", 0), ("of these the shipped kernel takes over 100 us", "us", 100),
         ("launches back to back", "burst_us", 0)),
    ):  # fmt: skip
        ratios = [
            row[f"chosen_{timed}"] / row[f"shipped_{timed}"] for row in told["results"]
            if row["precision"] == letter
            and row.get(f"chosen_{timed}") and row[f"shipped_{timed}"] > least_us
        ]  # fmt: skip
        if not ratios:  # the file has single launches alone
            continue
        means = statistics.geometric_mean(ratios), statistics.median(ratios), max(ratios)
        over = sum(one > 1.1 for one in ratios)
        name = "bfloat16" if letter == "bf16" else f"{letter.upper()}GEMM"
        shown = (f"{mean:.3f}" for mean in means)
        lines.append([f"{name}, {what}", str(len(ratios)), *shown, str(over)])
    heads = ["random shapes", "", "geometric mean of its time / the shipped one's", "median",
             "most", "above 1.1"]  # fmt: skip
    about = f"{told['device']}, {told['seconds']:.0f} s a precision, {told['date'][:10]};"
    about += f" {told['besides']}."
    return f"{about}\n\n{table(heads, lines)}"


def scaling() -> str:
    """Return how busy a cluster's scheduler keeps its workers."""
    document = load("searches/cluster")
    lines = [
        [str(row["workers"]), f"{row['candidates'] / row['seconds']:.1f}", f"{row['busy']:.2f}"]
        for row in document["results"]
    ]
    told = f"Dask {document['dask']}, candidates of {document['seconds_of_a_candidate']} s:"
    return f"{told}\n\n{table(['workers', 'candidates a second', 'share busy'], lines)}"
