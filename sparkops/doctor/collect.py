"""Collect what a bug report needs from the guards: events, log and the evidence of failures."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from sparkops import __version__
from sparkops.docker.places import CONTAINER
from sparkops.doctor import bundle
from sparkops.doctor.run import Seen
from sparkops.errors import NodeError
from sparkops.nodes.connected import Connected, Member


def collect(connected: Connected, seen: Seen) -> dict[str, Any]:
    """Return the parts of a bundle by file name. A part that cannot be read is replaced by the reason."""
    found = seen.diagnosis
    columns = {"arch", "kernel", "docker", "driver", "gpu"}
    versions = {
        "sparkops": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "nodes": {node.name: node.model_dump(include=columns) for node in found.nodes},
    }
    parts: dict[str, Any] = {
        "versions.json": versions,
        "doctor.json": found.model_dump(mode="json"),
        "status.json": asdict(seen.status),
    }
    for node, files in connected.on_each(_of_node).items():
        named = files if isinstance(files, Mapping) else {"error.txt": str(files)}
        parts |= {f"nodes/{node}/{name}": part for name, part in named.items()}
    return parts


def _of_node(member: Member) -> dict[str, Any]:
    if member.engine.container(CONTAINER) is None:
        return {"error.txt": f"no container {CONTAINER}: nothing was deployed here"}
    return {
        **_attempt("events", lambda: {"events.json": _events(member)}),
        **_attempt("evidence", lambda: _evidence(member)),
        **_attempt("guard-log", lambda: {"guard.log": _log(member)}),
    }


def _attempt(name: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the part, or a file with the error: the rest of a bundle is still useful."""
    try:
        return read()
    except (NodeError, ValueError) as error:
        return {f"{name}-error.txt": str(error)}


def _events(member: Member) -> dict[str, Any]:
    """Return the last events of each service that the guard knows. Raises NodeError, ValueError."""
    services = bundle.reply(member.node.run(bundle.questions([{"op": "services"}])).stdout)
    asked = [{"op": "events", "service": service} for service in services]
    lines = member.node.run(bundle.questions(asked)).stdout.splitlines() if asked else []
    return {name: bundle.reply(line)[-bundle.EVENTS :] for name, line in zip(services, lines, strict=True)}


def _evidence(member: Member) -> dict[str, Any]:
    files: dict[str, str] = json.loads(member.node.run(bundle.evidence()).stdout)
    return {f"evidence/{name}": text for name, text in files.items()}


def _log(member: Member) -> str:
    ended = member.node.run(bundle.LOG)
    return ended.stdout + ended.stderr
