"""The report: everything measured reaches it, nothing in it is markup, equal data equal files."""

from __future__ import annotations

import json
import re
import shlex
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report import examples
from tests.test_docs import parse
from tests.tuning.measurement_examples import example, few, measurements
from tilewright.cli.app import run
from tilewright.problem import Problem
from tilewright.report import gather, make_page, make_sections
from tilewright.report.charts import draw
from tilewright.report.model import Bars, Columns, Curve, Curves, Rows
from tilewright.report.svg import accessible
from tilewright.report.words import intensity, scale_of, tiling
from tilewright.serve.bound import bound
from tilewright.space import Config
from tilewright.tuning.store import Store


class Page(HTMLParser):
    """Everything of a page that tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as opened:
        examples.fill(opened)
        yield opened


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    with Store(folder / "store.sqlite") as opened:
        examples.fill(opened)
        return gather(opened, examples.results(folder / "results"))


@pytest.fixture(scope="module")
def html(data):
    return make_page(make_sections(data), data.newest)


def test_every_section_has_figures_with_a_table_behind_each(data):
    names = ("summary", "devices", "funnel", "progress", "best", "sizes", "shapes", "tensor")
    for name in (*names, "roofline", "ladder", "accuracy", "share", "mix"):
        found = named(data, name)
        assert found.figures, name
        for figure in found.figures:
            assert figure.table.rows
            assert {len(row) for row in figure.table.rows} == {len(figure.table.columns)}
            assert figure.title
            assert figure.description


def named(data, name):
    """Return the first section of a name that shows something, of whatever device."""
    found = (one for one in make_sections(data) if one.id.removeprefix("other-") == name)
    return next(one for one in found if not one.empty)


def committed(name):
    return json.loads((examples.RESULTS / "h100" / name).read_text())


def test_numbers_of_the_page_are_those_of_the_files(html):
    """The rate of the largest square on an H100, and its ratio to cuBLAS."""
    rows = committed("calls.json")["devices"][0]["results"]
    squares = [row for row in rows if (row["precision"], row["shapes"]) == ("s", "squares")]
    row = max(squares, key=lambda row: row["size"])
    ours, theirs = (row["flops"] / row[whose] * 1e6 for whose in ("us", "cublas_us"))
    cells = "".join(re.findall(r"<td.*?</td>", html))
    assert f">{ours / 1e12:,.1f}<" in cells
    assert f">{ours / theirs:.3f}<" in cells


def test_a_rung_is_a_share_of_the_library_and_of_the_bound(data):
    (figure,) = named(data, "ladder").figures
    naive, missing, library = figure.table.rows
    assert naive[2:5] == ("4.000", "2.5 %", "1.2 %")
    assert missing[2] == ""
    assert missing[-1] == "it is CUDA only"
    assert library[3] == "100.0 %"
    assert "of NumPy" in figure.description


def test_nothing_that_files_say_is_markup(html):
    page = Page(html)
    tags = {name for name, _ in page.tags}
    assert not tags & {"script", "img", "iframe", "object", "embed", "form", "b"}
    assert not any(key.startswith("on") for _, attributes in page.tags for key in attributes)
    assert examples.HOSTILE in page.text
    assert 'Tiny "GPU" <b>&' in " ".join(page.text)


def test_ids_are_unique_and_all_references_lead_somewhere(html):
    page = Page(html)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    inner = re.findall(r'(?:href="#|url\(#|labelledby=")([^")]*)', html)
    assert {one for text in inner for one in text.split()} <= set(ids)


def test_figures_have_names_and_take_their_colours_from_the_page(html):
    figures = Page(html).all("svg")
    assert figures
    assert all(one["role"] == "img" and one["aria-labelledby"] for one in figures)
    assert "fe01" not in html
    assert "DejaVu" not in html
    used, known = set(re.findall(r"var\(--(\w+)\)", html)), set(re.findall(r"--(\w+):", html))
    assert used <= known


def test_the_page_asks_nobody_for_anything(html):
    page = Page(html)
    for _, attributes in page.tags:
        for name in ("src", "href", "data", "action", "srcset", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or value == "data:,"
    assert "@import" not in html
    assert "default-src 'none'" in html


def test_equal_data_give_equal_pages(store):
    twice = [gather(store, None) for _ in range(2)]
    pages = {make_page(make_sections(one), one.newest) for one in twice}
    assert len(pages) == 1


def test_without_data_every_section_says_what_makes_some():
    data = gather(None, None)
    sections = make_sections(data)
    assert all(section.empty and section.command.startswith("tilewright ") for section in sections)
    page = make_page(sections, data.newest)
    assert page.count("This command makes some") == len(sections)
    assert not Page(page).all("svg")


def test_what_none_of_your_devices_can_make_is_not_asked_for(tmp_path):
    with Store(tmp_path / "store.sqlite") as opened:
        opened.add(example(stage="winner"))
        data = gather(opened, None)
    assert {device.measured.backend for device in data.devices} == {"opencl"}
    found = {one.id for one in make_sections(data)}
    assert "sizes" in found
    assert not found & {"shapes", "tensor"}


def test_commands_that_make_data_exist():
    for section in make_sections(gather(None, None)):
        parse(shlex.split(section.command.partition(" > ")[0]))


def test_files_that_cannot_be_used_are_named_with_the_reason(data, html):
    assert set(data.results.left_out) == {
        *("broken.json", "endless.json", "foreign.json", "wrong.json")
    }
    assert "h100/first_call.json" in data.results.other
    assert "its &#39;results&#39; is missing" in html
    assert "KeyError" not in html


def test_one_run_a_problem_and_beside_another_library_before_alone(store, tmp_path):
    sweep = examples.sweep(512, 1024)
    sweep["devices"] = [sweep["devices"][0] | {"fingerprint": "0123456789ab"}]
    row = sweep["devices"][0]["results"][1] | {"size": [256, 256, 256], "trans": "NT"}
    row["flops_per_second"] = {"tilewright": 1e9, "cublas": 2e9}
    sweep["devices"][0]["results"] = [row]
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    data = gather(store, tmp_path)
    device = next(one for one in data.devices if one.fingerprint == "0123456789ab")
    found = [run for run in data.runs_of(device) if run.problem.m == 256]
    assert [(run.source, run.ours) for run in found] == [("sweep.json", 1e9)]


def test_problems_that_failed_are_passed_over_and_cold_caches_come_second(tmp_path):
    sweep = examples.sweep(512, 1024)
    (warm, *_) = sweep["devices"][0]["results"]
    cold = warm | {"options": {"cache": "cold"}, "flops_per_second": {"tilewright": 1e15}}
    failed = {key: warm[key] for key in ("problem", "precision", "trans", "size")}
    sweep["devices"][0]["results"] = [failed | {"error": "no memory"}, cold, warm]
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    data = gather(None, tmp_path)
    assert not data.results.left_out
    assert [run.cold for run in data.runs] == [True, False]
    assert [run.cold for run in data.runs_of(data.devices[0])] == [False]


def test_precisions_without_a_stencil_are_shown_all_the_same(tmp_path):
    """Double-double has bounds in the catalogue whether or not a stencil computes in it."""
    sweep = examples.sweep(512, 1024)
    (row, *_) = sweep["devices"][0]["results"]
    sweep["devices"][0]["results"] = [row, row | {"precision": "e", "size": [2048] * 3}]
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    data = gather(None, tmp_path)
    assert [run.problem.precision.letter for run in data.runs_of(data.devices[0])] == ["s", "e"]
    assert "double-double GEMM 2048" in named(data, "best").figures[1].title


def test_double_double_has_rates_and_errors(tmp_path):
    document = committed("double_double.json")
    rows = document["devices"][0]["results"]
    rows.append({"problem": "late", "precision": "e", "trans": "NN", "error": "the time was up"})
    (tmp_path / "pairs.json").write_text(json.dumps(document))
    data = gather(None, tmp_path)
    (device,) = data.devices
    timed = {row["problem"] for row in rows if "flops_per_second" in row}
    assert len(data.runs_of(device)) == len(timed)
    row = next(row for row in rows if row["size"] == [8192] * 3)
    problem = Problem(8192, 8192, 8192, row["precision"])
    limit = bound(problem, "h100", reads_c=False, warm_cache=True).limit
    share = f"{100 * row['flops_per_second']['tilewright'] / limit:.1f} %"
    assert share in [cell for line in named(data, "share").figures[0].table.rows for cell in line]
    worst = max(
        row["errors"]["tilewright"]["eta"]
        for row in rows
        if "errors" in row and row["precision"] == "e"
    )
    assert f"{worst:.1e}" in named(data, "accuracy").figures[0].description


def test_mixed_loops_are_drawn_for_each_instruction(tmp_path):
    document = committed("microbench.json")
    (tmp_path / "micro.json").write_text(json.dumps(document))
    data = gather(None, tmp_path)
    figures = named(data, "mix").figures
    assert [figure.title.split()[0] for figure in figures] == ["FFMA", "DFMA"]
    known = {
        (row["load_bits"], row["ratio"]): row["share_of_peak"]
        for row in document["experiments"]["mixes"]["rows"]
        if row["multiply_add"] == "FFMA"
        and row["warps_per_multiprocessor"] == 32
        and (row["lane_pattern"], row["bank_pattern"]) == ("conflict_free", "kept")
    }
    ratio, *shares = figures[0].table.rows[3]
    assert shares == [f"{100 * known[bits, int(ratio)]:.1f} %" for bits in (32, 64, 128)]


def test_a_device_is_chosen_by_a_part_of_its_name(store):
    assert [d.fingerprint for d in gather(store, None, device="h100").devices] == ["0123456789ab"]
    with pytest.raises(ValueError, match="device='abacus' has no measurements"):
        gather(store, None, device="abacus")


@given(st.lists(measurements(), max_size=4))
@settings(few, max_examples=15)
def test_whatever_a_store_holds_there_is_a_report(tmp_path_factory, found):
    with Store(tmp_path_factory.mktemp("any") / "store.sqlite") as opened:
        opened.add_imported(found)
        data = gather(opened, None)
    assert "<h1>" in make_page(make_sections(data), data.newest)


def test_tilings_are_written_like_astras():
    """Figure 3's last row: 192 x 160 x 32, and 32 x 32 threads three times."""
    config = {"block_m": 192, "block_n": 160, "block_k": 32, "threads_m": 32, "threads_n": 32}
    shapes = {"read_a_m": 32, "read_b_n": 32}
    told = tiling(Config("portable", config | shapes))
    assert told == "192×160×32, C 32×32, A 32×32, B 32×32"
    assert tiling(Config("portable", config | shapes | {"read_a_m": 0})).count("cache") == 1
    assert tiling(Config("other", {"x": 3, "order": "rows"})) == "order rows, x 3"


def test_intensity_is_nakasatos_blocking_factor():
    """Equation 1: blocks of b x b read 2 b words for 2 b^2 operations."""
    problem = Problem(1024, 1024, 1024, "s")
    assert intensity(problem, (64, 64)) == 2 * 64 * 64 / (4 * 128)
    assert intensity(problem) == 2 * 1024**3 / (4 * 4 * 1024**2)
    assert intensity(problem, (4096, 4096)) == intensity(problem, (1024, 1024))


def test_units_suit_the_largest_rate():
    assert scale_of([3e9, 2e12]) == (1e12, "TFLOP/s")
    assert scale_of([]) == (1e9, "GFLOP/s")


@pytest.mark.parametrize(
    "chart",
    [
        Curves("x", "y", (Curve("a $1$ <b>", "tilewright", ((1, 1),), "dots"),), x_log=True),
        Curves("x", "y", (Curve("", "cublas", ((1, 0.5), (10, 1e-9))),), y_log=True, ticks=(1, 10)),
        Curves("x", "y", (Curve("é漢", "failed", ((1, 0), (2, 0)), "crosses"),)),
        Curves("x", "y", ()),
        Columns("y", ("A", "B"), (Bars("a", "tilewright", (1, None)), Bars("b", "who", (2, 3)))),
        Rows("x", ("A", "B"), (Bars("a", "tilewright", (1, 1e9)),), x_log=True),
        Rows("x", ("A",), (Bars("a", "second", (1,)), Bars("b", "third", (2,)))),
    ],
)
def test_charts_of_all_kinds_are_drawn(chart):
    made = accessible(draw(chart), "p-", "a & b", "<c>")
    assert made.startswith("<svg ")
    assert '<title id="p-title">a &amp; b</title>' in made
    assert "&lt;c&gt;" in made
    for name in ("a $1$ &lt;b&gt;", "é漢"):
        assert (name in made) == (name.replace("&lt;", "<").replace("&gt;", ">") in str(chart))


def test_the_users_own_plotting_style_changes_nothing(monkeypatch):
    import matplotlib

    chart = Columns("y", ("A",), (Bars("a", "tilewright", (1,)),))
    before = draw(chart)
    monkeypatch.setitem(matplotlib.rcParams, "axes.labelsize", 40)
    monkeypatch.setitem(matplotlib.rcParams, "text.parse_math", True)
    assert draw(chart) == before


def test_command_writes_the_whole_file_or_nothing(tmp_path, capsys, store):
    path = str(tmp_path / "r.html")
    command = ["report", "-o", path, "--store", str(store.path), "--json"]
    assert run([*command, "--device", "tiny"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bytes"] == (tmp_path / "r.html").stat().st_size
    assert {one["id"] for one in facts["sections"]} >= {"devices", "roofline", "share"}
    assert run([*command, "--results", str(tmp_path / "nowhere")]) == 2
    assert "results=" in capsys.readouterr().err
    assert run(["report", "-o", path, "--store", str(tmp_path / "nowhere")]) == 1
    assert run(["report", "-o", str(tmp_path), "--store", str(store.path), "--device", "tiny"]) == 1
    assert run([*command, "--device", "abacus"]) == 2
    assert not list(tmp_path.glob("*.tmp"))


def test_command_says_what_has_no_data_yet(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["report"]) == 0
    assert "no data yet for: Your device, Best configs" in capsys.readouterr().out
    assert (tmp_path / "report.html").is_file()
    with Store() as opened:
        opened.add(example(stage="winner"))
    assert run(["report"]) == 0
    assert "Your device" not in capsys.readouterr().out


def test_your_device_comes_first_and_others_are_marked_as_such(data, html):
    sections = make_sections(data)
    first = sections[0]
    assert first.id == "summary"
    mine = {device.label for device in data.only(yours=True).devices}
    others = {device.label for device in data.only(yours=False).devices}
    assert first.facts[0][1] in mine
    at = next(i for i, one in enumerate(sections) if one.id.startswith("other-"))
    assert not any(one.part for one in sections[:at])
    assert sections[at].part == "Committed results of other devices"
    for one in sections[:at]:
        titles = " ".join(figure.title for figure in one.figures)
        assert not any(label in titles for label in others - mine)
    assert html.count('<p class="part" role="heading"') == 2


def test_the_first_screen_compares_with_the_other_library_and_the_bound(tmp_path):
    """Numbers of a file that a command left, of a device that is here."""
    sweep = examples.sweep(512, 1024)
    device = sweep["devices"][0] | {"fingerprint": "0123456789ab"}
    row = device["results"][0] | {"flops_per_second": {"tilewright": 3e13, "cublas": 2e13}}
    (tmp_path / "mine.json").write_text(json.dumps({"devices": [device | {"results": [row]}]}))
    with Store(tmp_path / "store.sqlite") as opened:
        examples.fill(opened)
        first = make_sections(gather(opened, tmp_path, device="h100"))[0]
    limit = bound(Problem(*row["size"], "s"), "h100", reads_c=False, warm_cache=True).limit
    told = [value for _, value in first.facts]
    assert told[1:] == ["30.0 TFLOP/s", "1.50", f"{100 * 3e13 / limit:.1f} %"]
    heights = {group.name: group.values[0] for group in first.figures[0].chart.groups}
    assert heights["bound"] * 1e12 == pytest.approx(limit)
    assert heights["cuBLAS"] == 20


def test_sets_of_shapes_are_summed_up(data):
    """Of each set the quantiles of what it holds."""
    rows = committed("calls.json")["devices"][0]["results"]
    mine = [row for row in rows if (row["precision"], row["shapes"]) == ("z", "random")]
    figures = {figure.title.split()[0]: figure for figure in named(data, "shapes").figures}
    table = {row[0]: row for row in figures["ZGEMM"].table.rows}
    assert table["random"][1] == f"{len(mine)}"
    assert table["random"][3] == f"{min(row['cublas_us'] / row['us'] for row in mine):.3f}"
    assert any('accuracy="fp32"' in figure.title for figure in named(data, "shapes").figures)


@pytest.mark.parametrize("most", [1e2, 1e4, 1.1e6, 8e11, 1.7e13])
def test_marks_of_lying_bars_do_not_touch(most):
    drawn = draw(Rows("points left", ("a", "b"), (Bars("n", "other", (9.0, most)),), x_log=True))
    marks = re.findall(r'8\.5px[^"]*anchor: middle[^"]*" x="([\d.]+)"[^>]*>([^<]+)</text>', drawn)
    assert len(marks) >= 2
    ends = [(float(x), len(label) * 8.5 * 0.64 / 2) for x, label in marks]  # a digit of DejaVu
    for (x, half), (next_x, next_half) in pairwise(sorted(ends)):
        assert x + half < next_x - next_half
