"""The verbs node cordon, uncordon, drain and return."""

from __future__ import annotations

from typing import Annotated

import typer

from sparkops.node.cordon import Cordon
from sparkops.operator.cli.intents import conclude, leading_guard
from sparkops.operator.cli.named import load_fleet
from sparkops.operator.cli.options import ALLOW_DOWNTIME, DRY_RUN, JSON, MAINTENANCE, WAIT
from sparkops.operator.cli.terminal import data, data_json, say
from sparkops.operator.deploy import drain
from sparkops.operator.deploy.drain import DrainOptions, Follow, NodePlan
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.fleet.guards import leases
from sparkops.operator.fleet.guards.following import Following
from sparkops.operator.fleet.guards.leader import Leader

NODE = Annotated[str, typer.Argument(metavar="NODE", help="Node of the inventory")]
MESSAGE = Annotated[
    str, typer.Option("--message", "-m", metavar="TEXT", help="Reason, shown when a deploy there is refused")
]


def cordon(context: typer.Context, node: NODE, message: MESSAGE = MAINTENANCE, wait: WAIT = 0.0) -> None:
    """Let nothing new start on NODE

    What serves there continues, and is restarted as before. The node keeps the reason, also over a reboot; `status` and
    `doctor` show it. `node uncordon` ends it, and `node return`.

    Exit code 4 while a swap may still start an engine there.

    Example: sparkops node cordon spark-2 --message "fan replacement on Friday"
    """
    fleet = load_fleet(context.obj)
    fleet.node(node)
    with leading_guard(fleet, wait) as (operation, _):
        kept = drain.change_cordon(operation, node, lambda was: was.closed(_reason(message)))
    say(f"{node}: cordoned: {kept.reason}", fg="green")


def uncordon(context: typer.Context, node: NODE, wait: WAIT = 0.0) -> None:
    """Let releases start on NODE again

    What a drain has taken from NODE stays where it is; `node return` brings it back instead.

    Exit code 4 if another change is in progress.

    Example: sparkops node uncordon spark-2
    """
    fleet = load_fleet(context.obj)
    fleet.node(node)
    with leading_guard(fleet, wait) as (operation, _):
        drain.change_cordon(operation, node, lambda _: Cordon())
    say(f"{node}: open", fg="green")


def drain_(
    context: typer.Context,
    node: NODE,
    message: MESSAGE = MAINTENANCE,
    to: Annotated[
        list[str] | None, typer.Option("--to", metavar="NODE", help="Move services only to NODE (repeatable)")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop what cannot move until NODE returns")] = False,
    allow_downtime: ALLOW_DOWNTIME = False,
    wait: WAIT = 0.0,
    dry_run: DRY_RUN = False,
    json: JSON = False,
) -> None:
    """Cordon NODE and move its services to other nodes

    For an update of driver, kernel or firmware. Each service moves by a deploy of its release to another node, one
    after the other. If one cannot move, nothing is changed, unless --stop is given. Old releases that are only kept
    warm on NODE stop at once. Ends once no engine runs on NODE. Continues when run again after an interruption, from
    any machine.

    Exit code 5 if refused and nothing changed, 4 if another change is in progress, else as for deploy.

    Example: sparkops node drain spark-2 --dry-run
    """
    fleet = load_fleet(context.obj)
    for name in (node, *(to or ())):
        fleet.node(name)
    options = DrainOptions(tuple(to or ()), stop, allow_downtime, _reason(message))
    with leading_guard(fleet, wait) as (operation, leader):
        leases.require_cordon(operation.connected.member(node))  # a node without a guard refuses before the plan
        planned = operation.until_free(lambda: drain.plan_drain(operation, leader, node, options))
        _show(planned, dry_run=dry_run, json=json)
        if not dry_run:
            drain.drain(operation, leader, planned, _follow(operation, leader))
    if json:
        data_json({**planned.as_json(), "dry_run": dry_run})
    if not dry_run:
        say(f"{node}: drained; no engine runs on it", fg="green")
        say(f"  next: sparkops node return {node}, after the work", bold=True)


def return_(context: typer.Context, node: NODE, wait: WAIT = 0.0, dry_run: DRY_RUN = False, json: JSON = False) -> None:
    """Open NODE and bring its services back

    Undoes cordon and drain. Each service that a drain has taken goes back to its nodes by a deploy, one after the
    other; what was deployed or stopped since then stays as it is. If one cannot return, nothing is changed: `node
    uncordon` opens NODE without them. Continues when run again after an interruption.

    Exit code 5 if refused and nothing changed, 1 if a service did not return, else as for deploy.

    Example: sparkops node return spark-2
    """
    fleet = load_fleet(context.obj)
    fleet.node(node)
    with leading_guard(fleet, wait) as (operation, leader):
        kept = leases.require_cordon(operation.connected.member(node))
        planned = operation.until_free(lambda: drain.plan_return(operation, leader, node, kept))
        _show(planned, dry_run=dry_run, json=json)
        if not dry_run:
            drain.bring_back(operation, leader, planned, _follow(operation, leader))
    if json:
        data_json({**planned.as_json(), "dry_run": dry_run})
    if not dry_run:
        say(f"{node}: returned" if kept != Cordon() else f"{node}: nothing to do", fg="green")


def _reason(message: str) -> str:
    return f"{message.strip() or MAINTENANCE}, by {leases.operator()}"


def _follow(operation: Operation, leader: Leader) -> Follow:
    return lambda service, accepted: conclude(
        Following(leader, service, operation.report), accepted, detach=False, json=False
    )


def _show(planned: NodePlan, *, dry_run: bool, json: bool) -> None:
    (data if dry_run and not json else say)(str(planned))
