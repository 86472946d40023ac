"""Live ranges in other registers: what exchanges is proved, what collides is found."""

from __future__ import annotations

import functools
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sass import nvdisasm
from tests.sass.compiled import cubin, kept
from tilewright.sass import Instruction, decode, differences, main_loop, patch, read_cubin
from tilewright.sass.banks import with_banks
from tilewright.sass.dependencies import RefusedError, blocks
from tilewright.sass.fetch import cycles, flagged, op_of
from tilewright.sass.rename import Renaming, registers_of
from tilewright.sass.reuse import settable
from tilewright.sass.webs import Webs, find_webs

Kernel = tuple[Instruction, ...]


@functools.cache
def kernel(name: str = "") -> Kernel:
    """Return a small SGEMM, or a kernel of the corpus compiled for sm_90a."""
    found = read_cubin(cubin(name, "sm_90a") if name else kept("sm_90a")).kernels[0]
    return decode(found.code, found.arch)


@functools.cache
def webs(name: str = "") -> Webs:
    return find_webs(kernel(name))


def renaming(name: str = "") -> Renaming:
    return Renaming(kernel(name), webs(name), registers_of(kernel(name)))


def shuffled(seed: int, tries: int = 400) -> Renaming:
    """Return exchanges at random, as many as nothing stands against."""
    made, draw = renaming(), random.Random(seed)
    zeros = sorted(made.webs.zeros)
    for _ in range(tries):
        web = draw.choice(zeros if zeros and draw.random() < 0.3 else range(len(webs().register)))
        if moves := made.exchange(web, draw.randrange(made.count)):
            made.take(moves)
    return made


# Live ranges.


def test_each_register_that_is_named_has_one_web_there() -> None:
    found = webs()
    for index, one in enumerate(kernel()):
        if not one.guard.never:
            assert found.reads[index].keys() == one.reads
            assert found.writes[index].keys() == set(one.dst)
            for register, web in (*found.reads[index].items(), *found.writes[index].items()):
                assert found.register[web] == register


def test_a_wide_operand_is_one_body_and_aligned() -> None:
    found = webs()
    for index, one in enumerate(kernel()):
        if one.mnemonic == "LDS" and one.access_bits == 128 and one.dst:
            bodies = {found.body[found.writes[index][r]] for r in one.dst}
            assert len(bodies) == 1
            assert found.align[bodies.pop()] == 4


def test_sums_and_their_successors_are_webs_of_their_own() -> None:
    """A sum's register before an FFMA and after it need not be the same one."""
    found = webs()
    index, one = next(
        (i, x) for i, x in enumerate(kernel()) if x.mnemonic == "FFMA" and x.dst[0] in x.reads
    )
    r = one.dst[0]
    assert found.reads[index][r] != found.writes[index][r] or found.reads[index][r] in {
        w for names in found.reads for w in names.values()
    }


def test_a_kernel_that_is_not_modelled_is_refused() -> None:
    with pytest.raises(RefusedError, match="is not modelled: no renaming"):
        find_webs(kernel("tensor"))


# Renaming.


def test_no_exchange_changes_nothing() -> None:
    assert renaming().instructions(90) == list(kernel())


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1 << 30))
def test_whatever_exchanges_is_proved_the_same(seed: int) -> None:
    made = shuffled(seed)
    assert made.renamed > 20
    assert differences(kernel(), made.instructions(90), 90) == []


def test_zeros_exchange_although_one_instruction_clears_two() -> None:
    made, draw = renaming(), random.Random(0)
    taken = 0
    for web in made.webs.zeros:
        for register in draw.sample(range(made.count), 20):
            moves = made.exchange(web, register)
            if moves and len({made.webs.body[w] for w in moves}) == len(moves) > 1:
                made.take(moves)
                taken += 1
                break
    if not made.webs.zeros:
        pytest.skip("this compiler clears sums one by one")
    assert taken
    assert differences(kernel(), made.instructions(90), 90) == []


def test_an_exchange_is_taken_back() -> None:
    made = renaming()
    moves = next(
        m
        for web in range(len(webs().register))
        for m in [made.exchange(web, webs().register[web] ^ 1)]
        if m
    )
    made.take(made.take(moves))
    assert made.renamed == 0


# Planted faults: renamings that collide.


def test_two_live_ranges_in_one_register_are_found() -> None:
    """Every web that a loop's FFMA adds to, put where another one lives at the same time."""
    found, draw = webs(), random.Random(1)
    loop = main_loop(kernel())
    assert loop is not None
    sums = [
        found.reads[i][one.srcs[2].value]
        for i, one in enumerate(kernel())
        if loop.start <= one.address <= loop.end and one.mnemonic == "FFMA" and one.srcs[2].width
    ]
    tried = 0
    for web in draw.sample(sorted(set(sums)), 12):
        others = [w for w in sums if w != web and found.live[w] & found.live[web]
                  and found.register[w] != found.register[web]]  # fmt: skip
        if not others or len(found.members[found.body[web]]) > 1:
            continue
        made = renaming()
        made.register[web] = found.register[draw.choice(others)]
        assert differences(kernel(), made.instructions(90), 90)
        tried += 1
    assert tried > 4


def test_a_read_that_was_forgotten_is_found() -> None:
    """A web moves, but one of its readers keeps the old register."""
    made = shuffled(7, 60)
    code = made.instructions(90)
    changed = [i for i, (x, y) in enumerate(zip(kernel(), code, strict=True)) if x.raw != y.raw]
    reads = [i for i in changed if kernel()[i].mnemonic == "FFMA"]
    found = 0
    for index in reads[:8]:
        faulty = list(code)
        faulty[index] = kernel()[index]
        found += bool(differences(kernel(), faulty, 90))
    assert found == len(reads[:8]) > 0


def test_a_wide_load_never_moves_half() -> None:
    made = renaming()
    quads = [b for b, m in made.webs.members.items() if made.webs.align[b] == 4]
    for body in quads:
        web = made.webs.members[body][1]
        assert made.exchange(web, made.register[web] + 1) is None
        assert made.exchange(web, made.register[web] + 2) is None


def test_what_was_never_written_stays() -> None:
    made = renaming()
    for body in made.webs.pinned:
        web = made.webs.members[body][0]
        assert made.exchange(web, (made.register[web] + 4) % made.count) is None


# The search.


def cost(code: list[Instruction] | Kernel) -> int:
    loop = main_loop(code)
    assert loop is not None
    ops = [op_of(one, settable(one)) for one in loop.instructions]
    return cycles(ops, flagged(ops))


@functools.cache
def banked(seed: int) -> tuple[Kernel, int]:
    loop = main_loop(kernel())
    assert loop is not None
    spans = [b for b in blocks(kernel()) if loop.start <= 16 * b.start <= loop.end]
    code, count = with_banks(kernel(), spans, 90, random.Random(seed), 1)
    return tuple(code), count


def test_banks_cost_no_more_and_are_proved() -> None:
    code, count = banked(0)
    assert cost(code) < cost(kernel()) or count == 0
    assert differences(kernel(), code, 90) == []


def test_the_same_seed_gives_the_same_registers() -> None:
    again = banked.__wrapped__(0)[0]
    assert [one.raw for one in again] == [one.raw for one in banked(0)[0]]


def test_nvdisasm_reads_a_renamed_kernel_as_the_decoder_does(tmp_path: Path) -> None:
    made = shuffled(3).instructions(90)
    data = patch(kept("sm_90a"), made)
    found = nvdisasm.listing(data, tmp_path)[read_cubin(data).kernel().name]
    for one in made:
        line = found.get(one.address)
        if line is not None and one.known:
            assert line.opcode.split(".")[0] == one.mnemonic
            assert line.written.get("GPR", set()) == {
                r for r in one.dst if r < line.shown.get("GPR", 0)
            }
            assert line.read.get("GPR", set()) == {
                r for r in one.reads if r < line.shown.get("GPR", 0)
            }
    # The kernel's own register count still covers every one that is named.
    assert registers_of(made) <= registers_of(kernel())
    done = subprocess.run(
        [nvdisasm.find(), "-c", str(tmp_path / "kernel.cubin")], capture_output=True
    )
    assert done.returncode == 0
