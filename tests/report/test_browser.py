"""The report in a real browser: nothing on the console, nothing from the network, fits a phone."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.report import examples
from tilewright.report import gather, make_page, make_sections
from tilewright.tuning.store import Store

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser():
    """A Chromium of the system, or playwright's own; `make browser` installs one."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as opened:
        path = next(filter(None, map(shutil.which, NAMES)), opened.chromium.executable_path)
        if not os.path.exists(path):
            reason = "no Chromium is here; `make browser` installs one"
            if os.environ.get("TILEWRIGHT_REQUIRE_BROWSER") == "1":
                pytest.fail(reason)
            pytest.skip(reason)
        # Chromium's sandbox refuses to run as root, which containers are.
        sandbox = hasattr(os, "geteuid") and os.geteuid() != 0
        made = opened.chromium.launch(executable_path=path, chromium_sandbox=sandbox)
        yield made
        made.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report with something in every section, written as a file."""
    folder = tmp_path_factory.mktemp("report")
    with Store(folder / "store.sqlite") as store:
        examples.fill(store)
        data = gather(store, examples.results(folder / "results"))
    path = folder / "report.html"
    path.write_text(make_page(make_sections(data), data.newest), encoding="utf-8")
    return path


@pytest.fixture
def open_page(browser, report):
    """Return a function that opens the report, and the console's lines and requests so far."""
    contexts = []

    def opened(**settings):
        context = browser.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        noise: list[str] = []
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("request", lambda request: noise.append(request.url))
        page.goto(report.as_uri())
        return page, noise

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.every(3)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_opens_without_errors_or_requests_and_fits(open_page, report, scheme, size):
    page, noise = open_page(viewport=size, color_scheme=scheme, offline=True)
    assert noise == [report.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    drawn = page.evaluate("[...document.querySelectorAll('svg')].map(s => s.clientWidth)")
    assert drawn
    assert min(drawn) > 250


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_and_lines_stand_out_from_their_ground(open_page, scheme):
    """WCAG 2.2: a contrast of 4.5 for text, of 3 for what figures show."""
    page, _ = open_page(viewport=DESKTOP, color_scheme=scheme)
    told = page.evaluate("""() => {
      const style = getComputedStyle(document.documentElement)
      const light = name => {
        const hex = style.getPropertyValue('--' + name).trim().slice(1)
        const [r, g, b] = [0, 2, 4].map(i => parseInt(hex.slice(i, i + 2), 16) / 255)
          .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b }
      const against = (a, b) => {
        const [x, y] = [light(a), light(b)].sort((p, q) => q - p)
        return (x + 0.05) / (y + 0.05) }
      const text = ['ink', 'soft', 'link'], drawn = ['tilewright', 'cublas', 'numpy', 'clblast',
        'ladder', 'bound', 'other', 'failed']
      return Object.fromEntries([
        ...text.flatMap(n => ['paper', 'surface', 'panel'].map(p => [n + p, against(n, p) / 4.5])),
        ...drawn.map(n => [n, against(n, 'surface') / 3])]) }""")
    assert {name: ratio for name, ratio in told.items() if ratio < 1} == {}


def test_figures_have_names_and_their_data_open(open_page):
    page, _ = open_page(viewport=DESKTOP)
    figures = page.locator("figure")
    assert figures.count() > 10
    for at in range(figures.count()):
        figure = figures.nth(at)
        title = figure.locator("figcaption strong").inner_text()
        assert figure.get_by_role("img", name=title, exact=False).count() == 1
    first = figures.first
    assert not first.locator("table").is_visible()
    first.locator("summary").click()
    assert first.locator("table").is_visible()


def test_links_lead_to_their_sections(open_page):
    page, _ = open_page(viewport=PHONE, reduced_motion="reduce")
    page.get_by_role("link", name="Roofline").first.click()
    assert page.locator("#roofline h2").bounding_box()["y"] < PHONE["height"]


def test_prints(open_page, tmp_path):
    page, _ = open_page(viewport=DESKTOP, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    page.pdf(path=str(tmp_path / "report.pdf"))
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_a_report_without_data_opens_too(browser, tmp_path):
    data = gather(None, None)
    path = tmp_path / "empty.html"
    path.write_text(make_page(make_sections(data), data.newest), encoding="utf-8")
    page = browser.new_page()
    noise: list[str] = []
    page.on("console", lambda message: noise.append(message.text))
    page.goto(path.as_uri())
    assert noise == []
    assert page.locator("pre").count() == page.locator("section").count()
    page.close()
