"""SVG for a page: its colours and font become the page's own, its ids unique, its name audible.

matplotlib knows no CSS.  Charts are drawn in colours that stand for names, and here each of
them becomes a CSS variable, which the page sets for light, for dark and for paper.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

__all__ = ["COLOURS", "ROLES", "accessible", "colour"]

# Order matters to nothing but the stand-in colours below.
COLOURS = (
    *("ink", "rule", "grid", "surface"),
    *("tilewright", "cublas", "numpy", "clblast", "ladder", "bound", "other", "failed"),
    *("second", "third", "fourth", "fifth", "sixth"),
)
# Of curves and bars that are none of these by themselves, in this order.
ROLES = ("tilewright", "second", "third", "fourth", "fifth", "sixth")
_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_STAND_IN = re.compile(r"#fe01([0-9a-f]{2})")
_FAMILY = re.compile(r"(font(?:-family)?: [^;]*?)'DejaVu Sans'[^;]*")
# A figure is some 400 units wide: a hundredth of one is less than any screen shows.
_COORDINATES = ("d", "x", "y", "transform")
_DECIMALS = re.compile(r"-?\d+\.\d{3,}")
_LINK = re.compile(r"url\(#([^)]+)\)")


def colour(name: str) -> str:
    """Return the colour that stands for a name while a chart is drawn."""
    return f"#fe01{COLOURS.index(name):02x}"


def accessible(drawn: str, prefix: str, title: str, description: str) -> str:
    """Return a drawing as an element to be put into a page.

    Parameters
    ----------
    drawn : str
        An SVG document of matplotlib's.
    prefix : str
        Put before every id: many drawings share one page.
    title, description : str
        What those hear who do not see it.
    """
    root = ElementTree.fromstring(drawn)  # noqa: S314  # our own drawing, not a stranger's
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.removeprefix(_SVG) in ("style", "metadata"):
                parent.remove(child)
    for element in root.iter():
        _rewrite(element, prefix)
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-labelledby", f"{prefix}title {prefix}desc")
    for at, (tag, text) in enumerate((("title", title), ("desc", description))):
        told = ElementTree.Element(f"{_SVG}{tag}", {"id": f"{prefix}{tag}"})
        told.text = text
        root.insert(at, told)
    return _serialised(root)


def _rewrite(element: ElementTree.Element, prefix: str) -> None:
    """Give one element the page's colours and font, and ids of its own."""
    attributes = element.attrib
    target = attributes.pop(_XLINK, None)
    if target is not None:
        attributes["href"] = f"#{prefix}{target[1:]}"
    if "id" in attributes:
        if element.tag == f"{_SVG}g":
            del attributes["id"]  # nobody refers to groups
        else:
            attributes["id"] = prefix + attributes["id"]
    for name, value in attributes.items():
        if name in ("href", "id"):
            continue
        value = _LINK.sub(rf"url(#{prefix}\1)", value)
        if name in _COORDINATES:
            value = _DECIMALS.sub(lambda found: f"{float(found[0]):.2f}", value)
        elif name in ("style", "fill", "stroke"):
            value = _STAND_IN.sub(lambda found: f"var(--{COLOURS[int(found[1], 16)]})", value)
            value = _FAMILY.sub(r"\1system-ui, sans-serif", value)
        attributes[name] = " ".join(value.split())


def _serialised(root: ElementTree.Element) -> str:
    """Return an element as HTML takes it: no namespace prefixes, no XML declaration."""
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        if element.tag == "g" and element.text:
            element.text = element.text.strip()
        element.tail = None
    return ElementTree.tostring(root, encoding="unicode")
