"""The documentation site: ``make docs`` builds it into site/; every warning is an error.

The reference is made from the code while the site is built, so that it cannot lag behind:
a page a package from its docstrings, in the order of the floors that CI enforces, and one
of all commands from their ``--help``.  Pages that index.md does not list are added to it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "src" / "tilewright"
REFERENCE = HERE / "reference"  # generated; not in the repository
# Commands have a page of their own.
LEFT_OUT = {"cli"}

project = "Tilewright"
html_title = "Tilewright"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["conf.py"]
html_theme = "furo"
html_static_path: list[str] = []
html_copy_source = False
html_show_sourcelink = False
myst_heading_anchors = 3
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_mock_imports = ["cupy", "jax", "torch"]  # nobody should install them to read about them
autodoc_typehints = "signature"
napoleon_google_docstring = False
# Several floors have a class of one name, such as Resources; a page names its own.  Not every
# language that Markdown's readers know (csv) can be highlighted.
suppress_warnings = ["ref.python", "misc.highlighting_failure"]


def floors() -> list[str]:
    """Return packages and modules in the order of the import contract, the highest first."""
    contract = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [one for layer in contract["contracts"][0]["layers"] for one in layer.split("|")]
    names = [layer.strip().removeprefix("tilewright.") for layer in layers]
    return [name for name in names if name not in LEFT_OUT]


def documented(directive: str, name: str, *options: str) -> list[str]:
    """Return the lines of one autodoc directive in Markdown."""
    return ["```{eval-rst}", f".. {directive}:: {name}", *(f"   {o}" for o in options), "```", ""]


def face_page() -> list[str]:
    """Return the page of what ``import tilewright`` offers."""
    from tilewright import _HOMES

    lines = ["# tilewright", "", "What `import tilewright as tw` offers.", ""]
    for name, home in sorted(_HOMES.items()):
        kind = "autoclass" if name[0].isupper() else "autofunction"
        lines += [f"## `tw.{name}`", "", *documented(kind, f"{home}.{name}", ":no-index:")]
    return lines


def package_page(name: str) -> list[str]:
    """Return the page of a package: each of its modules with its public members."""
    path = PACKAGE / name
    modules = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    lines = [f"# tilewright.{name}", ""]
    for module in modules:
        parts = module.relative_to(PACKAGE.parent).with_suffix("").parts
        # A package's own names are those of its modules, which follow.
        options = [":no-members:"] if parts[-1] == "__init__" else []
        dotted = ".".join(parts).removesuffix(".__init__")
        if dotted != f"tilewright.{name}":
            lines += [f"## `{dotted}`", ""]
        lines += documented("automodule", dotted, *options)
    return lines


def commands_page() -> list[str]:
    """Return the page of all commands: what ``--help`` prints."""
    import typer
    from typer.testing import CliRunner

    from tilewright.cli.app import app

    runner = CliRunner(env={"COLUMNS": "92", "TERM": "dumb", "NO_COLOR": "1"})
    lines = ["# Commands", "", "What `--help` says of every command.", ""]
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {})
        for words in [(name,), *((name, inner) for inner in below)]:
            told = runner.invoke(app, [*words, "--help"], prog_name="tilewright").output
            # On this page options are spelled out; boxes around them would only break lines.
            text = "\n".join(re.sub("[─-╿]", " ", line).rstrip() for line in told.splitlines())
            text = re.sub(r"\n{3,}", "\n\n", text).strip("\n")
            lines += [f"## `tilewright {' '.join(words)}`", "", "```text", text, "```", ""]
    return lines


def write_reference() -> None:
    """Write the reference's pages, only those that changed: Sphinx reads no others again."""
    pages = {"commands": commands_page(), "tilewright": face_page()}
    pages |= {floor: package_page(floor) for floor in floors()}
    REFERENCE.mkdir(exist_ok=True)
    for stale in {path.stem for path in REFERENCE.glob("*.md")} - pages.keys():
        (REFERENCE / f"{stale}.md").unlink()
    for name, lines in pages.items():
        path, text = REFERENCE / f"{name}.md", "\n".join(lines) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def complete(app: object, page: str, source: list[str]) -> None:
    """Fill in the marks of index.md: the pages nobody listed, and the reference."""
    # Without a repository's address, links to files outside the documentation lead nowhere.
    folder = (HERE / page).parent
    for text, target in re.findall(r"\[([^\]]*)\]\((\.\./[^)#]+)\)", source[0]):
        if not (folder / target).resolve().is_relative_to(HERE):
            source[0] = source[0].replace(f"[{text}]({target})", text)
    if page != "index":
        return
    paths = (path.relative_to(HERE) for path in HERE.rglob("*.md"))
    found = sorted(path.with_suffix("").as_posix() for path in paths)
    listed = set(source[0].split())
    more = [one for one in found if one not in listed and not one.startswith("reference/")]
    pages = ["reference/commands", "reference/tilewright", *(f"reference/{f}" for f in floors())]
    source[0] = source[0].replace("@more@", "\n".join(m for m in more if m != "index"))
    source[0] = source[0].replace("@reference@", "\n".join(pages))


def literal_bars(
    app: object, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Keep ``|A||B|`` in docstrings what it is: in reStructuredText bars mean substitutions."""
    for at, line in enumerate(lines):
        parts = line.split("``")
        parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
        lines[at] = "``".join(parts)


def setup(app: object) -> None:
    """Connect the above to Sphinx."""
    write_reference()
    app.connect("source-read", complete)  # type: ignore[attr-defined]
    app.connect("autodoc-process-docstring", literal_bars)  # type: ignore[attr-defined]
