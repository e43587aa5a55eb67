"""doctor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data, data_json, progress

if TYPE_CHECKING:
    from sparkops.plan.diagnosis import DeviceRow, Diagnosis, NodeHealth, PairRow
    from sparkops.plan.finding import Finding

PATIENCE_S = 0.0  # one try: doctor says what is true now


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    app.command()(doctor)


def doctor(
    context: typer.Context,
    node: Annotated[list[str] | None, typer.Option("--node", "-n", help="Only these nodes; again for more.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, as docs/doctor.md describes it.")] = False,
) -> None:
    """Look at every node and at the network between them, and say what to mend. Ends with 1 if a problem was found."""
    from sparkops.fleet import doctor as examining
    from sparkops.fleet.connected import connect

    settings: Settings = context.obj
    with connect(settings.fleet(), node or (), patience_s=PATIENCE_S, required=False) as connected, progress() as tell:
        found = examining.diagnose(connected, tell)
    if json:
        data_json(found.model_dump(mode="json"))
    else:
        data("\n".join(report(found)))
    if not found.ok:
        raise typer.Exit(1)


def report(found: Diagnosis) -> Iterator[str]:
    """The diagnosis for people, line by line."""
    for node in found.nodes:
        yield from _node(node)
    joined = [pair for pair in found.pairs if pair.transport]
    for pair in joined:
        yield from _pair(pair)
    if found.pairs and not joined:
        yield "\nno network for ranks joins any two nodes: a replica runs on one node"
    for finding in found.findings:
        yield from _finding(finding)
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
    yield from (f"  next: {line}" for line in finding.next_step.splitlines())


def _count(found: Diagnosis) -> str:
    if not found.findings:
        return "nothing to mend"
    kinds = [finding.severity.value for finding in found.findings]
    told = (
        f"{number} {kind}{'' if number == 1 else 's'}"
        for kind in ("problem", "warning")
        if (number := kinds.count(kind))
    )
    return ", ".join(told)
