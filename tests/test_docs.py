"""The documentation is true: every command and every example in it runs, in order, page by page.

Each page has an empty folder, caches of its own and a CPU device.  What its blocks need is said
by a comment on the line before (see docs/index.md).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from tilewright.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "reference" not in page.parts]
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
# Everything that these pages may tell a reader to type.
PROGRAMS = {"tilewright", "python", "mkdir", "cat", "ls"}
# A budget longer than this is cut to it: what is tested is that the command works.
SECONDS = 2


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    kind: str
    mark: str
    text: str

    @property
    def commands(self) -> list[str]:
        """What follows the prompts of a console, or a script's lines; continued ones joined."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.kind == "sh":
            return [line for line in lines if line.partition("#")[0].strip()]
        return [line[2:] for line in lines if self.kind == "console" and line.startswith("$ ")]

    @property
    def only_parsed(self) -> bool:
        """Whether the page says that not every machine can run it."""
        return self.mark.startswith("needs ")


def runs_here(command: str) -> bool:
    """Whether a command runs without a GPU, and is not CI's own business."""
    installs = command.startswith(("make ", "pip ", "python -m venv "))
    return not installs and not re.search(r"--device[ =]cuda", command)


def blocks(page: Path) -> list[Block]:
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(one["kind"], one["mark"] or "", one["text"]) for one in found]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def parse(words: list[str]) -> None:
    """Refuse a command line of ours whose command, options or values do not exist."""
    command, context = typer.main.get_command(app), None
    rest, said = words[1:], words[0]
    while True:
        context = command.make_context(said, rest, parent=context)
        if not hasattr(command, "commands"):
            return
        left = [*getattr(context, "_protected_args", ()), *context.args]
        if not left:  # a group that is a command as well
            return
        said, command, rest = command.resolve_command(context, left)


def shortened(command: str) -> str:
    """Return a command with budgets that a test has time for."""
    return re.sub(r"(--(?:budget|tune)[ =])\d+[smh]", rf"\g<1>{SECONDS}s", command)


@pytest.fixture
def environment(tmp_path):
    """Caches of its own, our program on the path, and a CPU device."""
    kept = dict(os.environ)
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return kept | {"PATH": path, "TILEWRIGHT_DATA_DIR": str(tmp_path / "data")}


def execute(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def run_block(block: Block, folder: Path, environment: dict[str, str], python: list[str]) -> None:
    if block.mark.startswith("file: "):
        (folder / block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
    elif block.only_parsed:
        return
    elif block.kind == "python":
        python.append(re.sub(r'budget="\d+[smh]"', f'budget="{SECONDS}s"', block.text))
        # A page's examples share their names, as they do for a reader who types them in.
        (folder / "_page.py").write_text("\n".join(python), encoding="utf-8")
        execute([sys.executable, "_page.py"], folder, environment)
        (folder / "_page.py").unlink()
    else:
        for command in filter(runs_here, block.commands):
            execute(["bash", "-euo", "pipefail", "-c", shortened(command)], folder, environment)


RUNNABLE = [page for page in PAGES if blocks(page)]


# What a newcomer reads first; the others are thorough.
FIRST = {"README.md", "tutorial.md"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.name in FIRST else pytest.mark.thorough)
        for page in RUNNABLE
    ],
    ids=name,
)
def test_everything_shown_runs(page, tmp_path, environment):
    folder = tmp_path / "page"
    folder.mkdir()
    python: list[str] = []
    for block in blocks(page):
        run_block(block, folder, environment, python)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_are_of_programs_and_options_that_exist(page):
    """Also those that need a GPU."""
    for block in blocks(page):
        assert block.kind not in ("bash", "shell"), f"write ```sh or ```console in {name(page)}"
        if block.kind in ("console", "sh") and not block.mark.startswith("file: "):
            assert block.commands, f"a console block of {name(page)} has no line with $ "
        for command in block.commands:
            words = shlex.split(re.split(r" [>|] ", command)[0], comments=True)
            if not block.only_parsed and runs_here(command):
                assert words[0] in PROGRAMS, f"{command} in {name(page)} cannot be run by a test"
            if words[0] == "tilewright":
                parse(words)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_sentences_exist_too(page):
    for text in re.findall(r"`(tilewright [a-z][^`\n]*)`", page.read_text(encoding="utf-8")):
        try:
            parse(shlex.split(text.replace("bench NAME", "bench calls")))
        except Exception as problem:  # a sentence may leave arguments out, or write ID for one
            if type(problem).__name__ not in ("MissingParameter", "BadParameter"):
                raise AssertionError(f"{text}: {problem}") from problem


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_extras_that_pages_install_exist(page):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"'(?:tilewright|\.)\[([\w,]+)\]'", page.read_text(encoding="utf-8")):
        assert set(extras.split(",")) <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_scripts_named_in_sentences_exist(page):
    for script in re.findall(r"`python ((?:benchmarks|docs)/[\w/.]+)", page.read_text("utf-8")):
        assert (ROOT / script).is_file(), script


def test_targets_of_make_exist():
    """What the pages and CI ask `make` for, `make` has."""
    made = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    texts.append((ROOT / ".ci" / "run").read_text())
    asked = {one for text in texts for one in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)}
    assert {"run", "test", "docs"} <= asked
    assert asked <= made


def test_a_wrong_command_is_noticed():
    with pytest.raises(Exception, match="No such option"):
        parse(["tilewright", "tune", "--sise", "3"])
    with pytest.raises(Exception, match="No such command"):
        parse(["tilewright", "tuna"])
    with pytest.raises(Exception, match="valid integer"):
        parse(["tilewright", "solve", "--size", "many"])


def test_what_needs_a_gpu_is_noticed():
    assert not runs_here("tilewright tune --device cuda:0")
    assert runs_here("tilewright inspect default --arch sm_90a")
    block = Block("sh", "", "make run  # all\n# nothing\n\ntilewright \\\n  devices\n")
    assert block.commands == ["make run  # all", "tilewright    devices"]


def test_budgets_are_shortened_and_nothing_else():
    assert shortened("tilewright tune --size 9 --budget 120s") == (
        f"tilewright tune --size 9 --budget {SECONDS}s"
    )
