"""The core is compiled once, whole or not at all, and who cannot is told in one line."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tilewright.core as core
from tests.export.building import needs_c
from tilewright.core import build
from tilewright.core.build import CoreError, compile_core, library_path, sources

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a package without a library of its own."""
    monkeypatch.setattr(build, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(build, "_packaged", lambda: None)
    return tmp_path


def command(folder: Path, text: str) -> list[str]:
    """Return a compiler that is a script."""
    script = folder / "compiler"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return [str(script)]


@needs_c
def test_it_is_compiled_once_and_found_from_then_on(cache, monkeypatch):
    made = library_path()
    assert made.parent == cache
    assert [file.name for file in cache.iterdir()] == [made.name]
    monkeypatch.setattr(build, "compilers", list)
    assert library_path() == made
    texts = sources()
    monkeypatch.setattr(build, "sources", lambda: texts | {"core.h": texts["core.h"] + b"\n"})
    with pytest.raises(CoreError):  # other texts are another library
        library_path()


@needs_c
def test_its_texts_have_no_warnings(tmp_path):
    folder = ROOT / "src" / "tilewright" / "core" / "native"
    compiler = build.compilers()[0]
    made = [*compiler, *build._FLAGS, "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    ran = subprocess.run(
        [*made, *sorted(folder.glob("*.c")), "-o", tmp_path / "core.so", *build._LIBRARIES],
        capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def test_without_a_compiler_one_line_says_what_to_do(cache, monkeypatch):
    monkeypatch.setattr(build, "compilers", list)
    with pytest.raises(CoreError, match=r"there is no C compiler.*; install a C compiler") as told:
        library_path()
    assert "\n" not in str(told.value)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo first >&2; echo second >&2; exit 1", "failed: first"),
        ("exit 1", "failed: no message"),
        ("while [ $# -gt 1 ]; do [ $1 = -o ] && echo half > $2; shift; done; exit 2", "failed"),
        ("exec sleep 60", "took more than"),
    ],
)
def test_a_compiler_that_fails_leaves_nothing(cache, tmp_path_factory, monkeypatch, text, said):
    monkeypatch.setattr(build, "_SECONDS", 0.5 if "sleep" in text else 100)
    compiler = command(tmp_path_factory.mktemp("bin"), text)
    with pytest.raises(CoreError, match=said) as told:
        compile_core(cache / "core.so", command=compiler)
    assert "\n" not in str(told.value)
    assert list(cache.iterdir()) == []


@needs_c
def test_the_next_compiler_is_tried_after_one_that_fails(cache, tmp_path_factory, monkeypatch):
    broken = command(tmp_path_factory.mktemp("bin"), "exit 1")
    monkeypatch.setattr(build, "compilers", lambda known=build.compilers: [broken, *known()])
    assert library_path().is_file()


def test_a_compiler_that_is_named_comes_first(tmp_path, monkeypatch):
    [named] = command(tmp_path, "exit 1")
    monkeypatch.setenv("CC", named)
    assert build.compilers()[0] == [named]
    monkeypatch.setenv("CC", str(tmp_path / "missing"))
    assert [str(tmp_path / "missing")] not in build.compilers()


def test_a_process_without_a_core_goes_on_until_one_is_needed(cache, monkeypatch):
    monkeypatch.setattr(build, "compilers", list)
    monkeypatch.setattr(core, "_found", [])
    assert core.library() is None
    assert core.library() is None
    with pytest.raises(CoreError, match="cannot be compiled"):
        core.needed_library()


def test_a_cache_that_cannot_be_used_is_no_core(cache, monkeypatch):
    monkeypatch.setattr(build, "cache_dir", lambda: cache / "missing")
    monkeypatch.setattr(core, "_found", [])
    assert core.library() is None
    with pytest.raises(OSError, match="missing"):
        core.needed_library()


@needs_c
def test_processes_that_compile_at_once_make_one_file(tmp_path):
    code = (
        "from tilewright.core import build; import pathlib, sys;"
        "build.compile_core(pathlib.Path(sys.argv[1]) / 'core.so')"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    running = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path], env=environment) for _ in range(2)
    ]
    assert [one.wait(100) for one in running] == [0, 0]
    assert [file.name for file in tmp_path.iterdir()] == ["core.so"]


def test_its_texts_are_part_of_the_package():
    """What is in the package's folder and no Python is in a wheel: nothing leaves it out."""
    names = {file.name for file in (ROOT / "src/tilewright/core/native").iterdir()}
    assert set(sources()) == names
    assert {"core.h", "plan.c", "arena.c", "seen.c", "arrays.c", "table.c", "driver.c"} <= names
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert wheel["targets"]["wheel"]["packages"] == ["src/tilewright"]
    assert "exclude" not in wheel | wheel["targets"]["wheel"]
