"""The report: one self-contained HTML file from the store and the benchmarks' results.

Three steps, each of which knows only the one before: `gather` reads, ``sections`` turn what
was read into tables and figures (plain data), `page` draws them into one file.
"""

from tilewright.report.gather import gather
from tilewright.report.page import make_page
from tilewright.report.sections import make_sections

__all__ = ["gather", "make_page", "make_sections"]
