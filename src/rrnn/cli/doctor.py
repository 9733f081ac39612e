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
from rrnn.cli.bench import KernelRow, LayerRow, busy, kernel_rows, layer_rows
from rrnn.cli.shared import option, table


@dataclass
class Doctor:
    """Show versions and devices, which backends work on each device, and why others do not."""

    bench: Annotated[bool, option()] = False
    """Also measure what this machine reaches, which takes about a minute."""

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
        facts |= {"backends": [asdict(finding) for finding in findings]}
        if options.bench:
            kernels, layers = _measured(devices)
            facts["bench"] = {"kernels": list(map(asdict, kernels)), "layers": list(map(asdict, layers))}
        print(json.dumps(facts))
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
    if options.bench:
        _print_bench(devices)


def _measured(devices: dict[str, str]) -> tuple[list[KernelRow], list[LayerRow]]:
    """Return the measured speed of kernels and layers, on the GPUs if there are any, otherwise on the CPU."""
    measured = [device for device in devices if device.startswith("cuda")] or ["cpu"]
    kernels = [row for device in measured for row in kernel_rows(device)]
    return kernels, [row for device in measured for row in layer_rows(device)]


def _print_bench(devices: dict[str, str]) -> None:
    print("\nMeasuring, for about a minute per device …", flush=True)
    if warning := busy():
        print(warning)
    kernels, layers = _measured(devices)
    print("\nKernels, without the matrix product: the share of the bandwidth of a copy that they reach")
    head = "cell", "pass", "device", "dtype", "backend", "ms", "GB/s", "of a copy"
    rows = [
        (
            row.cell,
            "training" if row.training else "forward",
            row.device,
            row.dtype,
            row.backend,
            f"{row.ms:.2f}",
            f"{row.gb_per_s:.1f}",
            f"{100 * row.of_copy:.0f} %",
        )
        for row in kernels
    ]
    print(table(head, rows))
    print("\nLayers, a training step: how many times as fast as nn.LSTM with as many units")
    head = "cell", "device", "dtype", "ms", "nn.LSTM, ms", "times as fast"
    each = [
        (row.cell, row.device, row.dtype, f"{row.ms:.2f}", f"{row.lstm_ms:.2f}", f"{row.ratio:.1f}")
        for row in layers
    ]
    print(table(head, each))


def _devices() -> Iterator[tuple[str, str]]:
    """Yield (device, description), for a GPU with the properties that choose its kernels."""
    import torch

    from rrnn.backends.triton.plan import Gpu

    threads = torch.get_num_threads()
    yield "cpu", f"{platform.machine()}, {os.cpu_count()} cores, {threads} thread{'s' * (threads != 1)}"
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        gpu = Gpu.of(properties)
        facts = [
            properties.name,
            f"{properties.total_memory / 2**30:.0f} GiB",
            f"{gpu.multiprocessors} multiprocessors",
            f"{gpu.shared_per_block >> 10} KB shared memory",
            f"{gpu.l2_cache >> 20} MB L2 cache",
            *([f"{gpu.bandwidth / 1e9:,.0f} GB/s"] if gpu.bandwidth else []),
        ]
        yield f"cuda:{i}", ", ".join(facts)
    if torch.backends.mps.is_available():
        yield "mps", "Apple GPU"


def _findings() -> Iterator[Finding]:
    import torch

    from rrnn.backends import report
    from rrnn.backends.registry import FAMILIES_ONLY

    for device, _ in _devices():
        found = list(report(torch.device(device)))
        first = next(name for name, why in found if why is None and name not in FAMILIES_ONLY)
        for name, why in found:
            yield Finding(device, name, name == first, why)
