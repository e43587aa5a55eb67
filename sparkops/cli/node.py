"""The verbs node cordon, drain and return."""

from __future__ import annotations

from typing import Annotated

import typer

from sparkops.cli.intents import conclude, leading_guard
from sparkops.cli.named import load_fleet
from sparkops.cli.options import ALLOW_DOWNTIME, DRY_RUN, JSON, WAIT, make_family
from sparkops.cli.terminal import data, data_json, say
from sparkops.deploy.operation import Operation
from sparkops.guard_client.cordon import Cordon
from sparkops.guard_client.following import Following
from sparkops.guard_client.leader import Leader
from sparkops.guard_client.leases import operator
from sparkops.maintenance import drain, returning
from sparkops.maintenance.drain import DrainOptions, Follow
from sparkops.maintenance.plan import NodePlan
from sparkops.maintenance.returning import ReturnOptions

family = make_family("node", "Take a node out of service, and back")
NODE = Annotated[str, typer.Argument(metavar="NODE", help="Node of the inventory")]
MESSAGE = Annotated[
    str, typer.Option("--message", "-m", metavar="TEXT", help="Reason, shown when a deploy there is refused")
]
MAINTENANCE = "maintenance"


@family.command()
def cordon(context: typer.Context, node: NODE, message: MESSAGE = MAINTENANCE, wait: WAIT = 0.0) -> None:
    """Let nothing new start on NODE

    What serves there continues, and is restarted as before. The node keeps the reason, also over a reboot; `status` and
    `doctor` show it. `node return` ends it.

    Exit code 4 while a swap may still start an engine there.

    Example: sparkops node cordon spark-2 --message "fan replacement on Friday"
    """
    fleet = load_fleet(context.obj)
    fleet.node(node)
    with leading_guard(fleet, wait) as (operation, _):
        kept = drain.change_cordon(operation, node, lambda was: was.closed(_reason(message)))
    say(f"{node}: cordoned: {kept.reason}", fg="green")


@family.command("drain")
def drain_(
    context: typer.Context,
    node: NODE,
    message: MESSAGE = MAINTENANCE,
    to: Annotated[
        list[str] | None, typer.Option("--to", metavar="NODE", help="Move services only to NODE (repeatable)")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop what fits on no other node until NODE returns")] = False,
    allow_downtime: ALLOW_DOWNTIME = False,
    wait: WAIT = 0.0,
    dry_run: DRY_RUN = False,
    json: JSON = False,
) -> None:
    """Cordon NODE and move its services to other nodes

    For an update of driver, kernel or firmware. Each service moves as a deploy moves it: its release passes its checks
    on the other node before it gets traffic. If a service fits nowhere else, nothing is changed, unless --stop is
    given. Ends once no engine runs on NODE. Continues when run again after an interruption, from any machine.

    Exit code 5 if refused and nothing changed, 4 if another change is in progress, else as for deploy.

    Example: sparkops node drain spark-2 --dry-run
    """
    fleet = load_fleet(context.obj)
    for name in (node, *(to or ())):
        fleet.node(name)
    options = DrainOptions(tuple(to or ()), stop, allow_downtime)
    with leading_guard(fleet, wait) as (operation, leader):
        drain.read_cordon(operation, node)  # a guard without cordons refuses before anything is planned
        planned = operation.until_free(lambda: _free(drain.plan_drain(operation, leader, node, options)))
        _show(planned, dry_run=dry_run, json=json)
        if not dry_run:
            drain.run(operation, leader, planned, _reason(message), options, _follow(operation, leader))
    if json:
        data_json({**_as_json(planned), "dry_run": dry_run})
    if not dry_run:
        say(f"{node}: drained; no engine runs on it", fg="green")
        say(f"  next: sparkops node return {node}, after the work", bold=True)


@family.command("return")
def return_(
    context: typer.Context,
    node: NODE,
    leave: Annotated[
        list[str] | None,
        typer.Option("--leave", metavar="SERVICE", help="Leave SERVICE where it is (repeatable)"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Return it despite problems found by doctor, and accept a lower speed")
    ] = False,
    wait: WAIT = 0.0,
    dry_run: DRY_RUN = False,
    json: JSON = False,
) -> None:
    """Check NODE, open it and bring its services back

    Undoes cordon and drain. Refused while doctor finds a problem on the node or its links. Each service that a drain
    has taken goes back to its nodes, with the checks of a deploy; what was deployed since then stays where it is. If
    one fails its checks there, or is slower than at its earlier starts on the node, the node is cordoned again. A
    service that cannot return keeps the node closed, unless --leave names it.

    Exit code 5 if refused and nothing changed, 1 if a service did not return, else as for deploy.

    Example: sparkops node return spark-2
    """
    fleet = load_fleet(context.obj)
    fleet.node(node)
    options = ReturnOptions(tuple(leave or ()), force)
    with leading_guard(fleet, wait) as (operation, leader):
        kept = drain.read_cordon(operation, node)
        if kept != Cordon() and not force:
            returning.require_sound(operation, node)
        planned = operation.until_free(lambda: _free(returning.plan_return(operation, leader, node, kept, options)))
        _show(planned, dry_run=dry_run, json=json)
        if kept != Cordon() and not dry_run:
            returning.run(operation, leader, planned, _follow(operation, leader), options)
    if json:
        data_json({**_as_json(planned), "dry_run": dry_run})
    if not dry_run:
        say(f"{node}: returned" if kept != Cordon() else f"{node}: nothing to do", fg="green")


def _reason(message: str) -> str:
    return f"{message.strip() or MAINTENANCE}, by {operator()}"


def _follow(operation: Operation, leader: Leader) -> Follow:
    return lambda service, accepted: conclude(
        Following(leader, service, operation.report), accepted, detach=False, json=False
    )


def _free(planned: NodePlan) -> NodePlan:
    """Return a plan. Raises Busy where only changes in progress stand against it."""
    if planned.busy:
        planned.require()
    return planned


def _show(planned: NodePlan, *, dry_run: bool, json: bool) -> None:
    """Print the plan, and raise its refusals."""
    (data if dry_run and not json else say)(str(planned))
    planned.require()


def _as_json(plan: NodePlan) -> dict[str, object]:
    return {
        "node": plan.node,
        "verb": plan.verb,
        "notes": list(plan.notes),
        "services": [step.as_json() for step in plan.steps],
    }
