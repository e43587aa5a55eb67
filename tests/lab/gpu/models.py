"""Checkpoints for the GPU runs: trained and quantized inside the engine's own image, where the engine reads them."""

from __future__ import annotations

import json
from pathlib import Path

from sparkops.command import Command
from sparkops.config.inventory import Fleet
from sparkops.node.docker.commands import gpu, model_dir
from sparkops.operator.fleet.connect import Connector
from tests.checkpoints import TRAINER

HERE = Path(__file__).parent
PROGRAMS = {"tiny_model.py": TRAINER, "mid_model.py": HERE / "mid_model.py", "quantize.py": HERE / "quantize.py"}
UNPACK = """import json, pathlib, runpy, sys
for name, text in json.load(sys.stdin).items():
    pathlib.Path("/tmp", name).write_text(text)
sys.path.insert(0, "/tmp")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")"""
INSIDE = 'python -c "$0" "$@" && chmod -R a+rX /out'


def make(fleet: Fleet, node: str, image: str, *argv: str) -> str:
    """Run one of PROGRAMS in `image` on a node, model_dir at /out. Returns what it prints. Raises NodeError."""
    config = fleet.node(node)
    programs = json.dumps({name: file.read_text() for name, file in PROGRAMS.items()})
    options = (
        "--rm",
        "--interactive",
        "--network=none",
        "--user=0:0",
        *gpu(config),
        f"--volume={model_dir(config)}:/out",
    )
    argv = ("docker", "run", *options, "--entrypoint=sh", image, "-c", INSIDE, UNPACK, f"/tmp/{argv[0]}", *argv[1:])
    connected = Connector(fleet).node(node)
    try:
        return connected.run(Command(argv, stdin=programs.encode(), timeout_s=300.0, changes=True)).stdout
    finally:
        connected.close()
