"""``tilewright devices``: what there is to compute on; ``--probe`` writes one's numbers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.output import (
    DeviceOption,
    JsonOption,
    emit_json,
    emit_lines,
    output_option,
    say,
)

__all__ = ["command"]


def command(
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure a device; write its TOML for bounds.")
    ] = False,
    device: DeviceOption = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1.0, help="What --probe may take.")
    ] = 50.0,
    output: Annotated[
        Path | None, output_option("What --probe writes; stdout without.", rb"name = .*\[numbers\]")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the devices here, the best first; the first is used unless you name another."""
    if probe:
        _probe(device, seconds, output, json=json)
        return
    for name, given in (("--device", device), ("--output", output)):
        if given is not None:
            raise ValueError(f"{name}={str(given)!r} goes with --probe; add it")
    _list(json=json)


def _probe(name: str | None, seconds: float, output: Path | None, *, json: bool) -> None:
    """Measure a device and write its file, which is read back first."""
    from tempfile import TemporaryDirectory

    from tilewright.backend import device as find_device
    from tilewright.cli.microbench import measure
    from tilewright.hardware.catalogue import read_device
    from tilewright.microbench.probe import probe_toml
    from tilewright.microbench.session import fitting
    from tilewright.paths import write_atomically

    if output is not None and output.suffix.lower() != ".toml":
        raise ValueError(f"--output={str(output)!r} is no device's file; give a name in .toml")
    live = find_device(name)
    names = {"peak", "bandwidth", "link", "power", "mixes"}
    chosen = [one for one in fitting(live) if one.name in names]
    document = measure(live, chosen, seconds, None, quiet=json, show=False)
    for told in document["experiments"].values():
        if told["error"]:  # its numbers are missing in the file
            typer.echo(f"{told['title']}: {told['error']}", err=True)
    about = document["environment"]
    made_with = f"tilewright {about['tilewright']}, {live.platform}, {about['date'][:10]}"
    text = probe_toml(live, document["experiments"], made_with)
    with TemporaryDirectory() as folder:  # nothing that bounds would refuse is ever written
        copy = Path(folder) / "probe.toml"
        copy.write_text(text, encoding="utf-8")
        read = read_device(copy)
    if output is not None:
        write_atomically(output, text.encode())
    if json:
        emit_json({"toml": text, "output": None if output is None else str(output), **document})
    elif output is None:
        say(text.rstrip())
    else:
        say(f"{len(read.quantities)} numbers and {len(read.mixes)} mixes written to {output}")
        say(f"tilewright bound --device {output}")


def _list(*, json: bool) -> None:
    from rich.table import Column

    from tilewright.backend import devices

    found = devices()
    if json:
        facts = ("id", "backend", "platform", "driver", "fingerprint")
        emit_json([{f: getattr(d, f) for f in facts} | asdict(d.spec) for d in found])
        return
    if not found:
        from tilewright.backend.opencl.platforms import missing

        say(f"no device: {missing()}")
        return
    heads = (Column("id", no_wrap=True), "device", "units", "fp64", "platform", "fingerprint")
    emit_lines(heads, [
        (d.id, d.spec.name, f"{d.spec.multiprocessors} ({d.spec.kind})",
         "yes" if d.spec.has_fp64 else "no", _platform(d.platform), d.fingerprint)
        for d in found
    ])  # fmt: skip


def _platform(text: str) -> str:
    """Return a platform's name and version without how it was built; ``--json`` has it all."""
    return text.split(",")[0].split("  ")[0] + (")" if "(" in text else "")
