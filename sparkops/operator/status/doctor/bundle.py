"""The archive of `doctor --bundle`: files for a bug report, without secrets."""

from __future__ import annotations

import io
import json
import platform
import re
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from sparkops import __version__, foreign, redact
from sparkops.command import Command
from sparkops.errors import SparkopsError
from sparkops.node.docker.places import CONTAINER, STATE
from sparkops.node.member import Member
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards.leader import connect_guard
from sparkops.operator.status.doctor.run import DoctorResult

MANIFEST = "CONTENTS.txt"
EVENTS, LINES, FILE_BYTES, FILES = 200, 500, 2**18, 200
"""Limits: events of a service, lines of a guard's log, characters of a text or of those events, files of a node."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
"""A part of a file's name that a node may choose: no path upwards, no control character."""
LOG = Command(("docker", "logs", "--timestamps", f"--tail={LINES}", CONTAINER), timeout_s=30.0)
# Prints the last failure of each service, in the guard's container: names of directories start with their time.
PROGRAM = """\
import json, pathlib, sys
root, most, files = pathlib.Path(sys.argv[1]), int(sys.argv[2]), {}
for service in sorted(root.iterdir()) if root.is_dir() else ():
    for saved in sorted(service.iterdir())[-1:]:
        for file in sorted(saved.iterdir()):
            files[str(file.relative_to(root))] = file.read_bytes()[-most:].decode(errors="replace")
print(json.dumps(files))
"""
EVIDENCE = Command(
    ("docker", "exec", CONTAINER, "python3", "-c", PROGRAM, f"{STATE}/v2/evidence", str(FILE_BYTES)), timeout_s=60.0
)


def collect(connected: Connected, result: DoctorResult) -> dict[str, Any]:
    """Return the parts of a bundle by file name. A part that cannot be read is replaced by the reason."""
    columns = {"arch", "kernel", "docker", "driver", "gpu"}
    versions = {
        "sparkops": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "nodes": {node.name: node.model_dump(include=columns) for node in result.diagnosis.nodes},
    }
    parts: dict[str, Any] = {
        "versions.json": versions,
        "doctor.json": result.diagnosis.model_dump(mode="json"),
        "status.json": asdict(result.status),
    }
    for node, outcome in connected.on_each(_of_node).items():
        files = outcome if isinstance(outcome, Mapping) else {"error.txt": str(outcome)}
        parts |= {f"nodes/{node}/{name}": part for name, part in named(files).items()}
    return parts


def named(files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the files of a node with the names that it gave, or under a number: it may be hostile."""
    return {
        name if all(map(NAME.fullmatch, name.split("/"))) else f"misnamed/{number}.txt": part
        for number, (name, part) in enumerate([*files.items()][:FILES])
    }


def _of_node(member: Member) -> dict[str, Any]:
    if member.engine.container(CONTAINER) is None:
        return {"error.txt": f"no container {CONTAINER}: nothing was deployed here"}
    return {
        **part("events", lambda: {"events.json": events(member)}),
        **part("evidence", lambda: evidence(member.node.run(EVIDENCE).stdout)),
        **part("guard-log", lambda: {"guard.log": (log := member.node.run(LOG)).stdout + log.stderr}),
    }


def part(name: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the files that `read` returns, or one with the error: the rest of a bundle is still useful."""
    try:
        return read()
    except SparkopsError as error:
        return {f"{name}-error.txt": str(error)}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:  # a node may be hostile
        return {f"{name}-error.txt": f"unexpected output of the node: {type(error).__name__}: {str(error)[:200]}"}


def events(member: Member) -> dict[str, list[Any]]:
    """Return the last events of each service of the guard. Raises what a guard's reply may raise."""
    with connect_guard(member) as guard:
        return {service: last(guard.events(service)) for service in guard.services()[:FILES]}


def last(events: list[Any]) -> list[Any]:
    """Return the last EVENTS events, or fewer where they are larger than a file of evidence: a node may be hostile."""
    kept = events[-EVENTS:]
    while len(json.dumps(kept)) > FILE_BYTES:
        kept = kept[len(kept) // 2 + 1 :]
    return kept


def evidence(printed: str) -> dict[str, str]:
    """Return the files that PROGRAM printed. Raises ValueError for anything else: a node may be hostile."""
    files = foreign.loads(printed)
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
        raise ValueError(f"expected files and their text, the node printed {printed[:200]!r}")
    return {f"evidence/{name}": text[-FILE_BYTES:] for name, text in files.items()}


def files(parts: Mapping[str, Any]) -> dict[str, str]:
    """Return the redacted text of each file, .json files as JSON."""
    texts = {name: _text(name, part) for name, part in sorted(parts.items())}
    sizes = (f"{len(text.encode()):>9} {name}" for name, text in texts.items())
    title = "For a bug report of sparkops. Sizes in bytes, and names; *** replaces possible secrets."
    return {MANIFEST: "\n".join([title, *sizes, ""]), **texts}


def _text(name: str, part: Any) -> str:
    if isinstance(part, str) and not name.endswith(".json"):
        return redact.document(part[-FILE_BYTES:])
    try:
        value = foreign.loads(part) if isinstance(part, str) else part
    except (ValueError, RecursionError):  # cut off at FILE_BYTES, or of a hostile node
        return redact.document(part[-FILE_BYTES:])
    return json.dumps(redact.hidden(value), indent=2) + "\n"


def archive(texts: Mapping[str, str], at_s: float) -> bytes:
    """Return a tar.gz of the files for their owner only, changed `at_s` seconds after 1970."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in texts.items():
            content, entry = text.encode(errors="replace"), tarfile.TarInfo(f"sparkops-bundle/{name}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(at_s)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
