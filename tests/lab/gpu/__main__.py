"""`make gpu`: run the GPU tests of this machine in order, and write docs/evidence/gpu-NAME.md."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tests.fleet.shell import FleetError, say
from tests.lab.gpu import machine
from tests.lab.gpu.options import Options

ONE = ("one", "failures", "research", "compare")
PARTS = {1: ONE, 2: (*ONE, "two", "replicas")}
HELP = {
    "name": "name of the report, docs/evidence/gpu-NAME.md",
    "recipe": "recipe of tests/lab/gpu/recipes for one node: gpu-tiny (vLLM 0.23.0), gpu-tiny-0.33 or gpu-tiny-sglang",
    "wheels": "directory of wheels, in place of the package index",
    "debian": "tar of a Debian trixie root with the packages of nodes, gateway and guard",
    "base": "tar of the image that the recipe builds on, from docker save",
    "reach": "how the GPU reaches containers: runtime, cdi or devices; else the first that works",
    "updates": "rolling updates in a row of the part replicas",
    "logs": "directory for outputs and logs",
}


def main() -> int:
    """Run the parts that this machine has GPUs for. Returns pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.gpu", description=__doc__)
    for field in fields(Options):
        parser.add_argument(f"--{field.name}", default=field.default, help=HELP[field.name])
    parser.add_argument("--part", action="append", choices=PARTS[2], help="run this part only (repeatable)")
    read = parser.parse_args()
    try:
        count = len(machine.gpus())
    except (FleetError, ValueError) as error:
        say(f"gpu: no NVIDIA GPU with memory of its own: {error}")
        return 1
    Options(**{field.name: getattr(read, field.name) for field in fields(Options)}).export()
    files = [str(Path(__file__).parent / f"test_{part}.py") for part in read.part or PARTS[min(count, 2)]]
    return int(pytest.main(["-m", "gpu", "--durations=0", *files]))


if __name__ == "__main__":
    sys.exit(main())
