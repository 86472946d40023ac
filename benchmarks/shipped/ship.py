r"""Make the tables that come with the package from committed results.

    python benchmarks/shipped/ship.py

Reads benchmarks/shipped/data/hopper_s.json, hopper_c.json, hopper_d.json and hopper_z.json (every
candidate's times, and the races) and double_double.json (what was timed of stencils that are
still the same); writes src/tilewright/library/shipped_tables/h100.json.  Kept are the winners
of races (of doubles those in turns of a second, sustained_d.json and sustained_z.json, where there
are any), and of each shape the best candidate: which shape is best depends on the size in
question, which of its other parameters are hardly does.  In single precision also the best of
each block and division of k: squares do not show what serves few tiles with long sums; and what
beat the choice at some shape of a run of ``shapes200.py --configs`` (BESIDE, if there is one).  Of
schedule_proof.json the rescheduled kernels that beat their twins come after them, with both times
of the same race; of schedule_fitted.json those that serve in the place of their twins whatever the
size.  What copies of operands cost is fitted to those of realigned.json.  The configs
of portfolio.json come with all their times, a row a config, and of those of other precisions what
counts.  A test compares the file.
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

from hopper.cases import variant_of
from hopper.portfolio_space import FAMILIES, what_counts

from tilewright.backend.cuda import proofs
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.hardware.catalogue import recognised
from tilewright.paths import write_atomically
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import stencil, stencils, unscheduled
from tilewright.stencil.schedule import SCHEDULE

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "data"
PROOF, FITTED = "schedule_proof.json", "schedule_fitted.json"
BESIDE = "shapes200_likely.json"
REALIGNED, REALIGNED_COMPLEX = "realigned.json", "realigned_c.json"
PORTFOLIOS = {"s": "portfolio.json"} | {letter: f"portfolio_{letter}.json" for letter in "dcz"}
LASTING = {"d": "sustained_d.json", "z": "sustained_z.json"}
TABLE = ROOT / "src" / "tilewright" / "library" / "shipped_tables" / "h100.json"
SCHEDULED_CODE = ROOT / "src" / "tilewright" / "backend" / "cuda" / "scheduled_code"
ARCH = "sm_90a"  # what hopper_s.py made its candidates for
SHAPE = (
    "block_m", "block_n", "tile_m", "tile_n", "warp_m", "warp_n", "warps_k", "resident", "split_k",
    "persistent", "stream_k",
)  # fmt: skip
# Launches that were not held took their host's share, below this size more than 1 % of their time.
LONG = 4096
# Since then `schedule_device.py` holds launches, too.
HELD_SINCE = "2026-11-22T12"
# Configs that two runs have to have in common, for their clocks to be compared.
IN_COMMON = 4
# Of a kernel's time, in the mean of its shapes: each has 17 KB of code, which a first call proves.
WORTH = 0.01
# Steps along k, up to which staged results win more than a rescheduled loop in nearly all kernels
# (`ns_staged` of FITTED: CGEMM's took 0.9 % more time without at 51 shapes, 2.5 % less at 147 of
# longer sums).
RESCHEDULED_K = 150
# Times the fastest; all candidates in double-double are bound by the same instructions, and near.
NEAR, NEAR_OF_PAIRS = 1.1, 1.03


def load(name):
    return json.loads((RESULTS / name).read_text())


def searched(log, trans):
    """Return the candidates of a case that passed their check: id to config and times.

    Without those of launches that were not held where the host's share shows: below `LONG`, of
    rows of earlier runs that do not say that theirs were.
    """
    found = {}
    for row in log:
        if row["kind"] == "tried" and row["trans"] == trans and not row["reason"]:
            held = "of" not in row or row["of"].get("held", False)
            times = {int(size): time for size, time in row["ns"].items()}
            ns = {size: time for size, time in times.items() if held or size >= LONG}
            if ns:
                one = Config(row["stencil"], row["config"])
                found.setdefault(row["id"], (one, {}))[1].update(ns)
    return found


def raced(log, trans):
    """Return what won the races of a case: id to sizes and median times.

    A race is of more runs than the search, and of other clocks: its times are not compared
    with the search's.
    """
    found = {}
    for row in log:
        if row["kind"] == "final" and row["trans"] == trans and "config" in row:
            won = found.setdefault(row["id"], {})
            won[row["size"]] = statistics.median(row["ns"]["tilewright"])
    return found


def lasting(letter, trans):
    """Return what won in turns of a second: size to id and median time.

    Of doubles, whose large products are at the power limit: in turns of single launches kernels
    share a clock there, so that one which takes less energy does not show it (sustained.py).
    """
    if letter not in LASTING:
        return {}
    found = {}
    for row in load(LASTING[letter])["rows"]:
        if row["trans"] == trans:
            times = [ns for turn in row["turns"]["tilewright"] for ns in turn["ns"]]
            found[row["size"]] = row["id"], statistics.median(times)
    return found


def winners(letter, log, trans):
    """Return what serves the sizes that were raced: id to sizes and times."""
    found = raced(log, trans)
    for size, (key, ns) in lasting(letter, trans).items():
        for sizes in found.values():
            sizes.pop(size, None)
        found.setdefault(key, {})[size] = ns
    return {key: sizes for key, sizes in found.items() if sizes}


def best_of_shapes(found):
    """Return, of each shape and size, the fastest candidate.

    Only of shapes that come near the best of all at that size: others never serve.
    """
    fastest, best = {}, {}
    for key, (config, ns) in found.items():
        shape = (config.stencil, *(config.get(name, 0) for name in SHAPE))
        for size, time in ns.items():
            fastest[size] = min(time, fastest.get(size, time))
            one = (time, key)
            best[shape, size] = min(best.get((shape, size), one), one)
    kept = {key for (_, size), (time, key) in best.items() if time <= NEAR * fastest[size]}
    return {key: found[key] for key in found if key in kept}


def best_divided(found):
    """Return, of each block with k divided in a cluster, the nearest to the best of its sizes.

    They serve where k is long beside few tiles, which squares do not show.
    """
    fastest, best = {}, {}
    for _, ns in found.values():
        for size, time in ns.items():
            fastest[size] = min(time, fastest.get(size, time))
    for key, (config, ns) in found.items():
        if config.get("split_k", 1) > 1:
            shape = tuple(config[name] for name in ("block_m", "block_n", "split_k"))
            slower = statistics.fmean(math.log(time / fastest[size]) for size, time in ns.items())
            one = (slower, key)
            best[shape] = min(best.get(shape, one), one)
    return {key: found[key] for _, key in best.values()}


def search_rows(letter, log):
    """Yield the winners of a search's races, and the best of each shape.

    Of rescheduled kernels these are their twins: how much faster they are themselves is said
    beside these alone (`rescheduled_rows`).
    """
    for trans in trans_of(log):
        found, won = searched(log, trans), winners(letter, log, trans)
        twins = {unscheduled(found[key][0]).id for key in won if key in found}
        found = {k: v for k, v in found.items() if unscheduled(v[0]) == v[0]}
        won = {key: won.get(key, {}) for key in {*won, *twins} & found.keys()}
        kept = best_of_shapes(found)
        if letter == "s":  # of others no cluster was timed at random shapes, so costs know none
            kept |= best_divided(found)
        for key, (config, ns) in found.items():
            if key in kept or key in won:
                at, best = square(ns), square(won.get(key, {}))
                made = row(letter, trans, config.stencil, dict(config), at, best)
                yield made if serves_anywhere(config, letter, trans) else made | {"anywhere": False}


def serves_anywhere(config, letter, trans):
    """Return whether a config can be fitted to odd sides, longer than its blocks and shorter."""
    family, device = stencil(config.stencil), architecture_spec(ARCH)
    space = family.space(variant_of(letter, trans), device)
    sides = ((4001, 4003, 4007), (1, 1, 1), (4001, 1, 4007), (1, 4003, 4007))
    problems = (Problem(*side, precision(letter), *trans) for side in sides)
    return all(unscheduled(family.fitted(config, problem)) in space for problem in problems)


def square(ns):
    return [[n, n, n, round(ns[n])] for n in sorted(ns)]


def beside_rows(rows):
    """Yield configs that beat a choice at some shape, but those that are there already."""
    if not (RESULTS / BESIDE).exists():
        return
    known = {(one["trans"], plain(one)) for one in rows if one["precision"] == "s"}
    made = load(BESIDE)
    held = "held" in made.get("environment", {}).get("method", "held")
    for one in (one for one in made.get("squares", []) if "ns" in one):
        ns = {size: time for size, time in one["ns"].items() if held or int(size) >= LONG}
        found = row("s", one["trans"], "simt_async", one["config"], square_of(ns))
        if (one["trans"], plain(found)) not in known:
            yield found


def square_of(ns):
    """Return times by size as they are in a file, whose keys are text."""
    return square({int(n): time for n, time in ns.items()})


def pairs_rows(document):
    """Yield the candidates in double-double with the sizes that each was timed on."""
    current = {s.name for s in stencils() if document.get("stencils", {}).get(s.name) == s.version}
    times = {}
    for one in document["rows"] + document.get("scan", []):
        for key, ns in one.get("ns", {}).items():
            times.setdefault((one["precision"], one["trans"], key), {})[one["n"]] = ns
    fastest = {}
    for (letter, trans, _), ns in times.items():
        for size, time in ns.items():
            at = (letter, trans, size)
            fastest[at] = min(time, fastest.get(at, time))
    for (letter, trans, key), ns in times.items():
        config = dict(document["configs"][key])
        name = config.pop("stencil")
        near = any(
            time <= NEAR_OF_PAIRS * fastest[letter, trans, size] for size, time in ns.items()
        )
        if name in current and near:
            yield row(letter, trans, name, config, square(ns))


def rescheduled_rows(proof):
    """Yield rescheduled kernels with the same bits that were faster than their twins at some size.

    Each carries its own and its twin's median of a race in turns, at the sizes where more than
    half of the rounds saved time, and its time in the races with cuBLAS that it won.  Only of
    levels that are proved: `gemm` serves no other.
    """
    known = {(one.stencil, one.precision, one.level) for one in proofs.proofs()}
    logs = {letter: load(f"hopper_{letter}.json")["log"] for letter in "sc"}
    won = {(x, trans): raced(log, trans) for x, log in logs.items() for trans in trans_of(log)}
    for one in proof["rows"]:
        if (one["stencil"], one["precision"], one["level"]) not in known:
            continue
        beside = []
        for size, (twin, mine) in (one.get("ns") or {}).items():
            saved = statistics.median(a - b for a, b in zip(twin, mine, strict=True))
            if one["status"] == "same" and saved > 0:
                n = int(size)
                beside.append([n, n, n, *(round(statistics.median(x)) for x in (mine, twin))])
        if beside:
            yield {name: one[name] for name in ("precision", "trans", "stencil", "config")} | {
                "raced": sorted(beside),
                "held": one.get("date", proof["environment"]["date"]) >= HELD_SINCE,
                "won": square(won[one["precision"], one["trans"]].get(one["id"], {})),
            }


def faster_rows(found):
    """Yield rescheduled kernels that saved time at random shapes, with both medians of each.

    Only of levels that are proved, as others.
    """
    known = {(one.stencil, one.precision, one.level) for one in proofs.proofs()}
    for one in found["rows"]:
        if (one["stencil"], one["precision"], one["level"]) in known and saves(one):
            yield {name: one[name] for name in ("precision", "trans", "stencil", "config")} | {
                "raced": [
                    [*map(int, size.split("x")), *(round(statistics.median(x)) for x in pair[::-1])]
                    for size, pair in one["ns"].items()
                ],
                **unstaged_from(one),
            }


def unstaged_from(one):
    """Return from which length of sums on a kernel serves in the place of a staged one, too."""
    long = {
        size: pair
        for size, pair in (one.get("ns_staged") or {}).items()
        if int(size.split("x")[2]) >= RESCHEDULED_K
    }
    return {"unstaged_from": RESCHEDULED_K} if long and saved_time(long) > 0 else {}


def saves(one):
    """Whether a rescheduled kernel has its twin's bits, and saves time worth its code."""
    return one["status"] == "same" and saved_time(one.get("ns") or {}) >= WORTH


def saved_time(times):
    """Return the share of a twin's time that rescheduled code saves, in the mean of shapes."""
    saved = [
        statistics.median((a - b) / a for a, b in zip(twin, mine, strict=True))
        for twin, mine in times.values()
    ]
    return statistics.mean(saved) if saved else 0.0


def trans_of(log):
    """Return the cases of a search."""
    return sorted({one["trans"] for one in log if one["kind"] == "tried"})


def add_twins(rows, rescheduled):
    """Give twins of rescheduled kernels the times of their races where the search has none.

    A search times the largest sizes of what is close to the best only, as few twins are.
    """
    known = {(one["precision"], one["trans"], plain(one)): one for one in rows}
    for one in rescheduled:
        key = (one["precision"], one["trans"], plain(one))
        if key not in known:
            known[key] = row(*key[:2], one["stencil"], dict(key[2]), [])
            rows.append(known[key])
        times = {tuple(at[:3]): at for at in known[key]["times"]}
        held = one.pop("held")
        long = [at for at in one["raced"] if held or at[0] >= LONG]
        for m, n, k, _, twin in long if times or long else one["raced"]:
            times.setdefault((m, n, k), [m, n, k, twin])
        known[key]["times"] = [times[size] for size in sorted(times)]


def copying(found):
    """Return what copies cost, and of which precisions products of copies were raced.

    It is the line through the medians with the least relative errors.
    """
    points = [(one["traffic"], statistics.median(one["ns"])) for one in found["copies"]]
    # Weighted by 1 / ns, so that those of small operands, which begin more, say what a begin costs.
    one, x, y, xx, xy = (
        sum(value(traffic, ns) / ns**2 for traffic, ns in points)
        for value in (
            lambda *_: 1, lambda x, _: x, lambda _, y: y, lambda x, _: x * x, lambda x, y: x * y
        )
    )  # fmt: skip
    slope = (one * xy - x * y) / (one * xx - x * x)
    raced = {one["precision"] for one in (*found["rows"], *load(REALIGNED_COMPLEX)["rows"])}
    return {
        "begin_ns": round((y - slope * x) / one), "bytes_per_ns": round(1 / slope, 1),
        "precisions": "".join(sorted(raced)),
    }  # fmt: skip


def portfolios(searched_rows):
    """Yield a precision's text: its stencil, and its portfolio's cases."""
    for letter, name in PORTFOLIOS.items():
        if (RESULTS / name).exists():
            cases = ",\n".join(portfolio_cases(letter, load(name), searched_rows))
            yield f' "{letter}": {{"stencil": "{FAMILIES[letter]}", "cases": {{\n{cases}\n }}}}'


def portfolio_cases(letter, found, searched_rows):
    """Yield a case's text: its shapes, and the compiler's own configs with a time of each.

    Times of two runs differ by some per cent, whatever ran: at squares they are brought to the
    search's by the configs that both have, so that each may be compared with either.  From `LONG`
    on they are left out: there races say who wins, at the clock that a second of each leaves.
    """
    known = {(one["trans"], plain(one)): one for one in searched_rows if one["precision"] == letter}
    for trans, configs in found["configs"].items():
        rows = [row for row in found["rows"] if row["trans"] == trans and not raced_at(row)]
        shapes = [[row[side] for side in "mnk"] for row in rows]
        same = [known.get((trans, Config(FAMILIES[letter], config))) for config in configs]
        factors = [shift(shape, row["ns"], same) for shape, row in zip(shapes, rows, strict=True)]
        times = [
            [None if x is None else round(x * factor) for x in row["ns"]]
            for row, factor in zip(rows, factors, strict=True)
        ]
        kept = [
            {"config": configs[at], "ns": [ns[at] for ns in times]}
            for at in served_of(letter, configs, [row["ns"] for row in rows])
        ]
        text = json.dumps(shapes, separators=(",", ":"))
        yield f' "{trans}": {{"shapes": {text}, "configs": [\n{lines(kept)}\n ]}}'


def served_of(letter, configs, ns):
    """Return which configs of a case come with the package: none that is rescheduled.

    Those of single precision were picked before they were timed; of others what counts is.
    """
    if letter == "s":
        return [at for at, config in enumerate(configs) if SCHEDULE not in config]
    return sorted(what_counts([Config(FAMILIES[letter], one) for one in configs], ns))


def raced_at(one):
    """Whether a shape is a square whose race has the last word."""
    return one["m"] == one["n"] == one["k"] >= LONG


def shift(shape, ns, same):
    """Return the median of the search's times over these at a shape; 1 where few are of both.

    Of two or three configs one may have had a bad launch, by a quarter of its time.
    """
    both = [
        (at[3], mine)
        for row, mine in zip(same, ns, strict=True)
        if row and mine
        for at in row["times"]
        if at[:3] == shape
    ]
    few = len(both) < IN_COMMON
    return 1.0 if few else statistics.median(one / mine for one, mine in both)


def plain(one):
    """Return a row's config as the compiler leaves it."""
    return unscheduled(Config(one["stencil"], one["config"]))


def row(letter, trans, name, config, times, won=()):
    return {
        "precision": letter,
        "trans": trans,
        "stencil": name,
        "config": config,
        "times": times,
        "won": won,
    }


def table():
    """Return the table of the H100 as text, a row a line."""
    searches = {letter: load(f"hopper_{letter}.json") for letter in "scdz"}
    search = searches["s"]
    device = search["device"]["name"]
    known = recognised(device)
    rows = [row for letter, one in searches.items() for row in search_rows(letter, one["log"])]
    rows += list(beside_rows(rows))
    rows += pairs_rows(load("double_double.json"))
    proof = load(PROOF)
    rescheduled = list(rescheduled_rows(proof))
    add_twins(rows, rescheduled)
    head = {
        "device": device,
        "compute_capability": architecture_spec(ARCH).compute_capability,
        "multiprocessors": round(known.needs("multiprocessors")),
        "stencils": {
            name: stencil(name).version for name in sorted({one["stencil"] for one in rows})
        },
        "measured": search["environment"]["date"],
        "commit": search["environment"]["commit"],
        "copying": copying(load(REALIGNED)),
    }
    text = json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n{lines(rows)}\n]'
    cases = ",\n".join(portfolios(rows))
    text += f',\n "portfolio": {{\n{cases}\n}}'
    text += f',\n "scheduler": {proof["scheduler"]}'
    text += f',\n "rescheduled": [\n{lines(rescheduled)}\n]'
    text += f',\n "faster": [\n{lines(faster_rows(load(FITTED)))}\n]'
    return f"{text}}}\n"


def lines(rows):
    return ",\n".join(json.dumps(one, separators=(",", ":")) for one in rows)


def main():
    TABLE.parent.mkdir(exist_ok=True)
    text = table()
    write_atomically(TABLE, text.encode())
    print(f"{TABLE.relative_to(ROOT)}: {len(json.loads(text)['rows'])} configs, {len(text)} bytes")


if __name__ == "__main__":
    main()
