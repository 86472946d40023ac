"""Blocks that stay, and share tiles evenly: variants of the configs that are fast otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tilewright.space import Config, Space

CHOICES: tuple[Mapping[str, int], ...] = ({"stream_k": 2}, {"stream_k": 1}, {})


def staying(configs: Iterable[Config], space: Space) -> Iterator[Config]:
    """Yield each config with blocks that stay: sharing more than a wave, one, and nothing."""
    for config in configs:
        for choice in CHOICES:
            made = config.replace(persistent=1, **choice)
            if made in space:
                yield made
