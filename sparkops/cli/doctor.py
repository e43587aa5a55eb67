"""The verb doctor."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from sparkops.cli.models import read_token
from sparkops.cli.named import load_fleet
from sparkops.cli.options import ENDPOINT, JSON, NODES, TOKEN_FILE, YES
from sparkops.cli.progress import progress
from sparkops.cli.terminal import confirm, data, data_json, say
from sparkops.doctor.bundle import MANIFEST, archive, collect, files
from sparkops.doctor.diagnosis import DeviceRow, Diagnosis, FixRow, NodeHealth, PairRow
from sparkops.doctor.fixes import fixes
from sparkops.doctor.hub_login import HubLogin
from sparkops.doctor.run import DoctorResult, diagnose, fix_all
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

    --fix starts a stopped guard or gateway, drops page cache, turns on NTP and writes a missing CDI spec. It stops and
    removes nothing.

    --bundle writes versions, findings, status, events and logs of the guards, and the evidence of the last failures.

    Example: sparkops doctor --fix
    """
    login = HubLogin(read_token(token_file), endpoint)
    require_encrypted(login.token, endpoint)
    with connect(load_fleet(context.obj), node or (), patience_s=PATIENCE_S, required=False) as connected:
        result = _diagnose(connected, login)
        if fix and (rows := _fix(connected, result.diagnosis, yes=yes)):
            after = _diagnose(connected, login)
            result = DoctorResult(after.diagnosis.model_copy(update={"fixes": rows}), after.status)
        diagnosis, text = result.diagnosis, "\n".join(lines(result.diagnosis))
        if bundle:
            _write_bundle(bundle, files({**collect(connected, result), "doctor.txt": text}))
    if json:
        data_json(diagnosis.model_dump(mode="json"))
    else:
        data(text)
    if not diagnosis.ok:
        raise typer.Exit(1)


def _diagnose(connected: Connected, login: HubLogin) -> DoctorResult:
    with progress() as report:
        return diagnose(connected, report, login)


def _write_bundle(file: Path, texts: dict[str, str]) -> None:
    """Write a new file with mode 0600 and print its contents list. Raises UsageError."""
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(archive(texts, time.time()))
    except OSError as error:
        step = "Name a new file, such as --bundle sparkops-bundle.tar.gz"
        raise UsageError(f"--bundle: {file} cannot be written: {error.strerror}", next_step=step) from None
    say(f"wrote {file}, mode 0600: it contains node names and addresses: review it before sending it", fg="green")
    say(texts[MANIFEST].rstrip())


def _fix(connected: Connected, diagnosis: Diagnosis, *, yes: bool) -> list[FixRow]:
    """Print the fixes, ask for confirmation and run them. Return the results."""
    due = [*fixes(diagnosis.findings, connected.fleet.nodes)]
    for fix in due:
        say(f"{fix.finding.node}: {fix.finding.code}: {fix.words}")
    if not due:
        say("no finding has a safe fix")
    elif confirm(f"Run {len(due)} {'fix' if len(due) == 1 else 'fixes'}?", yes=yes):
        return fix_all(connected, due)
    return []


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the diagnosis as lines of text."""
    for node in diagnosis.nodes:
        yield from _node(node)
    joined = [pair for pair in diagnosis.pairs if pair.transport]
    for pair in joined:
        yield from _pair(pair)
    if diagnosis.pairs and not joined:
        yield "\nno two nodes share a network for ranks: each replica needs one node"
    for finding in diagnosis.findings:
        yield from _finding(finding)
    if diagnosis.fixes:
        yield ""
    for row in diagnosis.fixes:
        result = "fixed" if row.done else "not fixed"
        yield f"{row.node}: {row.code} {result}: {row.command}" + (f": {row.detail}" if row.detail else "")
    severities = [finding.severity.value for finding in diagnosis.findings]
    counts = ((severities.count(severity), severity) for severity in ("problem", "warning"))
    total = ", ".join(f"{number} {severity}{'' if number == 1 else 's'}" for number, severity in counts if number)
    yield f"\n{total or 'no problems found'}"


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
