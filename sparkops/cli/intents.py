"""Send intents to the leaders of a service, and follow them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from sparkops.cli.named import require_service
from sparkops.cli.outcome import conclude, conclude_all
from sparkops.cli.progress import progress
from sparkops.cli.terminal import data_json, say
from sparkops.config.inventory import Fleet
from sparkops.deploy import intents, leads
from sparkops.deploy.operation import Operation
from sparkops.deploy.placement import DeployOptions
from sparkops.errors import Interrupted, PlanRefused, SparkopsError, UsageError
from sparkops.guard_client.ending import Ending
from sparkops.guard_client.following import Accepted, Following, interrupted
from sparkops.guard_client.leader import Leader, leading
from sparkops.nodes.connected import connect
from sparkops.nodes.parallel import all_or_raise, on_each
from sparkops.swap.events import DONE
from sparkops.swap.model import Mode

Target = tuple[Operation, Leader]
"""An operation, and the leader that gets its intent."""
Accept = Callable[[Operation, Leader], Accepted | None]
"""Send an intent to a leader; None: nothing to do."""


@dataclass(frozen=True)
class Options:
    """The options of a verb that changes a service."""

    nodes: tuple[str, ...] = ()
    mode: str | None = None
    allow_downtime: bool = False
    wait_s: float = 0.0
    json: bool = False
    dry_run: bool = False
    detach: bool = False
    promote: bool = True
    without: tuple[str, ...] = ()
    apply_gateway: bool = False
    verbose: bool = False

    def choices(self, fleet: Fleet) -> DeployOptions:
        """Return the options of the plan. Raises UsageError for an unknown mode or node."""
        modes = [mode.value for mode in (Mode.BESIDE, Mode.ACROSS, Mode.IN_PLACE)]
        if self.mode is not None and self.mode not in modes:
            raise UsageError(f"--mode: unknown mode {self.mode}", next_step=f"One of: {', '.join(modes)}")
        for name in (*self.nodes, *self.without):
            fleet.node(name)
        mode = Mode(self.mode) if self.mode else None
        return DeployOptions(self.nodes, mode, self.allow_downtime, self.promote, frozenset(self.without))


@contextmanager
def gateway_leader(fleet: Fleet, wait_s: float = 0.0) -> Iterator[Target]:
    """Connect to every node that answers, and to the leader beside the gateway, whose node must answer."""
    with _reached(fleet, wait_s) as operation, leading(operation.connected.member(operation.node)) as leader:
        yield operation, leader


@contextmanager
def _reached(fleet: Fleet, wait_s: float, nodes: Sequence[str] = (), *, required: bool = False) -> Iterator[Operation]:
    """Connect to these nodes (all if empty). Skips those that do not answer; `required`: raises their error."""
    with connect(fleet, nodes, required=required) as connected, progress() as report:
        if fleet.gateway:
            connected.member(fleet.gateway.node)
        for name, error in connected.unreachable.items():
            say(f"skipping {name}: {error}", fg="yellow")
        yield Operation(connected, report, wait_s)


@contextmanager
def leaders(fleet: Fleet, service: str, wait_s: float = 0.0) -> Iterator[list[Target]]:
    """Yield the guards that lead a service: the one beside the gateway, else one for each replica; maybe none."""
    with _reached(fleet, wait_s) as operation, _leaders(operation, service) as targets:
        yield targets


@contextmanager
def _leaders(operation: Operation, service: str, *, forgotten: bool = False) -> Iterator[list[Target]]:
    """Yield the leaders. `forgotten`: also of a forgotten service. Raises UsageError for an unknown one."""
    connected, gateway = operation.connected, operation.connected.fleet.gateway
    with ExitStack() as opened:
        first = opened.enter_context(leading(connected.member(gateway.node))) if gateway else None
        targets = []
        for node, direct in leads.heads(connected, service, operation.report, first).items():
            leader = first if first and not direct else opened.enter_context(leading(connected.member(node)))
            targets.append((replace(operation, direct=node if direct else ""), leader))
        if not targets:
            all_or_raise(connected.unreachable)
        states = [leads.state_by(connected.member(at.node), leader, service) for at, leader in targets]
        if not any(state and (forgotten or not state.journal.forgotten) for state in states):
            require_service(connected, service)
        yield targets


def send(fleet: Fleet, service: str, accept: Accept, options: Options, *, back: bool = False) -> None:
    """Send an intent to every leader of a service, and follow all. Raises UsageError without a leader."""
    with leaders(fleet, service, options.wait_s) as targets:
        if not targets:
            raise UsageError(f"{service}: no guard leads it", next_step="sparkops status")
        _send_to(targets, service, accept, options, back=back)


def _send_to(targets: Sequence[Target], service: str, accept: Accept, options: Options, *, back: bool = False) -> None:
    operation, leader = targets[0]
    if len(targets) > 1:
        by_node = {operation.node: (operation, leader) for operation, leader in targets}
        outcomes = at_once(
            list(by_node),
            service,
            lambda node: follow(by_node[node], service, accept(*by_node[node]), options),
            operation.connected.cancel,
        )
        conclude_all(service, outcomes, {}, json=options.json, wants_back=back)
    elif accepted := accept(operation, leader):
        following = Following(leader, service, operation.report)
        conclude(following, accepted, detach=options.detach, json=options.json, wants_back=back)
    else:
        active = leader.state(service).journal.active
        _print_nothing(service, active.release if active else "", json=options.json)


def _print_nothing(service: str, release: str = "", *, json: bool) -> None:
    """Print that there is nothing to do; as JSON with the keys of every other result."""
    say(f"{service}: nothing to do", fg="green")
    if json:
        data_json({"service": service, **Ending("nothing", DONE, release).as_json()})


def at_once(
    nodes: Sequence[str], service: str, work: Callable[[str], Ending | Accepted | None], cancel: threading.Event
) -> dict[str, Ending | Accepted | SparkopsError | None]:
    """Follow several replicas in parallel; an error is the outcome of its replica. Raises Interrupted after Ctrl-C."""
    try:
        return on_each(nodes, work, cancel)
    except Interrupted:
        raise interrupted(service) from None


def follow(target: Target, service: str, accepted: Accepted | None, options: Options) -> Ending | Accepted | None:
    """Follow one replica of several to its end, unless there is nothing to do or to follow."""
    if accepted is None or options.detach:
        return accepted
    operation, leader = target
    return Following(leader, service, operation.report).until_end(accepted)


def send_stop(fleet: Fleet, service: str, nodes: Sequence[str], options: Options, *, forget: bool = False) -> None:
    """Send the intent to stop a service, without a gateway on `nodes` only; `forget`: then the one to forget it.

    Raises UsageError for some nodes of a service behind the gateway, PlanRefused for containers that no guard leads.
    """
    for name in nodes:
        fleet.node(name)
    alone = fleet.gateway is None
    with (
        _reached(fleet, options.wait_s, nodes if alone else (), required=alone) as reached,
        _leaders(reached, service, forgotten=forget) as targets,
    ):
        connected = reached.connected
        known = [
            (operation, leader)
            for operation, leader in targets
            if leads.state_by(connected.member(operation.node), leader, service)
        ]
        if nodes and any(not operation.direct for operation, _ in known):
            step = f"sparkops stop {service}"
            problem = f"--node: {service} is behind the gateway, whose leader stops it on all nodes"
            raise UsageError(problem, next_step=step)
        if chosen := [target for target in known if not nodes or target[0].node in nodes]:
            quiet = replace(options, json=options.json and not forget)
            _send_to(chosen, service, lambda at, leader: at.until_free(lambda: intents.stop(leader, service)), quiet)
        elif leader := leads.leader_elsewhere(connected, service):
            step = f"{leads.stop_step(connected, service, leader)} --node {leader}"
            raise UsageError(f"--node: {service} is led by {leader}, which stops all its ranks", next_step=step)
        elif running := leads.running(connected, service):
            names = [f"docker stop {' '.join(names)} on {node}" for node, names in running.items()]
            raise PlanRefused(f"{service}: containers run, but no guard leads the service", next_step="\n".join(names))
        elif not forget:
            _print_nothing(service, json=options.json)
        if forget:
            _forget(known or targets, service, json=options.json)


def _forget(targets: Sequence[Target], service: str, *, json: bool) -> None:
    """Let the leaders of a stopped service forget it. Raises Busy, PlanRefused, NodeError."""
    forgotten = [at.until_free(partial(intents.forget, leader, service)) for at, leader in targets]
    if not any(forgotten):
        _print_nothing(service, json=json)
        return
    say(f"{service}: forgotten; its names and port are free", fg="green")
    if json:
        data_json({"service": service, **Ending("forgotten", DONE).as_json()})
