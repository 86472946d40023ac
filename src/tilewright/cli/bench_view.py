"""A sweep's tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.cli.output import emit_json, emit_lines, gigaflops, say

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.bench.peers import Peer

__all__ = ["show_list", "show_profiles", "show_summaries", "show_times"]


def show_times(live: LiveDevice, peers: Sequence[Peer], rows: list[dict[str, Any]]) -> None:
    """Print everybody's rates, ours first, and how ours compares."""
    from rich.table import Column

    heads: list[Any] = ["problem", "tilewright"]
    for one in peers:
        heads += [f"{one.name} {one.version}", Column("ours / it", justify="right")]
    limited = any("flops_per_second" in row.get("bound", {}) for row in rows)
    compared = any(row.get("errors") for row in rows)
    if compared:
        heads.append(Column("eta, in this order", justify="right"))
    if limited:
        heads.append(Column("of bound", justify="right"))
    heads.append("tuned on")
    lines = []
    for row in rows:
        if "error" in row:
            lines.append([row["problem"], f"failed: {row['error']}"])
            continue
        tuned = row["tuned_on"] or "(default)"
        cells = _rates(row["flops_per_second"], peers)
        cells += [_etas(row, peers)] if compared else []
        cells += [_of_bound(row)] if limited else []
        lines.append([row["problem"], *cells, tuned])
        if "with_transfers" in row:
            rates = _rates(row["with_transfers"]["flops_per_second"], peers)
            lines.append(["  with transfers", *rates])
    emit_lines(heads, lines, title=f"{live} ({live.platform.split(',')[0]})")
    for row in rows:
        for line in row.get("noise", ()):
            say(f"noisy, {row['problem']}: {line}")


def _etas(row: dict[str, Any], peers: Sequence[Peer]) -> str:
    """Return everybody's largest error, ours first."""
    found = [row["errors"].get(name) for name in ("tilewright", *(one.name for one in peers))]
    return " / ".join("-" if one is None else f"{one['eta']:.1e}" for one in found)


def _of_bound(row: dict[str, Any]) -> str:
    """Return our share of what the device can do, and the term that says so."""
    limit = row.get("bound", {})
    if "flops_per_second" not in limit:
        return "-"
    share = row["flops_per_second"]["tilewright"] / limit["flops_per_second"]
    return f"{share:.0%} ({limit['limiting']})"


def _rates(rates: dict[str, float], peers: Sequence[Peer]) -> list[str]:
    ours = rates["tilewright"]
    cells = [gigaflops(ours)]
    for one in peers:
        rate = rates.get(one.name)
        cells += [gigaflops(rate), f"{ours / rate:.3f}"] if rate else ["-", "-"]
    return cells


def show_summaries(peers: Sequence[Peer], rows: list[dict[str, Any]]) -> None:
    """Print what several products beside a peer come to."""
    from tilewright.bench.summary import SLOW, summary_of

    for one in peers:
        found = summary_of(rows, one.name)
        if found is None or found["products"] < 2:
            continue
        etas = found.get("eta_geometric_mean")
        say(
            f"{found['products']} products beside {one.name}: {found['geometric_mean']:.3f} times"
            f" as fast in the geometric mean, {found['least']:.3f} at the least, {found['slow']}"
            f" below {SLOW:g}"
            + (
                f"; errors (eta) {etas:.2f} of its, {found['eta_larger']} larger,"
                f" {found['eta_most']:.2f} at the most"
                if etas
                else ""
            )
        )


def show_list(*, json: bool) -> None:
    """Print every benchmark of the registry."""
    from tilewright.bench.registry import benchmark, names

    found = {name: benchmark(name) for name in names()}
    if json:
        facts = ("measures", "against", "takes", "options")
        emit_json({name: {f: getattr(one, f) for f in facts} for name, one in found.items()})
        return
    lines = [(name, one.measures, one.against, one.takes) for name, one in found.items()]
    emit_lines(("benchmark", "measures", "against", "takes"), lines)
    say("run one by its name; `tilewright bench NAME --help` has its options")


def show_profiles(rows: list[dict[str, Any]]) -> None:
    """Print a table of counters for each problem that has any."""
    for row in rows:
        libraries = row.get("profile", {}).get("libraries", {})
        counted = {name: one["kernels"] for name, one in libraries.items() if one.get("kernels")}
        if counted:
            _show_profile(row["problem"], counted)
        for name, one in libraries.items():
            if "error" in one:
                say(f"{row['problem']}, {name}: {one['error']}")


def _show_profile(problem: str, counted: dict[str, list[dict[str, Any]]]) -> None:
    """Print the counters of each library's longest kernel, side by side."""
    from tilewright.bench.counters import COUNTERS, stalls_that_count, told

    longest = [max(k, key=lambda one: one["counters"]["time_ns"] or 0) for k in counted.values()]
    names = [one["name"] for one in longest]
    lines = [("kernel", *(x if len(x) <= 48 else f"{x[:30]}...{x[-15:]}" for x in names))]
    several = [str(len(kernels)) for kernels in counted.values()]
    if any(count != "1" for count in several):
        lines.append(("kernels a product (the longest is shown)", *several))
    lines.append(("grid, block", *(f"{one['grid']}, {one['block']}" for one in longest)))
    lines += [(c.title, *(told(one["counters"][c.name]) for one in longest)) for c in COUNTERS]
    lines += [
        (f"stalled: {reason}, warps per issue", *(told(one["stalls"][reason]) for one in longest))
        for reason in stalls_that_count(longest)
    ]
    emit_lines((f"{problem}, counted", *counted), lines)
