"""The verb logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from sparkops.errors import UsageError
from sparkops.node.docker import commands
from sparkops.node.docker.facts import Container
from sparkops.operator.cli.named import load_fleet, require_service
from sparkops.operator.cli.options import NODES, SERVICE, whole
from sparkops.operator.cli.terminal import data, say
from sparkops.operator.deploy import leads, observe
from sparkops.operator.fleet.connected import Connected, connect
from sparkops.operator.fleet.parallel import all_or_raise, on_each
from sparkops.serving.service_state import ServiceState
from sparkops.swap.journal import Journal

TIME = re.compile(
    r"(\d+(\.\d+)?(ms|s|m|h))+"
    r"|\d{4}-\d\d-\d\d(T\d\d(:\d\d(:\d\d(\.\d+)?)?)?)?(Z|[+-]\d\d:\d\d)?"
    r"|\d+(\.\d+)?"
)
"""What `docker logs --since` reads: a span before now, a time of the node's clock or with a zone, or a Unix time."""


def logs(
    context: typer.Context,
    service: SERVICE,
    node: NODES = None,
    rank: Annotated[
        int | None,
        typer.Option("--rank", parser=whole(0), metavar="RANK", help="Limit to RANK of a replica on several nodes"),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until Ctrl-C")] = False,
    tail: Annotated[
        int | None,
        typer.Option("--tail", parser=whole(0), metavar="LINES", help="Print only the last LINES of each log"),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Print only lines since TIME, such as 10m or 2026-11-25T09:30"),
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Print the time of each line")] = False,
    every: Annotated[bool, typer.Option("--all", help="Print the logs of its other releases too")] = False,
) -> None:
    """Show a service's logs

    Prints the log of the active release, in a swap that of the new one too, each line after its release. Where neither
    has a container on the nodes, prints the log of the newest one.

    Example: sparkops logs qwen3.5-122b --since 10m --follow
    """
    if since is not None and not TIME.fullmatch(since):
        step = "a time span such as 90s, 10m or 1h30m, or a time such as 2026-11-25T09:30 or 2026-11-25T09:30:00Z"
        raise UsageError(f"--since: not a time: {since}", next_step=f"Pass {step}.")
    with connect(load_fleet(context.obj), node or (), required=bool(node)) as connected:
        for name, error in connected.unreachable.items():
            say(f"skipping {name}: {error}", fg="yellow")
        logs_by_mark = marked(_selected(connected, service, rank, every=every))
        if not logs_by_mark:
            require_service(connected, service)
            which = f"rank {rank} of {service}" if rank is not None else f"container of {service}"
            raise UsageError(f"{which}: not found", next_step="sparkops status")

        def print_log(mark: str) -> None:
            container, start = logs_by_mark[mark], mark if len(logs_by_mark) > 1 else ""
            command = commands.logs(container.name, follow=follow, tail=tail, since=since, timestamps=timestamps)
            node = connected.member(container.node).node
            node.run(command, on_line=lambda line: data(f"{start}{line}"))

        all_or_raise(on_each(logs_by_mark, print_log, connected.cancel))


def _selected(connected: Connected, service: str, rank: int | None, *, every: bool) -> list[Container]:
    """Return the containers whose logs are shown, in the order of nodes and starts."""
    labels = {"service": service} if rank is None else {"service": service, "rank": str(rank)}
    by_node = connected.all(lambda member: observe.containers(member, **labels))
    known = [item for group in by_node.values() for item in sorted(group, key=lambda item: item.started_at)]
    if every:
        return known
    journals = connected.on_each(lambda member: leads.state_on(member, service)).values()
    serving = served([state.journal for state in journals if isinstance(state, ServiceState)])
    names = {name for _, name in serving}
    wanted = [item for item in known if (item.node, item.name) in serving or (item.running and item.name in names)]
    newest = [max(group, key=lambda item: item.started_at) for group in by_node.values() if group]
    if newest and names and not wanted:
        others = " and ".join(f"{item.name} on {item.node}" for item in newest)
        missing = f"{' and '.join(sorted(names))} is not on {' or '.join(by_node)}"
        say(f"{service}: {missing}; these are the logs of {others}, which serves no more:", fg="yellow")
    return wanted or newest


def served(journals: Sequence[Journal]) -> frozenset[tuple[str, str]]:
    """Return node and container of the active release and of the new one of a swap, by the newest journal."""
    newest = max(journals, key=lambda journal: journal.position, default=None)
    if newest is None:
        return frozenset()
    swap = newest.unfinished
    releases = (newest.active, swap.target if swap else None)
    return frozenset(rank.place for release in releases if release for rank in release.ranks)


def marked(containers: Sequence[Container]) -> dict[str, Container]:
    """Return containers by what precedes their lines: the node, and the release where there are several."""
    releases = {container.release for container in containers}
    marks = [(item.node, *([item.release, item.slot] if len(releases) > 1 else [])) for item in containers]
    pairs = zip(marks, containers, strict=True)
    full = [(mark if marks.count(mark) == 1 else (item.node, item.name), item) for mark, item in pairs]
    return {f"{' '.join(mark)} | ": item for mark, item in full}
