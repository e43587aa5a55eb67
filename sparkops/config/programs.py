"""The Python programs that sparkops sends to nodes and into containers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from sparkops.config import shipped
from sparkops.errors import UsageError

Modules = Mapping[str, str]
"""The modules of one program by name, each before those that import it; the last one is run."""

STORE = ("checkpoint", "partial", "store")
DESCRIBE = ("checkpoint", "hub", "describe")
TRANSFER = ("partial", "pieces", "handshake", "transfer")
LAYERS = ("layers",)
GRAPH = ("graph",)
LOAD = ("load",)
BENCH_TOOL = ("attended", "bench_tool")
BENCH_RUNS = ("bench_runs",)
PULL = ("checkpoint", "partial", "attended", "pull")
SURVEY = """import json, sys, node_survey
print(json.dumps(node_survey.survey(json.loads(sys.stdin.buffer.readline()))))"""
STEP = ("checkpoint", "partial", "attended", "step", "shards")
"""Modules that the scripts of steps share."""


@cache
def load(*names: str) -> Modules:
    """Return programs of templates/node."""
    root = shipped.directory("templates") / "node"
    return {name: (root / f"{name}.py").read_text(encoding="utf-8") for name in names}


@cache
def load_survey() -> Modules:
    """Return the program that reads a node for status: sparkops.node.survey.node_survey, which guards import."""
    text = (shipped.PACKAGE / "node" / "survey" / "node_survey.py").read_text(encoding="utf-8")
    return {"node_survey": text, "survey": SURVEY}


@cache
def load_step(script: str) -> Modules:
    """Return a script of templates/steps with its shared modules. Raises UsageError for an unknown script."""
    root = shipped.directory("templates") / "steps"
    scripts = {file.stem: file for file in sorted(root.glob("*.py"))}
    if script not in scripts:
        raise UsageError(f"unknown step script {script}, expected one of: {', '.join(scripts)}")
    return {**load(*STEP), script: scripts[script].read_text(encoding="utf-8")}
