"""Tables of races with cuBLAS on an H100 and of the searches before them, in any precision.

Reads hopper_s.json, hopper_d.json, hopper_c.json, hopper_z.json, schedule_proof.json and
schedule_model.json of benchmarks/results/h100; `draw_hopper` puts what is drawn here into
docs/hopper.md, docs/dgemm.md and docs/scheduling.md.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path

import ship
from model_shares import AT_FIRST, PREDICTED, shares, within

RESULTS = Path(__file__).parent / "results"
CASES = {
    "s": ("NN", "NT", "TN", "TT"),
    "d": ("NN", "NT", "TN", "TT"),
    "c": ("NN", "NT", "NC", "TN", "TT", "TC", "CN", "CT", "CC"),
    "z": ("NN", "NT", "NC", "TN", "TT", "TC", "CN", "CT", "CC"),
}
# Operations of a multiply-add, of real and of complex elements.
OPERATIONS = {"s": 2, "d": 2, "c": 8, "z": 8}
# Multiply-adds of 132 multiprocessors with 128 lanes, at the clock that the profile has.
PEAK = 132 * 128 * 2 * 1.98e9
# Below this size clusters that split k win, and how blocks share a grid says nothing.
LARGE = 1024
# What was wanted of SGEMM at the size that rescheduling was timed at.
TERMS_AT, TERMS_WANTED = 4096, 1.11


def load(name):
    return json.loads((RESULTS / name).read_text())


def log_of(letter):
    return load(f"h100/hopper_{letter}.json")["log"]


def races(letter="s"):
    """Return the races of a search: case and size to the row."""
    return {(one["trans"], one["size"]): one for one in log_of(letter) if one["kind"] == "final"}


def sizes_of(letter):
    return sorted({size for _, size in races(letter)})


def markdown(head, rows):
    """Return the lines of a table: the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


# ---- Races ---------------------------------------------------------------------------------


def bars(letter):
    """Return what is wanted at each size in words, with the cases that are asked for more."""
    found, said = races(letter), {}
    for size in sizes_of(letter):
        wanted = {trans: found[trans, size]["wanted"] for trans in CASES[letter]}
        most = statistics.mode(wanted.values())
        if most is not None:
            more = [f"{trans} {bar}" for trans, bar in wanted.items() if bar != most]
            said[size] = "; ".join([str(most), *more])
    return said


def race_table(letter):
    """Return ours / cuBLAS and the ratio, a case a line; ratios that reach their bar are bold."""
    found, asked, rows = races(letter), bars(letter), []
    for trans in CASES[letter]:
        cells = []
        for size in sizes_of(letter):
            row = found[trans, size]
            ratio = f"{row['ratio']:.2f}"
            reached = row["wanted"] is not None and row["ratio"] >= row["wanted"]
            if reached:
                ratio = f"**{ratio}**"
            ours, theirs = row["tflops"]["tilewright"], row["tflops"]["cublas"]
            cells.append(f"{ours:.1f} / {theirs:.1f}, {ratio}")
        rows.append([trans, *cells])
    heads = [
        f"{size}" + (f" ({asked[size]})" if size in asked else "") for size in sizes_of(letter)
    ]
    return markdown([f"{letter.upper()}GEMM", *heads], rows)


def race_line(letter):
    """Return how many races were won, how many reached their bar, and who missed it."""
    found = races(letter)
    ratios = [row["ratio"] for row in found.values()]
    asked = [row for row in found.values() if row["wanted"] is not None]
    missed = [row for row in asked if row["ratio"] < row["wanted"]]
    text = (
        f"{letter.upper()}, from {min(size for _, size in found)} on: {min(ratios):.3f} to"
        f" {max(ratios):.3f} of cuBLAS's rate, ahead in"
        f" {sum(ratio > 1 for ratio in ratios)} of {len(ratios)} races; wanted is reached in"
        f" {len(asked) - len(missed)} of {len(asked)}."
    )
    if 0 < len(missed) <= 4:
        names = (
            f"{one['trans']} {one['size']} ({one['ratio']:.3f} of {one['wanted']})"
            for one in missed
        )
        text += f" Missed: {', '.join(names)}."
    return text


# ---- Turns of a second ---------------------------------------------------------------------


def sustained_table(letter):
    """Return races in turns of a second, with each one's clock and energy."""
    rows = []
    for row in load(f"h100/sustained_{letter}.json")["rows"]:
        cells = [f"{row['precision'].upper()} {row['trans']} {row['size']}"]
        for name, turns in row["turns"].items():
            rate = row["tflops"][name]
            clock, power = (
                statistics.median(one[what] for one in turns) for what in ("clock_hz", "power_w")
            )
            cells += [f"{rate:.1f}", f"{clock / 1e9:.2f}", f"{2 * power / rate:.1f}"]
        reached = row["wanted"] is not None and row["ratio"] >= row["wanted"]
        ratio = f"{row['ratio']:.3f}"
        rows.append([*cells, f"**{ratio}**" if reached else ratio, f"{row['wanted']}"])
    head = ["", "ours, TFLOP/s", "GHz", "pJ", "cuBLAS", "GHz", "pJ", "ratio", "wanted"]
    return markdown(head, rows)


def sustained_double():
    """Return what docs/dgemm.md shows of turns of a second."""
    return joined(sustained_table("z"), sustained_table("d"))


# ---- Searches ------------------------------------------------------------------------------


def way(config):
    """Return how a config's blocks divide the work: 0 one tile each, 1 they stay, 2 and share."""
    return config.get("persistent", 0) + bool(config.get("stream_k", 0))


def ways_table(letter):
    """Return the best rate of the search for each way to divide the work, by case and size."""
    best, log = {}, log_of(letter)
    for trans in CASES[letter]:
        for config, times in ship.searched(log, trans).values():
            for size, ns in times.items():
                at = (trans, size, way(config))
                best[at] = min(ns, best.get(at, ns))
    sizes = sorted({size for _, size, _ in best if size >= LARGE})
    rows = []
    for trans in CASES[letter]:
        cells = []
        for size in sizes:
            times = [best.get((trans, size, how)) for how in range(3)]
            cells.append(" / ".join(rate(letter, size, ns) for ns in times))
        rows.append([trans, *cells])
    return markdown([f"{letter.upper()}GEMM", *map(str, sizes)], rows)


def rate(letter, size, ns):
    return f"{OPERATIONS[letter] * size**3 / ns / 1e3:.1f}" if ns else "-"


def lengths_table(letter):
    """Return the rate of each race's winner in the search, and in the race."""
    found, log = races(letter), log_of(letter)
    tried = {trans: ship.searched(log, trans) for trans in CASES[letter]}
    sizes = [size for size in sizes_of(letter) if 2048 <= size <= 8192]
    rows = []
    for trans in CASES[letter]:
        cells = []
        for size in sizes:
            race = found[trans, size]
            _, times = tried[trans].get(race["id"], (None, {}))
            short = rate(letter, size, times.get(size))
            cells.append(f"{short} / {race['tflops']['tilewright']:.1f}")
        rows.append([trans, *cells])
    return markdown([f"{letter.upper()}GEMM", *map(str, sizes)], rows)


# ---- Terms ---------------------------------------------------------------------------------


def terms_table():
    """Return what holds SGEMM's winners at 4096, as shares of the peak, and what is wanted."""
    rows = []
    for trans, row in rescheduled().items():
        before, after = (row["predicted"][when] for when in ("before", "after"))
        pipe = before["terms"]["pipe"]
        plain, made = (statistics.median(times) for times in row["ns"][str(TERMS_AT)])
        cublas = races()[trans, TERMS_AT]["tflops"]["cublas"]
        shares = (
            pipe / before["terms"]["issue slots"],
            pipe / before["terms"]["register ports"],
            before["pipe_share"],
            of_peak(plain),
            after["pipe_share"],
            of_peak(made),
            TERMS_WANTED * cublas * 1e12 / PEAK,
        )
        rows.append([trans, *(f"{100 * share:.1f} %" for share in shares)])
    head = ["SGEMM 4096, of the peak", "issue slots", "register ports", "simulated", "measured",
            "rescheduled: simulated", "measured", f"{TERMS_WANTED} of cuBLAS"]  # fmt: skip
    return markdown(head, rows)


def of_peak(ns):
    return 2 * TERMS_AT**3 / (ns * 1e-9) / PEAK


def rescheduled():
    """Return what a device timed of each case's winner of SGEMM, rescheduled as it won."""
    timed = [
        row
        for row in load("h100/schedule_proof.json")["rows"]
        if row["precision"] == "s" and str(TERMS_AT) in row.get("ns", {})
    ]
    found = {}
    for trans in CASES["s"]:
        won = races()[trans, TERMS_AT]["config"]
        same = [row for row in timed if row["trans"] == trans and row["config"] == won]
        if same:
            found[trans] = same[0]
    return found


def saved(row):
    """Return the share of its twin's time that a kernel saved, by size: the median of rounds."""
    return {
        size: statistics.median((a - b) / a for a, b in zip(*pair, strict=True))
        for size, pair in row["ns"].items()
    }


def foretold(row):
    """Return the share of its cycles that a kernel's rescheduled loop is predicted to save."""
    before, after = (row["predicted"][when]["cycles"] for when in ("before", "after"))
    return 1 - after / before


def proof_table(ran):
    """Return the kernels that were timed as well: what was foretold and saved of each."""
    sizes = sorted({int(size) for row in ran for size in row["ns"]})
    rows = []
    for row in (row for row in ran if row["ns"]):
        before, after = (row["predicted"][when] for when in ("before", "after"))
        gains = saved(row)
        rows.append(
            [
                f"{row['precision']} {row['trans']} {shape(row['config'])}, `{row['level']}`",
                f"{100 * before['pipe_share']:.1f} to {100 * after['pipe_share']:.1f} %",
                f"{100 * foretold(row):.1f} %",
                *(f"{100 * gains[str(n)]:.1f} %" if str(n) in gains else "" for n in sizes),
            ]
        )
    head = ["kernel", "pipe, predicted", "cycles saved, predicted",
            *(f"time saved at {size}" for size in sizes)]  # fmt: skip
    return markdown(head, rows)


def compared_table(ran):
    """Return how much was compared of all kernels that ran, by precision, case and level."""
    groups = {}
    for row in ran:
        groups.setdefault((row["precision"], row["trans"], row["level"]), []).append(row)
    rows = [
        [
            f"{letter} {trans}, `{level}`",
            str(len(of)),
            spread([row["launches"] for row in of], "{:,}"),
            spread([row["elements"] for row in of], "{:,}"),
            spread([100 * foretold(row) for row in of], "{:.1f}", " %"),
        ]
        for (letter, trans, level), of in sorted(groups.items())
    ]
    head = ["", "kernels", "launches of each", "elements compared", "cycles saved, predicted"]
    return markdown(head, rows)


def spread(values, form, unit=""):
    """Return the least and the greatest of some numbers, or what all are."""
    ends = dict.fromkeys(form.format(one) for one in (min(values), max(values)))
    return " to ".join(ends) + unit


def shape(config):
    sides = ("block_m", "block_n", "block_k")
    return " x ".join(str(config[name]) for name in sides)


def proof():
    """Return what docs/scheduling.md shows of the run on a device."""
    document = load("h100/schedule_proof.json")
    device, day = document["device"], document["environment"]["date"][:10]
    count = Counter(row["status"] for row in document["rows"])
    line = (
        f"{device['device']}, NVRTC {document['toolkit']}, driver {device['driver']}, scheduler"
        f" {document['scheduler']}, {day}: of {sum(count.values())} kernels {count['same']} ran and"
        f" gave their twins' bits, {count['wrong']} gave others, {count['failed']} failed,"
        f" {count['refused']} were refused, {count['prepared']} were rescheduled but did not run,"
        f" {count['late']} were not come to."
    )
    ran = [row for row in document["rows"] if row["status"] == "same"]
    return joined([line], compared_table(ran), ["Those that were timed as well:"], proof_table(ran))


def model_table(rows):
    """Return predicted and counted shares of the FMA pipe, before and after rescheduling."""
    lines = []
    for row in rows:
        (was, counted), (now, counted_after) = shares(row)
        (first, _), (second, _) = shares(row, AT_FIRST)
        lines.append(
            [
                f"{row['trans']} {shape(row['config'])}, {row['config']['unroll_k']} steps",
                *(f"{one:.1f}" for one in (first, was, counted, second, now, counted_after)),
            ]
        )
    head = ["kernel, % of the FMA pipe in its loop"]
    for when in ("before", "after"):
        head += [f"{when}: predicted then", "predicted now", "counted"]
    return markdown(head, lines)


def model():
    """Return what docs/scheduling.md shows of the cycle model against Nsight Compute."""
    document = load("h100/schedule_model.json")
    rows = [row for row in document["rows"] if "counted" in row]
    now, then = (within(document["rows"], told) for told in (PREDICTED, AT_FIRST))
    line = (
        f"NVRTC {document['toolkit']}, {document['environment']['date'][:10]}, level"
        f" `{rows[0]['level']}`: within 3 points: {now[0]} before and {now[1]} after, of"
        f" {len(rows)}; as the model was when they were counted, {then[0]} and {then[1]}."
    )
    return joined([line], model_table(rows))


# ---- Parts of pages ------------------------------------------------------------------------

WAYS = (
    "Best rates of the search, TFLOP/s: blocks that compute one tile / blocks that stay / blocks"
    " that stay and share the last waves:"
)


def single():
    """Return what docs/hopper.md shows of SGEMM beside the races."""
    return joined([WAYS], ways_table("s"), ["What holds the winners:"], terms_table())


def complex_single():
    """Return what docs/hopper.md shows of CGEMM."""
    return joined([race_line("c")], race_table("c"), [WAYS], ways_table("c"))


def double():
    """Return what docs/dgemm.md shows of races and searches."""
    short = "Rates of the races' winners in TFLOP/s, 3 launches in the search / in the race:"
    return joined(
        ["TFLOP/s, ours / cuBLAS, ratio; in brackets what is wanted, bold what reaches it."],
        [race_line("d")], race_table("d"),
        [race_line("z")], race_table("z"),
        [WAYS], ways_table("d"),
        [short], lengths_table("d"), lengths_table("z"),
    )  # fmt: skip


def joined(*parts):
    return "\n\n".join("\n".join(part) for part in parts)
