"""The verb doctor."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sparkops.cli.inventory import load_fleet
from sparkops.cli.models import read_token
from sparkops.cli.options import ENDPOINT, JSON, NODES, TOKEN_FILE, YES
from sparkops.cli.progress import progress
from sparkops.cli.settings import Settings
from sparkops.cli.terminal import confirm, data, data_json, say
from sparkops.doctor.bundle import MANIFEST, archive, files
from sparkops.doctor.collect import collect
from sparkops.doctor.diagnosis import DeviceRow, Diagnosis, FixRow, NodeHealth, PairRow
from sparkops.doctor.fixes import fixes
from sparkops.doctor.hub_login import HubLogin
from sparkops.doctor.run import Seen, diagnose, fix_all
from sparkops.errors import UsageError
from sparkops.hub.pull import require_encrypted
from sparkops.network.finding import Finding
from sparkops.nodes.connected import Connected, connect

PATIENCE_S = 0.0  # one attempt: doctor reports the present state


def doctor(
    context: typer.Context,
    node: NODES = None,
    fix: Annotated[bool, typer.Option("--fix", help="Run the safe fixes, after confirmation")] = False,
    yes: YES = False,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="FILE", help="Write a redacted tar.gz for a bug report, mode 0600"),
    ] = None,
    token_file: TOKEN_FILE = None,
    endpoint: ENDPOINT = "",
    json: JSON = False,
) -> None:
    """Check nodes and their network

    Prints each finding with its reason and the next step. Exit code 1 if there is a problem.

    --fix runs only what stops and removes nothing: start a stopped guard or gateway, drop page cache, turn NTP on,
    write a missing CDI spec.

    --bundle holds versions, findings, status, events and logs of the guards, and the evidence of the last failures.

    Example: sparkops doctor --fix
    """
    settings: Settings = context.obj
    login = HubLogin(read_token(token_file), endpoint)
    require_encrypted(login.token, endpoint)
    with connect(load_fleet(settings), node or (), patience_s=PATIENCE_S, required=False) as connected:
        seen = _diagnose(connected, login)
        if fix and (done := _fix(connected, seen.diagnosis, yes=yes)):
            seen = _diagnose(connected, login)
            seen = replace(seen, diagnosis=seen.diagnosis.model_copy(update={"fixes": done}))
        if bundle:
            _write_bundle(bundle, {**collect(connected, seen), "doctor.txt": "\n".join(report(seen.diagnosis))})
    found = seen.diagnosis
    if json:
        data_json(found.model_dump(mode="json"))
    else:
        data("\n".join(report(found)))
    if not found.ok:
        raise typer.Exit(1)


def _diagnose(connected: Connected, login: HubLogin) -> Seen:
    with progress() as tell:
        return diagnose(connected, tell, login)


def _write_bundle(file: Path, parts: Mapping[str, Any]) -> None:
    """Write a new file with mode 0600 and print its contents list. Raises UsageError."""
    texts = files(parts)
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(archive(texts, time.time()))
    except OSError as error:
        step = "Name a new file, such as --bundle sparkops-bundle.tar.gz"
        raise UsageError(f"--bundle: {file} cannot be written: {error.strerror}", next_step=step) from None
    say(f"wrote {file}, mode 0600: it contains node names and addresses: review it before sending it", fg="green")
    say(texts[MANIFEST].rstrip())


def _fix(connected: Connected, found: Diagnosis, *, yes: bool) -> list[FixRow]:
    """Print the fixes, ask for confirmation and run them. Return the results."""
    due = [*fixes(found.findings, connected.fleet.nodes)]
    for one in due:
        say(f"{one.finding.node}: {one.finding.code}: {one.words}")
    if not due:
        say("no finding that --fix can repair")
    elif confirm(f"Run {len(due)} {'fix' if len(due) == 1 else 'fixes'}?", yes=yes):
        return fix_all(connected, due)
    return []


def report(found: Diagnosis) -> Iterator[str]:
    """Yield the diagnosis as lines of text."""
    for node in found.nodes:
        yield from _node(node)
    joined = [pair for pair in found.pairs if pair.transport]
    for pair in joined:
        yield from _pair(pair)
    if found.pairs and not joined:
        yield "\nno network for ranks between any two nodes: a replica needs one node"
    for finding in found.findings:
        yield from _finding(finding)
    if found.fixes:
        yield ""
    for row in found.fixes:
        result = "fixed" if row.done else "not fixed"
        yield f"{row.node}: {row.code} {result}: {row.command}" + (f": {row.detail}" if row.detail else "")
    yield "\n" + _count(found)


def _node(node: NodeHealth) -> Iterator[str]:
    if not node.reachable:
        yield f"{node.name:<14} unreachable"
        return
    memory = node.memory
    parts = [
        f"{memory.available_gib:.1f} of {memory.total_gib:.1f} GiB available" if memory else "",
        f"disk {node.disk_free_gib:g} GiB free" if node.disk_free_gib is not None else "",
        f"Docker {node.docker}",
        f"{node.gpu}, driver {node.driver}" if node.driver else "no GPU",
        f"kernel {node.kernel}",
        f"clock {node.clock_skew_s:+g} s" if node.clock_skew_s else "",
    ]
    yield f"{node.name:<14} " + " · ".join(part for part in parts if part)
    yield from (f"{'':<14} {_device(device)}" for device in node.devices)


def _device(device: DeviceRow) -> str:
    rows = ", ".join(map(str, device.gid_rows)) or "none"
    addresses = ", ".join(device.addresses) or "no IPv4"
    return f"{device.device} ({device.interface}) {device.state}  {addresses}  GID {rows}  MTU {device.mtu}"


def _pair(pair: PairRow) -> Iterator[str]:
    yield f"\n{' + '.join(pair.nodes)}: {pair.transport}"
    for link in pair.links:
        ends = " - ".join(f"{end.node} {end.device or ''} ({end.interface}) {end.address}" for end in link.ends)
        yield f"  {link.subnet}: {ends}".replace("  (", " (")


def _finding(finding: Finding) -> Iterator[str]:
    yield f"\n{finding.severity} {finding.code} on {finding.node}: {finding.problem}"
    if finding.reason:
        yield f"  reason: {finding.reason}"
    yield from (f"  next: {line}" for line in finding.next_step.splitlines())


def _count(found: Diagnosis) -> str:
    if not found.findings:
        return "no problems found"
    kinds = [finding.severity.value for finding in found.findings]
    told = (
        f"{number} {kind}{'' if number == 1 else 's'}"
        for kind in ("problem", "warning")
        if (number := kinds.count(kind))
    )
    return ", ".join(told)
