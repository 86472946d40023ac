"""The machine's own processor, as Linux describes it; empty or None where nothing is said."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

__all__ = ["highest_clock_hz", "processor", "threads_per_core"]

_CPUS = Path("/sys/devices/system/cpu")


@lru_cache(maxsize=1)
def processor() -> dict[str, str]:
    """Return what /proc/cpuinfo says of the first CPU: ``"model name"``, ``"flags"``, ..."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    first = text.partition("\n\n")[0].splitlines()
    return {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in first)}


def highest_clock_hz() -> float | None:
    """Return the highest clock that the CPUs' governor may set; virtual machines tell none."""
    clocks = [int(text) for text in _told("cpufreq/cpuinfo_max_freq") if text.isdecimal()]
    return 1e3 * max(clocks) if clocks else None


def threads_per_core() -> int:
    """Return how many CPUs share a core's arithmetic units; 1 where that is not known for sure.

    A hypervisor may invent siblings, and a bound from half of the cores would be wrong.
    """
    if "hypervisor" in processor().get("flags", "").split():
        return 1
    cores = list(_told("topology/thread_siblings_list"))
    return max(1, len(cores) // len(set(cores))) if cores else 1


def _told(name: str) -> Iterator[str]:
    """Yield what a file says, one of each CPU that has it."""
    for path in _CPUS.glob(f"cpu[0-9]*/{name}"):
        try:
            yield path.read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            continue
