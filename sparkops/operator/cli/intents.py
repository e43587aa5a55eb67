"""Send an intent to the leader of a service, follow it, and print its outcome as text, JSON and exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from sparkops.config.inventory import Fleet
from sparkops.errors import InPlaceFailed, NeedsOperator, PlanRefused, SparkopsError, UsageError
from sparkops.operator.cli.named import load_fleet, require_service
from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.progress import progress
from sparkops.operator.cli.terminal import confirm, data_json, say
from sparkops.operator.deploy import leads, sending
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.fleet.connected import connect
from sparkops.operator.fleet.guards import membership
from sparkops.operator.fleet.guards.ending import Ending, exit_code
from sparkops.operator.fleet.guards.following import Accepted, Following
from sparkops.operator.fleet.guards.leader import Leader, leading
from sparkops.serving.service_state import ways_out
from sparkops.serving.startup.durations import spell
from sparkops.swap.events import DONE
from sparkops.swap.model import MAX_REPLICAS, Mode
from sparkops.swap.orders import traffic
from sparkops.swap.trouble import NEXT

Target = tuple[Operation, Leader]
"""An operation, and the leader that gets its intent."""
Accept = Callable[[Operation, Leader], Accepted | None]
"""Send an intent to a leader; None: nothing to do."""
STEP = NEXT.lstrip()
"""How a line of a failure begins that is a next step, as of a start which failed."""


@dataclass(frozen=True)
class Options:
    """The options of a verb that sends an intent, beside those of its plan."""

    wait_s: float = 0.0
    json: bool = False
    detach: bool = False


def plan_options(
    fleet: Fleet,
    nodes: Sequence[str] | None = None,
    mode: str | None = None,
    without: Sequence[str] | None = None,
    *,
    allow_downtime: bool,
    promote: bool = True,
    replicas: str | None = None,
) -> DeployOptions:
    """Return the options of the plan. Raises UsageError for an unknown mode or node, or another number of replicas."""
    modes = [mode.value for mode in (Mode.BESIDE, Mode.ACROSS, Mode.ROLLING, Mode.IN_PLACE)]
    if mode is not None and mode not in modes:
        raise UsageError(f"--mode: unknown mode {mode}, expected one of: {', '.join(modes)}")
    for name in (*(nodes or ()), *(without or ())):
        fleet.node(name)
    known = Mode(mode) if mode else None
    chosen = DeployOptions(tuple(nodes or ()), known, allow_downtime, promote, frozenset(without or ()))
    return replace(chosen, replicas=_replicas(replicas))


def _replicas(text: str | None) -> int | Literal["all"] | None:
    if text is None or text == "all":
        return "all" if text else None
    if not text.isdecimal() or not 1 <= int(text) <= MAX_REPLICAS:
        raise UsageError(f"--replicas: expected a number from 1 to {MAX_REPLICAS}, or all; got {text!r}")
    return int(text)


@contextmanager
def leading_guard(fleet: Fleet, wait_s: float) -> Iterator[Target]:
    """Connect to every node that answers, and to the leader beside the gateway, whose node must answer."""
    fleet.require_gateway()
    with _reached(fleet, wait_s) as operation, leading(operation.connected.member(operation.node)) as leader:
        membership.require_inventory(operation.connected, operation.node, leader)
        yield operation, leader


@contextmanager
def _reached(fleet: Fleet, wait_s: float) -> Iterator[Operation]:
    """Connect to all nodes. Skips those that do not answer."""
    with connect(fleet, (), required=False) as connected, progress() as report:
        if fleet.gateway:
            connected.member(fleet.gateway.node)
        for name, error in connected.unreachable.items():
            say(f"skipping {name}: {error}", fg="yellow")
        yield Operation(connected, report, wait_s)


@contextmanager
def leader_of(fleet: Fleet, service: str, wait_s: float = 0.0) -> Iterator[Target]:
    """Connect to the leader of a service. Raises UsageError for an unknown or forgotten one."""
    with leading_guard(fleet, wait_s) as (operation, leader):
        _is_led(operation, leader, service)
        yield operation, leader


def _is_led(operation: Operation, leader: Leader, service: str, *, forgotten: bool = False) -> bool:
    """Return whether the leader has a service. Raises UsageError for an unknown one; `forgotten` ones are known too."""
    state = leads.state_by(operation.connected.member(operation.node), leader, service)
    if state is None or (state.journal.forgotten and not forgotten):
        require_service(operation.connected, service)
    return state is not None


def send(fleet: Fleet, service: str, accept: Accept, options: Options, *, back: bool = False) -> None:
    """Send an intent to the leader of a service, and follow it."""
    with leader_of(fleet, service, options.wait_s) as (operation, leader):
        _send(operation, leader, service, accept, options, back=back)


def _send(
    operation: Operation, leader: Leader, service: str, accept: Accept, options: Options, *, back: bool = False
) -> None:
    if accepted := accept(operation, leader):
        following = Following(leader, service, operation.report)
        conclude(following, accepted, detach=options.detach, json=options.json, wants_back=back)
    else:
        active = leader.state(service).journal.active
        print_nothing(service, active.release if active else "", json=options.json)


def print_nothing(service: str, release: str = "", *, json: bool) -> None:
    """Print that there is nothing to do; as JSON with the keys of every other result."""
    say(f"{service}: nothing to do", fg="green")
    if json:
        data_json({"service": service, **Ending("nothing", DONE, release).as_json()})


def send_stop(
    fleet: Fleet, service: str, options: Options, *, forget: bool, force: bool = False, yes: bool = False
) -> None:
    """Send the intent to stop a service; `forget`: then the one to forget it. Asks on a terminal, unless `yes`.

    Without a terminal it does not ask: the command names the one service that it stops. Raises PlanRefused for
    containers that no guard leads.
    """
    if sys.stdin.isatty() and not yes and not _confirms(fleet, service, force=force):
        return
    quiet = replace(options, json=options.json and not forget)
    with _reached(fleet, options.wait_s) as operation:
        connected = operation.connected
        with leading(connected.member(operation.node)) as leader:
            membership.require_inventory(connected, operation.node, leader)
            if _is_led(operation, leader, service, forgotten=forget):
                _send(operation, leader, service, _stopping(service, force=force), quiet)
            elif running := leads.running(connected, service):
                names = [f"docker stop {' '.join(names)} on {node}" for node, names in running.items()]
                problem = f"{service}: containers run, but no guard leads the service"
                raise PlanRefused(problem, next_step="\n".join(names))
            elif not forget:
                print_nothing(service, json=options.json)
            if forget:
                _forget(operation, leader, service, json=options.json)


def _confirms(fleet: Fleet, service: str, *, force: bool) -> bool:
    """Ask whether a service may stop, before the live display begins. Not of what does not serve, or is refused."""
    name = fleet.require_gateway().node
    with connect(fleet, (name,), required=False) as connected, leading(connected.member(name)) as leader:
        state = leads.state_by(connected.member(name), leader, service)
    serving = traffic(state.journal) if state else None
    if state is None or serving is None or (state.swap and not force):
        return True
    requests = state.gateway.requests(serving) if state.gateway else None
    count = "an unknown number of requests" if requests is None else f"{requests} request{'' if requests == 1 else 's'}"
    return confirm(f"Stop {service}, which serves {count}?", yes=False)


def _stopping(service: str, *, force: bool) -> Accept:
    return lambda operation, leader: operation.until_free(lambda: sending.stop(leader, service, force=force))


def _forget(operation: Operation, leader: Leader, service: str, *, json: bool) -> None:
    """Let the leader of a stopped service forget it. Raises Busy, PlanRefused, NodeError."""
    if not operation.until_free(partial(sending.forget, leader, service)):
        print_nothing(service, json=json)
        return
    say(f"{service}: forgotten; its names and port are free", fg="green")
    if json:
        data_json({"service": service, **Ending("forgotten", DONE).as_json()})


def follow(settings: Settings, service: str, *, json: bool) -> None:
    """Follow the swap or stop of a service that is in progress, and print its result."""
    send(
        load_fleet(settings),
        service,
        lambda operation, leader: sending.in_progress(leader, service, operation.report),
        Options(json=json),
    )


def conclude(following: Following, accepted: Accepted, *, detach: bool, json: bool, wants_back: bool = False) -> None:
    """Follow an accepted intent to its end and print the result; with `detach` only how to follow it.

    Raises the error with the intent's exit code. `wants_back`: the return to the old release is a success.
    """
    service = following.service
    if detach:
        _show_accepted(service, accepted, json=json)
        return
    ending = following.until_end(accepted)
    code = exit_code(ending, wants_back=wants_back)
    if json:
        data_json({"service": service, **ending.as_json(), "exit_code": code})
    if code:
        raise _failure(service, ending, code)
    _show_success(service, ending)


def _show_success(service: str, ending: Ending) -> None:
    """Print the result of an intent that succeeded, and how long it took."""
    serves = f"{ending.release} serves" if ending.release else "no release serves"
    results = {
        "done": serves,
        "stopped": "stopped",
        "waiting": f"{ending.release} is active and waits for promotion",
    }
    result = results.get(ending.result, f"{ending.result}: {serves}")
    mode = f", mode {ending.mode}" if ending.mode else ""
    took = f", {spell(sum(ending.seconds.values()))}" if ending.seconds else ""
    say(f"{service}: {result}{mode}{took}", fg="green")
    if ending.cut:
        say(f"  {ending.cut} requests were cut at the end of the drain", fg="yellow")
    if ending.result == "waiting":
        say(f"  next: sparkops promote {service}, or: sparkops rollback {service}", bold=True)


def _show_accepted(service: str, accepted: Accepted, *, json: bool) -> None:
    """Print that an intent is accepted, and how to follow it."""
    say(f"{service}: accepted; the fleet continues without this client", fg="green")
    for command in ways_out(service):
        say(f"  next: {command}", bold=True)
    if json:
        data_json({"service": service, "result": "accepted", "intent": accepted.intent or None})


def _failure(service: str, ending: Ending, code: int) -> SparkopsError:
    """Return the error of an intent that failed."""
    serves = f"{ending.release} serves" if ending.release else "no release serves"
    kinds = {InPlaceFailed.exit_code: InPlaceFailed, NeedsOperator.exit_code: NeedsOperator}
    why = ending.why if ending.why.startswith(ending.result) else f"{ending.result}: {ending.why}"
    first, *details = why.splitlines()
    steps = [line.removeprefix(STEP) for line in details if line.startswith(STEP)]
    facts = [line for line in details if not line.startswith(STEP)]
    problem = "\n".join([f"{service}: {first}; {serves}", *facts])
    step = "\n".join([*steps, ending.next_step or f"sparkops history {service}"])
    error = kinds.get(code, SparkopsError)(problem, next_step=step)
    error.exit_code = code
    return error
