"""The verb logs."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from sparkops.errors import UsageError
from sparkops.node.docker import commands
from sparkops.node.docker.facts import Container
from sparkops.node.member import Member
from sparkops.operator.cli.named import load_fleet, require_service
from sparkops.operator.cli.options import NODES, SERVICE, whole
from sparkops.operator.cli.terminal import data
from sparkops.operator.deploy import observe
from sparkops.operator.fleet.connected import Connected, connect

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
) -> None:
    """Show a service's logs

    Prints the log of the newest container on each node.

    Example: sparkops logs qwen3.5-122b --since 10m --follow
    """
    if since is not None and not TIME.fullmatch(since):
        step = "a time span such as 90s, 10m or 1h30m, or a time such as 2026-11-25T09:30 or 2026-11-25T09:30:00Z"
        raise UsageError(f"--since: not a time: {since}", next_step=f"Pass {step}.")
    with connect(load_fleet(context.obj), node or ()) as connected:
        newest = _newest(connected, service, rank)
        if not newest:
            require_service(connected, service)
            which = f"rank {rank} of {service}" if rank is not None else f"container of {service}"
            raise UsageError(f"{which}: not found", next_step="sparkops status")

        def print_log(member: Member) -> None:
            mark = f"{member.name} | " if len(newest) > 1 else ""
            if member.name in newest:
                command = commands.logs(
                    newest[member.name].name, follow=follow, tail=tail, since=since, timestamps=timestamps
                )
                member.node.run(command, on_line=lambda line: data(f"{mark}{line}"))

        connected.all(print_log)


def _newest(connected: Connected, service: str, rank: int | None) -> dict[str, Container]:
    """Return the newest container on each node that has one."""
    labels = {"service": service} if rank is None else {"service": service, "rank": str(rank)}
    by_node = connected.all(lambda member: observe.containers(member, **labels))
    return {name: max(group, key=lambda container: container.started_at) for name, group in by_node.items() if group}
