"""Lay out a status in lines of coloured cells, for a terminal of any width. Pure."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence

from sparkops.command import quote
from sparkops.node.host import Gpu
from sparkops.operator.status import picture
from sparkops.operator.status.join import ENDED_WELL, GUARD_DOWN, GUARD_SILENT, INVENTORY, URGENCY
from sparkops.operator.status.merging import Block, Notice, merge
from sparkops.operator.status.picture import NodeRow, Source

Cell = tuple[str, str]
"""Text and colour; without a colour empty."""
Line = tuple[Cell, ...]
BAD, BUSY, GOOD, FAINT, STRONG = "red", "yellow", "green", "bright_black", "bold"
COLORS = {
    **dict.fromkeys(("healthy", "up", "ok", "reachable"), GOOD),
    **dict.fromkeys(("starting", "degraded", "stopping", "cordoned", "guard silent"), BUSY),
    **dict.fromkeys(("failed", "failing", "down", "unreachable"), BAD),
    **dict.fromkeys(("stopped", "absent", "none", "unknown"), FAINT),
}
"""By state of a service, gateway, node or health."""
STATES: Sequence[picture.State] = ("failed", "degraded", "unknown", "stopping", "starting", "healthy", "stopped")
"""Services are shown in this order."""
WIDE = 100_000
"""Columns of a pipe: no line is folded."""
BAR = 30
"""Columns of a progress bar."""
NEWS_S = 600.0
"""Seconds for which the phases of a change are shown after its last event, or as long as the old release is warm."""


def lines(status: picture.Status, width: int = WIDE, *, whole: bool = False) -> Iterator[Line]:
    """Yield a status as lines of at most `width` columns; a single longer word is cut.

    `whole`: with stopped containers and past events of its services.
    """
    for block in _blocks([row for row in status.drift if row.code in INVENTORY]):
        yield from _block(block, width)
        yield ()
    for finding in status.findings:
        since = time.strftime("%H:%M", time.localtime(finding.since))
        text = f"{finding.code} {finding.container} on {finding.node} since {since}: {finding.detail}"
        yield from _folded(f"{text}; next: {finding.next_step}", "", BAD, width)
    if status.findings:
        yield ()
    disk = any(node.disk_free_gib is not None for node in status.nodes)
    head = ("NODE", "STATE", "MEMORY AVAILABLE", *(("DISK FREE",) if disk else ()))
    yield from _cut(_aligned([head, *(_node(node)[: len(head)] for node in status.nodes)], ""), width)
    for node in status.nodes:
        for number, gpu in enumerate(node.gpus):
            yield from _gpu(f"{node.name}: GPU {number}", gpu, width)
    for node in status.nodes:
        yield from _cordon(node, width)
    yield from _unread(status.nodes, width)
    if status.gateway:
        yield from _cut([_gateway(status.gateway)], width)
    for block in _blocks([row for row in status.drift if row.code not in INVENTORY]):
        yield ()
        yield from _block(block, width)
    for service in sorted(status.services, key=lambda service: STATES.index(service.state)):
        yield ()
        yield from _service(service, width, whole=whole)
    if not status.services:
        yield ()
        unread = any(drift.code in (GUARD_DOWN, GUARD_SILENT) for drift in status.drift)
        read = all(node.reachable for node in status.nodes) and not unread
        text = "no service; next: sparkops up RECIPE" if read else "no service known: not every node could be read"
        yield from _folded(text, "", "", width)


def _unread(nodes: Iterable[NodeRow], width: int) -> Iterator[Line]:
    """Yield the errors of nodes, and a next step that several share once."""
    for block in merge(Notice("", "", node.name, node.error, node.next_step or "") for node in nodes if node.error):
        for problem in block.problems:
            yield from _failure(f"{', '.join(problem.nodes)}: {problem.text}", "", "", width)
        yield from _step(block.step.text, "", width)


def _blocks(rows: Sequence[picture.Drift]) -> list[Block]:
    """Return the drift, the most urgent first, with one line for the same drift on several nodes."""
    order = {code: number for number, code in enumerate(URGENCY)}
    drift = sorted(rows, key=lambda row: order.get(row.code, len(order)))
    return merge(Notice("drift", row.code, row.node, row.detail, row.next_step) for row in drift)


def _block(block: Block, width: int) -> Iterator[Line]:
    for head in block.heads:
        yield from _failure(head, "", "", width)
    yield from _step(block.step.text, "", width)


def age(seconds: float | None) -> str:
    """Return a duration in its largest unit, rounded down; `-` for none."""
    if seconds is None:
        return "-"
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def _node(node: NodeRow) -> Sequence[str | Cell]:
    opened = "guard silent" if node.cordon_unknown else "reachable"
    state = "unreachable" if not node.reachable else "cordoned" if node.cordon else opened
    memory = node.memory
    free = f"{memory.available_gib:.1f} of {memory.total_gib:.1f} GiB" if memory else "-"
    disk = "-" if node.disk_free_gib is None else f"{node.disk_free_gib:.1f} GiB"
    return node.name, (state, COLORS[state]), free, disk


def _cordon(node: NodeRow, width: int) -> Iterator[Line]:
    """Yield why nothing new starts on a node, and what a drain has taken from it."""
    parts = [f"cordoned: {node.cordon}"] if node.cordon else []
    parts += [f"taken from it: {', '.join(node.displaced)}"] if node.displaced else []
    if parts:
        yield from _folded(f"{node.name}: {'; '.join(parts)}; next: sparkops node return {node.name}", "", BUSY, width)


def _gpu(title: str, gpu: Gpu, width: int) -> Iterator[Line]:
    use = None if gpu.use is None else f"{gpu.use:.0%} busy"
    figures = ((gpu.power_w, "W"), (gpu.temperature_c, "°C"), (gpu.clock_mhz, "MHz"))
    parts = [title, use, *(f"{figure:.0f} {unit}" for figure, unit in figures if figure is not None)]
    if gpu.memory_used_gib is not None and gpu.memory_total_gib is not None:
        parts.append(f"{gpu.memory_used_gib:.1f} of {gpu.memory_total_gib:.1f} GiB used")
    yield from _folded("  ".join(part.replace(" ", "\0") for part in parts if part), "", "", width)


def _gateway(gateway: picture.GatewayRow) -> Line:
    where = gateway.url or gateway.address
    return (
        ("gateway  ", ""),
        (gateway.state, COLORS[gateway.state]),
        (f"  on {gateway.node}" + (f" ({where})" if where else ""), ""),
    )


def _service(service: picture.ServiceRow, width: int, *, whole: bool) -> Iterator[Line]:
    head: Line = ((service.name, STRONG), ("  ", ""), (service.state, COLORS[service.state]))
    yield from _cut([(*head, (f"  {service.url}", "")) if service.url else head], width)
    yield from _folded(service.unread or "", "  ", BUSY, width)
    yield from _step(service.next_step or "", "", width)
    if service.swap:
        yield from _swap(service.swap, service.name, width)
    yield from _folded(_warm(service.warm), "  ", FAINT, width)
    if service.waiting:
        yield from _folded(_waiting(service.waiting), "  ", BUSY, width)
    if service.hold:
        yield from _folded(f"on hold: {service.hold}", "  ", BUSY, width)
    hidden, compact = 0, service.state == "stopped" and not whole
    for replica, ranks in _releases(service.replicas):
        shown = [
            row for row in ranks if whole or row.problem or row.progress or not (compact or row.exit_code in ENDED_WELL)
        ]
        hidden += len(ranks) - len(shown)
        if shown:
            live = service.live
            active = live if live and (live.release, live.slot) == (replica.release, replica.slot) else None
            yield from _replica(replica, shown, active, width, whole=whole)
    if hidden:
        yield from _folded(f"and {hidden} stopped: sparkops status {service.name}", "  ", FAINT, width)
    for event in service.events if whole or _is_news(service) else ():
        yield from _folded(event, "  ", FAINT, width)


def _releases(replicas: Sequence[picture.ReplicaRow]) -> Iterator[tuple[picture.ReplicaRow, list[picture.RankRow]]]:
    """Yield each release in a slot with the containers of all its replicas: those with requests by themselves."""
    together: dict[tuple[str, str, bool], list[picture.ReplicaRow]] = {}
    for replica in replicas:
        together.setdefault((replica.release, replica.slot, replica.active), []).append(replica)
    for same in together.values():
        yield same[0], [rank for replica in same for rank in replica.ranks]


def _is_news(service: picture.ServiceRow) -> bool:
    """Return whether the last events of a service are shown: not those of a change that ended long ago."""
    recent = service.event_age_s is not None and service.event_age_s < NEWS_S
    return service.state != "stopped" and bool(service.swap or service.warm or recent)


def _swap(swap: picture.SwapRow, service: str, width: int) -> Iterator[Line]:
    verb, why = "return to" if swap.reverting else "swap to", f" ({swap.why})" if swap.why else ""
    yield from _folded(f"{verb} {swap.release}, {swap.mode}, phase {swap.phase}{why}", "  ", BUSY, width)
    step = f"promote {service}" if swap.waits_for_promote else f"status {service} --follow"
    yield from _folded(f"next: sparkops {step}", "    ", STRONG, width)


def _warm(row: picture.WarmRow | None) -> str:
    if row is None:
        return ""
    until = "" if row.until is None else time.strftime(" until %H:%M", time.localtime(row.until))
    return f"keeps {row.release} warm{until}; rollback{' --to it' if row.by_name else ''} switches in seconds"


def _waiting(row: picture.WaitingRow) -> str:
    limits = f"at most {row.most} requests, {row.limit_s:.0f} s each"
    return f"{row.requests} requests wait, longest {row.longest_s:.0f} s, about {row.left_s:.0f} s left ({limits})"


def _replica(
    replica: picture.ReplicaRow,
    ranks: Sequence[picture.RankRow],
    active: picture.Live | None,
    width: int,
    *,
    whole: bool,
) -> Iterator[Line]:
    """Yield the replicas of a release. `active`: the release that answers, if it is theirs, in whichever slot it is."""
    title = f"  {replica.slot:<5}  {replica.release}  age {age(replica.age_s)}"
    changes = (active and active.changes) or ()
    short = "  with --set" if changes and not whole else ""
    yield from _cut([((title, ""), ("  active" if replica.active else "", GOOD), (short, ""))], width)
    for change in changes if whole else ():
        yield from _folded(f"--set {quote(change)}", "    ", "", width)
    for rank, row in zip(ranks, _aligned(map(_rank, ranks), "    "), strict=True):
        yield from _cut([row], width)
        yield from _load(rank, width)
        if rank.progress and rank.health is not picture.Health.OK:
            yield from _progress(rank, rank.progress, width)
        yield from _failure(rank.problem, rank.next_step, "      ", width)


def _rank(rank: picture.RankRow) -> Sequence[str | Cell]:
    if rank.source is not Source.SEEN:
        color = COLORS.get(rank.health, FAINT)
        how = "not read, no report" if rank.source is Source.UNKNOWN else f"{rank.health}, as its guard reports"
        return rank.node, (rank.state, color), "up -", "port -", (how, color)
    color = COLORS[rank.health] if rank.exit_code is None else BAD if rank.problem else FAINT
    state = rank.state if rank.exit_code is None else f"{rank.state} ({rank.exit_code})"
    return rank.node, (state, color), f"up {age(rank.up_s)}", f"port {rank.port}", (rank.stage or "-", color)


def _load(rank: picture.RankRow, width: int) -> Iterator[Line]:
    """Yield the figures of an engine, folded between two figures."""
    if rank.running is None:
        return
    ttft = None if rank.ttft_s is None else f"TTFT {rank.ttft_s:.2f} s"
    shares = (("KV", rank.kv_use), ("prefix hits", rank.prefix_hits), ("drafts accepted", rank.draft_accepted))
    parts = [f"{rank.running} running", f"{rank.waiting} waiting", f"{rank.tok_s:g} tok/s", ttft]
    parts += [f"{name} {share:.0%}" for name, share in shares if share is not None]
    yield from _folded("  ".join(part.replace(" ", "\0") for part in parts if part), "      ", "", width)


def _progress(rank: picture.RankRow, text: str, width: int) -> Iterator[Line]:
    """Yield a bar of the time of the start, where its end is known, and the guard's words; the row has the stage."""
    if rank.left_s is not None and rank.up_s is not None:
        share = rank.up_s / max(1.0, rank.up_s + rank.left_s)
        size = max(1, min(BAR, width - 11))
        filled = round(size * share)
        yield ("      ", ""), ("█" * filled, BUSY), ("░" * (size - filled), FAINT), (f" {share:.0%}", "")
        text = text.partition(", ")[2]
    yield from _folded(text, "      ", BUSY, width)


def _failure(problem: str | None, next_step: str | None, indent: str, width: int) -> Iterator[Line]:
    for text in (problem or "").splitlines():
        yield from _folded(text, indent, BAD, width)
    if problem:
        yield from _step(next_step or "", indent, width)


def _step(next_step: str, indent: str, width: int) -> Iterator[Line]:
    for text in next_step.splitlines():
        yield from _folded(f"next: {text}", f"{indent}  ", STRONG, width)


def _folded(text: str, indent: str, color: str, width: int) -> Iterator[Line]:
    """Yield a text in lines of at most `width` columns; `\\0` is a space at which no line ends."""
    further = indent + "  "
    folded = textwrap.wrap(
        text, max(width, 20), initial_indent=indent, subsequent_indent=further, break_on_hyphens=False
    )
    yield from (((line.replace("\0", " "), color),) for line in folded)


def _aligned(rows: Iterable[Sequence[str | Cell]], indent: str) -> list[Line]:
    """Return rows with all columns but the last padded to their longest cell."""
    cells = [[cell if isinstance(cell, tuple) else (cell, "") for cell in row] for row in rows]
    widths = [max(len(text) for text, _ in column) for column in zip(*cells, strict=True)]
    return [
        ((indent, ""), *((f"{text:<{size}}  ", color) for (text, color), size in zip(row, widths, strict=True)))
        for row in cells
    ]


def _cut(rows: Iterable[Line], width: int) -> Iterator[Line]:
    """Yield lines without spaces at their end, cut to `width` columns."""
    for row in rows:
        text = "".join(text for text, _ in row).rstrip()
        most, kept = min(width, len(text)), list[Cell]()
        for cell, color in row:
            if part := cell[:most]:
                kept.append((part, color))
            most -= len(part)
        yield tuple(kept)
