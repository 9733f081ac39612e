"""`rrnn doctor`: show the devices of this machine, the backends that work on them, and why others do not."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from rrnn import __version__
from rrnn.cli.overrides import option
from rrnn.cli.tables import table


@dataclass
class Doctor:
    """Show versions and devices, which backends work on each device, and why others do not."""

    json: Annotated[bool, option()] = False
    """Print one JSON object instead of tables."""


@dataclass(frozen=True)
class Finding:
    """One backend on one device. `default`: whether it runs there if the user does not choose a backend."""

    device: str
    backend: str
    default: bool
    why_not: str | None

    def __str__(self) -> str:
        return f"no: {self.why_not}" if self.why_not else "runs by default" if self.default else "works"


def doctor(options: Doctor) -> None:
    import torch

    devices, findings = dict(_devices()), list(_findings())
    data = os.environ.get("RRNN_DATA")
    versions = {"rrnn": __version__, "torch": torch.__version__, "python": platform.python_version()}
    if options.json:
        facts = versions | {"platform": platform.platform(), "devices": devices, "data": data}
        print(json.dumps(facts | {"backends": [asdict(finding) for finding in findings]}))
        return
    rows = [(f.backend, f.device, str(f)) for f in findings]
    print(", ".join(f"{name} {version}" for name, version in versions.items()), f"on {platform.platform()}")
    print("\n" + table(("device", ""), list(devices.items())))
    print("\n" + table(("backend", "device", ""), rows) + "\n")
    if data is None:
        print("RRNN_DATA is not set. Set it to the folder with the data sets if you use your own.")
    else:
        print(
            f"RRNN_DATA is {data}"
            if Path(data).is_dir()
            else f"RRNN_DATA is {data}, but there is no such folder."
        )


def _devices() -> Iterator[tuple[str, str]]:
    """Yield (device, description)."""
    import torch

    yield "cpu", f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        yield f"cuda:{i}", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    if torch.backends.mps.is_available():
        yield "mps", "Apple GPU"


def _findings() -> Iterator[Finding]:
    import torch

    from rrnn.backends import report

    for device, _ in _devices():
        found = list(report(torch.device(device)))
        first = next(name for name, why in found if why is None)
        for name, why in found:
            yield Finding(device, name, name == first, why)
