"""Recorded spaces: what every point of a space took, so that searching it needs no device."""

from tilewright.tuning.recorded.reading import RecordingError, read_recordings
from tilewright.tuning.recorded.recording import Recording
from tilewright.tuning.recorded.space import RecordedSpace

__all__ = ["RecordedSpace", "Recording", "RecordingError", "read_recordings"]
