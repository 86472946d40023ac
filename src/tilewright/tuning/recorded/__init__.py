"""Recorded spaces: what every point of a space took, so that searching it needs no device."""

from tilewright.tuning.recorded.reading import read_recordings
from tilewright.tuning.recorded.recording import Recording

__all__ = ["Recording", "read_recordings"]
