"""Blocks that stay, and share tiles evenly: variants of the configs that are fast otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tilewright.space import Config, Space

CHOICES: tuple[Mapping[str, int], ...] = ({"stream_k": 2}, {"stream_k": 1}, {})


def staying(
    configs: Iterable[Config], space: Space, resident: Sequence[int] = ()
) -> Iterator[Config]:
    """Yield each config with blocks that stay: sharing more than a wave, one, and nothing.

    Parameters
    ----------
    configs : iterable of Config
        Whose blocks do not.
    space : Space
        Of which only points are made.
    resident : sequence of int
        Other numbers of blocks that a multiprocessor holds, tried behind each config's own.
    """
    for config in configs:
        own = config.integer("resident")
        for number in dict.fromkeys((own, *resident)):
            for choice in CHOICES:
                made = config.replace(persistent=1, resident=number, **choice)
                if made in space:
                    yield made
