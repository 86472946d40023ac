"""``tilewright db``: results can be looked at, carried away, brought back and thrown out."""

import ast
import json
from datetime import UTC, datetime, timedelta

import jsonschema
import pytest
from typer.testing import CliRunner

from tests.tuning.measurement_examples import example
from tilewright.cli.app import app, run
from tilewright.cli.db import app as db
from tilewright.stencil.geometry import PLAIN, Launch
from tilewright.stencil.source import Source
from tilewright.tuning.store import Store

if not any(group.typer_instance is db for group in app.registered_groups):
    app.add_typer(db)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture
def filled(path):
    with Store(path) as store:
        store.add(example(block=1))
        store.add(example(block=2, status="crash", detail="Segmentation fault\nat 0x1"))
        store.add(example(block=3, stage="winner", error=1e-7, compile_seconds=0.5))
        store.add(example(block=4, device="ffff", device_name="Other [bold] GPU"))
    return path


def command(*words, store=None):
    """Run ``tilewright db``; return exit status, output and errors."""
    end = ["--store", str(store)] if store else []
    result = CliRunner().invoke(db, [*map(str, words), *end])
    assert result.exit_code in (0, 1, 2)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def facts(*words, store=None):
    """Run a command with ``--json`` and return what it says."""
    result = command(*words, "--json", store=store)
    assert result.exit_code == 0
    return json.loads(result.stdout)


# --------------------------------------------------------------------- looking


def test_list_has_a_row_for_each_problem_and_device(filled):
    output = command("list", store=filled).stdout
    assert "SGEMM NT 512" in output
    assert "Tiny GPU" in output
    assert "[bold]" in output, "names are text, not markup"
    rows = facts("list", store=filled)
    tiny = next(row for row in rows if row["device"] == "a1b2c3d4e5f6")
    assert (tiny["ok"], tiny["failed"], tiny["winner"]["id"]) == (2, 1, 3)
    assert tiny["problem"]["trans"] == "NT"
    other = next(row for row in rows if row["device"] == "ffff")
    assert other["winner"] is None


def test_list_failed_gives_reasons(filled):
    output = command("list", "--failed", store=filled).stdout
    assert "crash: because" in output
    (row,) = facts("list", "--failed", store=filled)
    assert (row["id"], row["status"], row["median_ns"]) == (2, "crash", None)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--device", "tiny"), 1),
        (("--device", "ffff"), 1),
        (("--precision", "s", "--trans", "nt", "--stencil", "portable"), 2),
        (("--precision", "d"), 0),
        (("--limit", "1"), 1),
    ],
)
def test_list_filters(filled, options, count):
    assert len(facts("list", *options, store=filled)) == count
    assert command("list", *options, store=filled).exit_code == 0


def test_an_empty_store_says_what_to_do():
    assert "tilewright tune" in command("list").stdout
    assert facts("list") == []


def test_show_tells_everything(filled):
    output = command("show", 2, store=filled).stdout
    for text in ("portable", "block_m 2", "crash: because", "Segmentation fault", "driver 1.2"):
        assert text in output
    shown = facts("show", 3, store=filled)
    assert (shown["id"], shown["stage"], shown["error"]) == (3, "winner", 1e-7)
    assert shown["median_ns"] == 2000
    assert shown["parameters"]["block_m"] == 3


def test_what_others_recorded_cannot_steer_a_terminal(path):
    with Store(path) as store:
        store.add(example(status="crash", reason="\x1b[2J gone", detail="\x1b]0;title\x07"))
    for words in (("list", "--failed"), ("show", 1)):
        output = command(*words, store=path).stdout
        assert "\x1b" not in output
        assert r"\x1b[2J gone" in output


# ------------------------------------------------------------- carrying results


def test_export_and_import_carry_everything(filled, tmp_path):
    out = tmp_path / "out.json"
    assert facts("export", "-o", out, store=filled)["results"] == 4
    other = tmp_path / "other.sqlite"
    assert facts("import", out, store=other) == {"results": 4, "new": 4}
    assert facts("import", out, store=other) == {"results": 4, "new": 0}
    with Store(filled) as ours, Store(other) as theirs:
        assert [one.imported() for one in ours.query()] == list(theirs.query())


def test_export_to_standard_output_is_t4(filled):
    file_utils = pytest.importorskip("kernel_tuner.file_utils")
    _, schema = file_utils.output_file_schema("results")
    document = json.loads(command("export", "--stage", "winner", store=filled).stdout)
    jsonschema.validate(document, schema)
    assert [entry["configuration"]["block_m"] for entry in document["results"]] == [3]


def test_a_bad_import_leaves_the_store_alone(filled, tmp_path):
    document = json.loads(command("export", store=filled).stdout)
    document["results"][3]["tilewright"]["times_ns"] = ["fast"]
    (tmp_path / "bad.json").write_text(json.dumps(document))
    other = tmp_path / "other.sqlite"
    with pytest.raises(RuntimeError, match=r"results\[3\]: times_ns"):
        command("import", tmp_path / "bad.json", store=other)
    assert not other.exists()


# ---------------------------------------------------------------------- pruning


def test_prune_says_first_and_removes_then(filled):
    with Store(filled) as store:
        store.add(example(block=9, created=datetime.now(UTC).isoformat()))
    old = datetime.now(UTC) - datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert old > timedelta(hours=1), "the examples are older than an hour"
    would = facts("prune", "--older-than", "1h", "--dry-run", store=filled)
    assert (would["removed"], would["spared_winners"], would["dry_run"]) == (3, 1, True)
    assert (
        "would be removed" in command("prune", "--device", "tiny", "--dry-run", store=filled).stdout
    )
    assert facts("prune", "--older-than", "1h", store=filled)["removed"] == 3
    with Store(filled) as store:
        assert [one.config["block_m"] for one in store.query()] == [3, 9]


def test_prune_failed_removes_what_failed_alone(filled):
    assert facts("prune", "--failed", store=filled)["removed"] == 1
    with Store(filled) as store:
        assert [one.config["block_m"] for one in store.query()] == [1, 3, 4]


class Family:
    """A stencil of one kernel."""

    version = 2

    def common_arguments(self, config):
        return True

    def source(self, config, variant, dialect, mode=PLAIN):
        return Source(f"kernel of {config['block_m']} for {variant} in {dialect}", {"A": 1})

    def launch(self, config, m, n, k=0):
        return Launch((m, n), (1, 1))


@pytest.fixture
def registry(monkeypatch):
    from tilewright.stencil import registry

    def stencil(name):
        if name != "portable":
            raise ValueError(f"stencil={name!r} is unknown")
        return Family()

    monkeypatch.setattr(registry, "stencil", stencil)


def test_prune_stale_asks_the_stencils_for_their_versions(filled, registry):
    pruned = facts("prune", "--stale", "--device", "tiny", store=filled)
    assert pruned["groups"] == [
        {"device_name": "Tiny GPU", "stencil": "portable", "stencil_version": 1, "results": 2}
    ]


@pytest.mark.parametrize("words", [(), ("--older-than", "yore"), ("--older-than", "30")])
def test_prune_refuses_what_it_does_not_understand(filled, words):
    with pytest.raises(ValueError, match=r"older-than|criterion"):
        command("prune", *words, store=filled)


# ------------------------------------------------------------------ reproducing


def test_reproduce_writes_a_program(filled, tmp_path, registry, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = command("reproduce", 2, store=filled)
    assert "python reproduce_2.py" in result.stdout
    assert "version 2" in result.stderr, "the text has changed since it was measured"
    written = (tmp_path / "reproduce_2.py").read_text()
    assert "crash: because" in ast.get_docstring(ast.parse(written))
    assert "kernel of 2 for snt in opencl" in written
    assert facts("reproduce", 2, "-o", "named.py", store=filled)["file"] == "named.py"
    assert (tmp_path / "named.py").read_text() == written.replace("reproduce_2.py", "named.py")


def test_reproduce_does_not_overwrite_what_somebody_edited(filled, tmp_path, registry, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command("reproduce", 2, store=filled)
    command("reproduce", 2, store=filled)
    (tmp_path / "reproduce_2.py").write_text("my notes")
    with pytest.raises(FileExistsError, match="-o"):
        command("reproduce", 2, store=filled)
    assert (tmp_path / "reproduce_2.py").read_text() == "my notes"


def test_a_stencil_that_is_gone_is_one_line(path, registry):
    from tilewright.space.config import Config

    with Store(path) as store:
        store.add(example(config=Config("gone", {"a": 1})))
    with pytest.raises(RuntimeError, match="cannot be made any more"):
        command("reproduce", 1, store=path)


# ------------------------------------------------------------------ exit status


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("list",), 0),
        (("show", "99"), 1),
        (("list", "--device", "nowhere"), 1),
        (("import", "none.json"), 1),
        (("show", "first"), 2),
        (("list", "--precision", "q"), 2),
        (("list", "--trans", "N"), 2),
        (("export", "--stage", "encore"), 2),
        (("prune",), 2),
        (("burn",), 2),
    ],
)
def test_exit_status_and_one_line_errors(words, status, filled, capsys):
    arguments = ["db", *words]
    if words[0] not in ("burn",):
        arguments += ["--store", str(filled)]
    assert run(arguments) == status
    said = capsys.readouterr()
    if status == 1:
        assert said.out == ""
        assert said.err.count("\n") == 1


@pytest.mark.parametrize("words", [("list",), ("show", "1"), ("export",), ("prune", "--stale")])
def test_a_store_that_was_named_must_exist(words, tmp_path, capsys):
    assert run(["db", *words, "--store", str(tmp_path / "typo.sqlite")]) == 1
    assert "no store at" in capsys.readouterr().err
    assert not (tmp_path / "typo.sqlite").exists()
