"""The page: sections, drawn and put into one HTML file that needs nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from tilewright.report.charts import draw
from tilewright.report.model import Figure, Section
from tilewright.report.svg import accessible
from tilewright.text import install_hint
from tilewright.version import VERSION

__all__ = ["make_page"]

_NUMBER = re.compile(r"[-+−]?[\d,.]+(e[-+]?\d+)?( ?(%|[GT]FLOP/s))?")


def make_page(
    sections: Sequence[Section], newest: str, drawn: Callable[[Figure], object] | None = None
) -> str:
    """Return the whole report as HTML.

    Parameters
    ----------
    sections : sequence of Section
        In the order in which they are shown.
    newest : str
        Date of the newest measurement; the page bears no other date, so that equal data
        give equal files.
    drawn : callable, optional
        Called with each figure once it is drawn.

    Raises
    ------
    RuntimeError
        If jinja2 or matplotlib is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise RuntimeError(f"a report needs jinja2; {install_hint('report')}") from None
    folder = files("tilewright.report") / "templates"
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = lambda text: bool(_NUMBER.fullmatch(text))
    environment.globals["svg"] = _drawer(drawn)
    template = environment.from_string((folder / "report.html").read_text(encoding="utf-8"))
    style = (folder / "report.css").read_text(encoding="utf-8")
    return template.render(sections=sections, newest=newest, version=VERSION, style=_trusted(style))


def _drawer(drawn: Callable[[Figure], object] | None) -> Callable[[Figure, str], Any]:
    """Return what the template calls for a figure's drawing."""

    def svg(figure: Figure, prefix: str) -> Any:
        made = accessible(draw(figure.chart), prefix, figure.title, figure.description)
        if drawn is not None:
            drawn(figure)
        return _trusted(made)

    return svg


def _trusted(markup: str) -> Any:
    """Return markup of our own, in which every text from outside is escaped already."""
    from markupsafe import Markup

    return Markup(markup)  # noqa: S704
