"""What happened when: spans of host and device, Chrome's trace format.

Code anywhere marks what it does with ``with span("compile"):``.  That costs next to nothing
until somebody records; `tilewright.timeline.chrome.recording` writes what was recorded to a
file for Perfetto.
"""

from tilewright.timeline.spans import (
    device_span,
    drain,
    is_recording,
    merge,
    on_change,
    span,
    start,
    stop,
    traced,
)

__all__ = [
    "device_span",
    "drain",
    "is_recording",
    "merge",
    "on_change",
    "span",
    "start",
    "stop",
    "traced",
]
