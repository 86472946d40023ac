"""What strategies may know of a recorded space of ours beforehand: as in tuning itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.hardware.catalogue import recognised
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant, stencil
from tilewright.tuning.background import OF_ONE_PROBLEM, features_on, forecast_on
from tilewright.tuning.recorded.reading import UNNAMED, read_recordings
from tilewright.tuning.recorded.recording import Recording
from tilewright.tuning.strategies.base import Background, Lesson

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["about_of", "background_of", "lessons_from", "whole_config"]


def background_of(recording: Recording, others: Sequence[Recording] = ()) -> Background:
    """Return what is known of a recording's configs, with other recordings as lessons.

    Parameters
    ----------
    recording : Recording
        The one that is searched.
    others : sequence of Recording
        Those of them count that are of the same kernel.

    Returns
    -------
    Background
        Without features and forecast where the kernel is none of our stencils, or its device
        none of the catalogue.
    """
    about = about_of(recording)
    of = [one for one in others if one.space.stencil_name == recording.space.stencil_name]
    if about is None:
        return Background(lessons=lambda: tuple(map(_plain, of)))
    family, problem, spec = about
    features, forecast = features_on(family, problem, spec), forecast_on(family, problem, spec)
    return Background(
        lambda configs: features([whole_config(recording, config) for config in configs]),
        forecast
        and (lambda configs: forecast([whole_config(recording, config) for config in configs])),
        lambda: tuple(lesson for one in of if (lesson := _lesson(recording, one)) is not None),
        OF_ONE_PROBLEM,
    )


def about_of(recording: Recording) -> tuple[Stencil, Problem, DeviceSpec] | None:
    """Return the stencil, the problem and the device of a recording of ours."""
    device = recognised(str(recording.about.get("device", "")))
    told: Any = recording.about.get("problem")
    if device is None or not isinstance(told, dict):
        return None
    try:
        family = stencil(recording.space.stencil_name)
        m, n, k = (int(told[side]) for side in "mnk")
        trans_a, trans_b = (Trans(told[name]) for name in ("trans_a", "trans_b"))
        return family, Problem(m, n, k, told["precision"], trans_a, trans_b), device.spec
    except (KeyError, TypeError, ValueError):
        return None


def whole_config(recording: Recording, config: Config) -> Config:
    """Return a recorded config as its stencil knows it."""
    values = {**recording.about["fixed"], **config}
    named = {name: value for name, value in values.items() if value != UNNAMED}
    return Config(recording.space.stencil_name, named)


def _lesson(recording: Recording, other: Recording) -> Lesson | None:
    about = about_of(other)
    if about is None:
        return None
    whole = [whole_config(other, config) for config in other.space.configs]
    configs = [_as_in(recording, config) for config in whole]
    asked = about_of(recording)
    alike = asked is not None and Variant.of(asked[1]) == Variant.of(about[1])
    return Lesson(configs, other.seconds, features_on(*about)(whole), alike)


def _as_in(recording: Recording, whole: Config) -> Config:
    """Return a config as a recording names it; with all its values where none of its could be."""
    names = [parameter.name for parameter in recording.space.parameters]
    values = {name: whole.get(name, UNNAMED) for name in names}
    same = recording.about["fixed"].items()
    possible = all(whole.get(name, UNNAMED) == value for name, value in same)
    return Config(recording.space.stencil_name, values if possible else {**whole, **values})


def lessons_from(
    files: Iterable[str | os.PathLike[str]], family: Stencil, problem: Problem
) -> tuple[Lesson, ...]:
    """Return what recorded spaces of a stencil teach of a problem; other kernels' teach nothing.

    Raises
    ------
    RecordingError
        If a file is no recorded space.
    """
    found = []
    for one in (one for file in files for one in read_recordings(file)):
        about = about_of(one)
        if about is not None and about[0].name == family.name:
            configs = [whole_config(one, config) for config in one.space.configs]
            alike = Variant.of(about[1]) == Variant.of(problem)
            found.append(Lesson(configs, one.seconds, features_on(*about)(configs), alike))
    return tuple(found)


def _plain(other: Recording) -> Lesson:
    none: NDArray[np.float64] = np.zeros((len(other), 0))
    return Lesson(other.space.configs, other.seconds, none)
