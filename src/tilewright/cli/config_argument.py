"""A config on the command line: a JSON file, ``name=value,...``, a stored id, or ``default``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilewright.text import shown

__all__ = ["Wanted", "is_cubin", "wanted_config"]

# A config's JSON is a few hundred bytes; an export of a whole store stays below this.
_FILE_LIMIT = 2**28
# Ids have 12 hexadecimal digits; fewer than 4 would often name several configs.
_ID = re.compile(r"[0-9a-fA-F]{4,12}")


@dataclass(frozen=True)
class Wanted:
    """A config as somebody wrote it, unchecked; None where nothing was said.

    Parameters
    ----------
    values : dict or None
        Parameter values; None for the stencil's default.
    stencil, precision, trans : str or None
        What it belongs to and was measured for.
    partial : bool
        Whether the values change the default's, which gives the others.
    mode : str or None
        The launch mode that it was compiled in.
    """

    values: dict[str, Any] | None
    stencil: str | None = None
    precision: str | None = None
    trans: str | None = None
    partial: bool = False
    mode: str | None = None


def is_cubin(text: str) -> bool:
    """Whether an argument means a compiled file: any file that does not begin like JSON."""
    path = Path(text)
    if not _is_file(path):
        return path.suffix == ".cubin"
    with path.open("rb") as file:
        return file.read(64).lstrip()[:1] not in (b"{", b"[")


def _is_file(path: Path) -> bool:
    """Whether a file has this name: none has one that is too long, as values in a row may be."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def wanted_config(text: str, store: Path | None = None) -> Wanted:
    """Return the config that an argument means.

    Parameters
    ----------
    text : str
        A JSON file, ``name=value,...``, ``default``, ``default,name=value,...``,
        or a stored config's id or the first 4 or more of its digits.
    store : Path, optional
        Where stored configs are; the user's own results by default.

    Raises
    ------
    ValueError
        If it is none of these, or names several configs.
    RuntimeError
        If no stored config has that id.
    """
    if _is_file(Path(text)):
        return _from_file(Path(text))
    head, _, rest = text.partition(",")
    if head == "default":
        return Wanted(_pairs(rest) if rest else None, partial=bool(rest))
    if "=" in text:
        return Wanted(_pairs(text))
    if _ID.fullmatch(text):
        return _from_store(text, store)
    raise ValueError(
        f"config={text!r} is neither a file, name=value pairs, a config's id nor 'default'; "
        "write one of them"
    )


def _pairs(text: str) -> dict[str, Any]:
    """Return the values of ``name=value,...``; whole numbers become integers."""
    values: dict[str, Any] = {}
    for pair in text.split(","):
        name, equal, value = (part.strip() for part in pair.partition("="))
        if not (name and equal and value):
            raise ValueError(f"config={pair!r} is no name=value pair; write block_m=128,...")
        if name in values:
            raise ValueError(f"config gives {name} twice; give it once")
        values[name] = int(value) if re.fullmatch(r"[+-]?\d{1,18}", value) else value
    return values


def _from_file(path: Path) -> Wanted:
    if path.stat().st_size > _FILE_LIMIT:
        raise ValueError(f"{path} is larger than {_FILE_LIMIT >> 20} MiB; export one config")
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path} is no readable JSON: {problem}; give one config") from None
    return _only(_configs(document), str(path))


def _configs(document: Any) -> Iterator[Wanted]:
    """Yield the configs of what ``tune``, ``db show`` and ``db export`` write, or of plain data."""
    if not isinstance(document, dict):
        return
    if isinstance(document.get("results"), list):  # T4: db export
        for entry in document["results"]:
            if isinstance(entry, dict) and isinstance(entry.get("tilewright"), dict):
                yield from _configs(
                    {**entry["tilewright"], "parameters": entry.get("configuration")}
                )
    elif isinstance(document.get("parameters"), dict):  # a measurement's record: db show
        problem = document.get("problem")
        problem = problem if isinstance(problem, dict) else {}
        trans = f"{problem.get('trans_a', '')}{problem.get('trans_b', '')}"
        yield Wanted(
            document["parameters"],
            _text(document.get("stencil")),
            _text(problem.get("precision")),
            trans or None,
            mode=_text(document.get("mode")),
        )
    elif isinstance(document.get("config"), dict):  # tune: its problem is text, "SGEMM NT 512"
        named = re.match(r"([A-Z])GEMM ([NTCR]{2})\b", str(document.get("problem", "")))
        yield Wanted(
            document["config"],
            _text(document.get("stencil")),
            named[1].lower() if named else None,
            named[2] if named else None,
            mode=_text(document.get("mode")),
        )
    elif document:
        yield Wanted(document)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _only(found: Iterable[Wanted], where: str) -> Wanted:
    """Return the single config; what it was measured for is dropped where that differs."""
    distinct: list[Wanted] = []
    for one in found:
        if one not in distinct:
            distinct.append(one)
    if not distinct:
        raise ValueError(f"{where} holds no config; give an object of parameter values")
    first = distinct[0]
    for name, value in (first.values or {}).items():
        if not isinstance(value, str | int):
            raise ValueError(
                f"{where}: {name}={shown(value)} is no parameter's value; give a number"
            )
    said = first.stencil, first.values, first.mode
    if any((one.stencil, one.values, one.mode) != said for one in distinct):
        raise ValueError(f"{where} holds several configs; leave one, or name one by its id")
    precisions, pairs = {one.precision for one in distinct}, {one.trans for one in distinct}
    return replace(
        first,
        precision=first.precision if len(precisions) == 1 else None,
        trans=first.trans if len(pairs) == 1 else None,
    )


def _from_store(prefix: str, store: Path | None) -> Wanted:
    """Return the stored config whose id begins so."""
    from tilewright.tuning.store import Store

    with Store(store, create=store is None) as opened:
        measured = opened.configs(prefix)
    if not measured:
        raise RuntimeError(
            f"no stored config's id begins with {prefix!r};"
            " tilewright db show NUMBER has a result's"
        )
    found = [
        Wanted(
            dict(one.config),
            one.config.stencil,
            one.problem.precision.letter,
            one.problem.trans,
            mode=str(one.mode),
        )
        for one in measured
    ]
    return _only(found, f"id {prefix!r}")
