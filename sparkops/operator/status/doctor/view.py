"""Lay out a diagnosis in lines: facts of nodes and links, then findings, the most urgent first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkops.node.network.finding import Severity
from sparkops.operator.status.doctor import rules
from sparkops.operator.status.doctor.diagnosis import DeviceRow, Diagnosis, NodeHealth, PairRow
from sparkops.operator.status.doctor.rules import AREAS, KINDS, urgency
from sparkops.operator.status.merging import Block, Notice, merge

AREAS_OF_FLEET = ("services", "guards")
"""Areas of which nothing is known on a node that was not read."""
HIDING = {rules.GUARD_DOWN.code, rules.GUARD_SILENT.code, rules.STATUS_FAILED.code}
"""Codes of findings that hide what a node has of these areas."""
ROOT = "sudo "
"""Precedes each command of a next step that needs root."""


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the diagnosis as lines of text. A finding of several nodes is one of them; steps as root are listed last.

    The devices of a node are listed if its network has a finding or connects it to no other node.
    """
    detailed = {finding.node for finding in diagnosis.findings if KINDS.get(finding.code) in AREAS["network"]}
    detailed |= {name for pair in diagnosis.pairs if not pair.transport for name in pair.nodes}
    for node in diagnosis.nodes:
        yield from _node(node, detailed=node.name in detailed)
    joined = [pair for pair in diagnosis.pairs if pair.transport]
    for pair in joined:
        yield from _pair(pair)
    if diagnosis.pairs and not joined:
        yield "\nno two nodes share a network for ranks: each replica needs one node"
    blocks = merge(
        Notice(finding.severity.value, finding.code, finding.node, finding.problem, finding.next_step)
        for finding in sorted(diagnosis.findings, key=urgency)
    )
    yield from _findings(blocks)
    yield from _root_steps([block for block in blocks if _needs_root(block)])
    if diagnosis.fixes:
        yield ""
    for row in diagnosis.fixes:
        result = "fixed" if row.done else "not fixed"
        yield f"{row.node}: {row.code} {result}: {row.command}" + (f": {row.detail}" if row.detail else "")
    yield from _verdict(diagnosis, blocks)


def _findings(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield each block, the reason of a code once, and the next step unless it needs root."""
    last = None
    for block in blocks:
        if block.code != last:
            yield ""
        yield from block.heads
        if block.code != last and block.code in KINDS:
            yield f"  reason: {KINDS[block.code].why}"
        if not _needs_root(block):
            yield from (f"  next: {line}" for line in block.step.text.splitlines())
        last = block.code


def _needs_root(block: Block) -> bool:
    return ROOT in block.step.text


def _root_steps(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield the steps that need root under one title, in columns."""
    rows = [(", ".join(block.step.nodes), block.code, block.step.text.replace(ROOT, "")) for block in blocks]
    if not rows:
        return
    yield "\nnext, as root:"
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for nodes, code, text in rows:
        for line in text.splitlines():
            yield f"  {nodes:<{widths[0]}}  {code:<{widths[1]}}  {line}"


def _verdict(diagnosis: Diagnosis, blocks: Sequence[Block]) -> Iterator[str]:
    """Yield the areas without findings in one line, and the number of problems and warnings."""
    found = {block.code for block in blocks}
    read = [node.name for node in diagnosis.nodes if node.reachable]
    unread = [node.name for node in diagnosis.nodes if not node.reachable]
    unknown = AREAS_OF_FLEET if unread or found & HIDING else ()
    fine = [
        area for area, kinds in AREAS.items() if area not in unknown and found.isdisjoint(kind.code for kind in kinds)
    ]
    yield ""
    if fine and read:
        yield f"no findings about {', '.join(fine)}" + (f" on {', '.join(read)}" if unread else "")
    if unknown:
        where = f" of {', '.join(unread)}" if unread else ""
        yield f"unknown{where}: {' and '.join(unknown)}; `sparkops status` shows what the fleet reports"
    counts = {severity: sum(len(block.problems) for block in blocks if block.kind == severity) for severity in Severity}
    total = ", ".join(
        f"{number} {severity}{'' if number == 1 else 's'}" for severity, number in counts.items() if number
    )
    yield total or "no problems found"


def _node(node: NodeHealth, *, detailed: bool) -> Iterator[str]:
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
    if detailed:
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
