"""status, logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data, data_json, say
from sparkops.errors import NeedsPerson, UsageError

if TYPE_CHECKING:
    from sparkops.facts.docker import Container
    from sparkops.fleet.connected import Connected
    from sparkops.plan.picture import RankRow, ServiceRow, Status

ENDED_WELL = {0, 137, 143}  # by itself, or by `docker stop`
STATUS_PATIENCE_S = 0.0  # one try: status shows what is true now


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    app.command()(status)
    app.command()(logs)


def status(
    context: typer.Context,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object; `sparkops schema status` describes it.")
    ] = False,
) -> None:
    """Show every node and service. Ends with 1 if a node cannot be read, with 7 if a service needs a person."""
    from sparkops.fleet import observe
    from sparkops.fleet.connected import connect
    from sparkops.plan.drift import NEEDS_PERSON
    from sparkops.plan.status import join

    settings: Settings = context.obj
    fleet = settings.fleet()
    with connect(fleet, patience_s=STATUS_PATIENCE_S, required=False) as connected:
        front = fleet.gateway.node if fleet.gateway else None
        look = connected.on_each(lambda member: observe.report(member, at_gateway=member.name == front))
        reports = {**connected.unreachable, **look}
    joined = join(list(fleet.nodes), reports, fleet.gateway)
    if json:
        data_json(joined.model_dump(mode="json"))
    else:
        _show(joined)
    for row in joined.nodes:
        if not row.reachable:
            say(f"{row.name}: {row.error}", fg="red")
    if any(drift.code == NEEDS_PERSON for drift in joined.drift):
        raise typer.Exit(NeedsPerson.exit_code)
    if not all(row.reachable for row in joined.nodes):
        raise typer.Exit(1)


def _show(joined: Status) -> None:
    for node in joined.nodes:
        memory = node.memory
        free = f"{memory.available_gib:6.1f} of {memory.total_gib:.1f} GiB available" if memory else "unreachable"
        data(f"{node.name:<14} {free}")
    if joined.gateway:
        data(f"gateway        {joined.gateway.state} on {joined.gateway.node} ({joined.gateway.address})")
    for service in joined.services:
        _show_service(service)
    for drift in joined.drift:
        data(f"\ndrift {drift.code} on {drift.node}: {drift.detail}")
    if not joined.services:
        data("\nno service; next: sparkops deploy RECIPE")


def _show_service(service: ServiceRow) -> None:
    live = f"{service.live.release} ({service.live.slot})" if service.live else "nothing live"
    data(f"\n{service.name:<14} {service.state:<9} {live}  {service.url or ''}".rstrip())
    if service.swap:
        held = f"held by {service.swap.holder}" if service.swap.holder else "nobody holds it"
        data(f"  swap to {service.swap.release}, {service.swap.mode}, phase {service.swap.phase}: {held}")
    if service.hold:
        data(f"  on hold: {service.hold}")
    rows = [(replica, rank) for replica in service.replicas for rank in replica.ranks]
    shown = [(replica, rank) for replica, rank in rows if rank.exit_code not in ENDED_WELL]
    for replica, rank in shown:
        data(f"  {rank.node:<12} {replica.slot:<5} {replica.release}  {_line(rank)}")
    if len(shown) < len(rows):
        data(f"  and {len(rows) - len(shown)} stopped, which --json lists")


def _line(rank: RankRow) -> str:
    how = rank.state if rank.exit_code is None else f"{rank.state} with code {rank.exit_code}"
    parts = [f"{how:<20}", f"{rank.stage or '-':<22}", f"port {rank.port}"]
    if rank.running is not None:
        parts.append(f"{rank.running} running, {rank.waiting} waiting, {rank.tok_s:g} tok/s")
    return "  ".join(parts)


def logs(
    context: typer.Context,
    service: Annotated[str, typer.Argument(help="The service's name, as status shows it.")],
    node: Annotated[list[str] | None, typer.Option("--node", "-n", help="Only there; again for more.")] = None,
    rank: Annotated[int | None, typer.Option("--rank", help="Only this rank of a replica on several nodes.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come, until Ctrl-C.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", help="Only the last lines of each.")] = None,
) -> None:
    """Print the log of a service's newest container on each node."""
    from sparkops.commands import docker
    from sparkops.fleet.connected import Member, connect

    settings: Settings = context.obj
    with connect(settings.fleet(), node or ()) as connected:
        newest = _newest(connected, service, rank)
        if not newest:
            which = f"rank {rank} of {service}" if rank is not None else f"container of {service}"
            raise UsageError(f"there is no {which}", next_step="What there is: sparkops status")

        def print_log(member: Member) -> None:
            mark = f"{member.name} | " if len(newest) > 1 else ""
            if member.name in newest:
                command = docker.logs(newest[member.name].name, follow=follow, tail=tail)
                member.node.run(command, on_line=lambda line: data(f"{mark}{line}"))

        connected.all(print_log)


def _newest(connected: Connected, service: str, rank: int | None) -> dict[str, Container]:
    """The container that started last, on each node that has one."""
    from sparkops.fleet import observe

    wanted = {} if rank is None else {"rank": str(rank)}
    found = connected.all(lambda member: observe.containers(member, service=service, **wanted))
    return {name: max(each, key=lambda one: one.started_at) for name, each in found.items() if each}
