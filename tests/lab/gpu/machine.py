"""This machine's GPUs, and the ways in which they reach containers."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sparkops.config.node import Gpu as Way
from sparkops.config.node import NodeConfig
from sparkops.node.docker.commands import gpu as gpu_options
from tests.fleet.shell import FleetError, docker, run

WAYS: tuple[Way, ...] = ("runtime", "cdi", "devices")
QUERY = "name,memory.total,driver_version,compute_cap"
DRIVER = Path("/usr/local/nvidia")
"""Where some images of machines keep all of the driver; elsewhere its libraries lie among those of the system."""
LIBRARIES = re.compile(r"(?:libcuda|libnvidia-ml|libnvidia-ptxjitcompiler|libnvidia-nvvm)\.so\S* .*=> (\S+)")
SHOW = f"PATH=$PATH:{DRIVER}/bin LD_LIBRARY_PATH={DRIVER}/lib64:{DRIVER}/lib exec nvidia-smi --list-gpus"
PROBE_S = 60


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi names it. Memory in GiB."""

    name: str
    memory_gib: float
    driver: str
    capability: str


@dataclass(frozen=True)
class Reach:
    """One way to containers, and why it does not work here; an empty problem: it does."""

    way: Way
    problem: str


def parse(text: str) -> tuple[Gpu, ...]:
    """Read nvidia-smi's answer to QUERY, without header and units. Raises ValueError for anything else."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row]
    if any(len(row) != len(QUERY.split(",")) for row in rows):
        raise ValueError(f"nvidia-smi: expected {QUERY}, got {text!r}")
    return tuple(Gpu(name, int(mib) / 1024, driver, capability) for name, mib, driver, capability in rows)


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of this machine. Raises FleetError without nvidia-smi, ValueError for one without memory."""
    return parse(run("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"))


def free_gib() -> float:
    """Return the free memory of the first GPU in GiB. Raises FleetError, ValueError."""
    rows = run("nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits").splitlines()
    return int(rows[0]) / 1024


def driver_files(cache: str) -> Iterator[str]:
    """Yield the files of the driver that an engine needs, from the output of `ldconfig -p`."""
    yield from sorted({path for path in LIBRARIES.findall(cache) if "/i386-" not in path and "/lib32/" not in path})
    yield "/usr/bin/nvidia-smi"


def devices(numbers: Iterable[int]) -> NodeConfig:
    """Return `gpu: devices` of the GPUs with these numbers. Raises FleetError without ldconfig."""
    mounts = [str(DRIVER)] if DRIVER.is_dir() else [*driver_files(run("ldconfig", "-p"))]
    nodes = [f"/dev/nvidia{number}" for number in numbers]
    return NodeConfig(transport="local", gpu="devices", gpu_devices=[*nodes, *CONTROLS], gpu_mounts=mounts)


CONTROLS = ("/dev/nvidiactl", "/dev/nvidia-uvm")


def config(way: Way, numbers: Iterable[int]) -> NodeConfig:
    """Return what an inventory says of a node that gives its GPUs in this way."""
    return devices(numbers) if way == "devices" else NodeConfig(transport="local", gpu=way)


def reaches(image: str, count: int) -> Iterator[Reach]:
    """Try every way with a container of `image` that lists the GPUs."""
    for way in WAYS:
        options = gpu_options(config(way, range(count)))
        try:
            shown = docker("run", "--rm", *options, "--entrypoint=sh", image, "-c", SHOW, timeout=PROBE_S)
        except FleetError as error:
            yield Reach(way, str(error))
            continue
        listed = shown.count("GPU ")
        yield Reach(way, "" if listed >= count else f"{listed} of {count} GPUs listed")
