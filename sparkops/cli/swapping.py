"""promote, rollback, hold, unhold, history, and the swap of `deploy --blue-green`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkops.cli.fitting import section
from sparkops.cli.settings import WAIT, Settings, keep_of
from sparkops.cli.terminal import data, data_json, progress, say
from sparkops.errors import UsageError

if TYPE_CHECKING:
    from sparkops.config.inventory import Fleet
    from sparkops.fleet.planning import Order
    from sparkops.plan.option import Wish
    from sparkops.release import Release

SERVICE = Annotated[str, typer.Argument(help="The service's name, as status shows it.")]
JSON = Annotated[bool, typer.Option("--json", help="One JSON object at the end.")]


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    for verb in (promote, rollback, hold, unhold, history):
        app.command()(verb)


@dataclass(frozen=True)
class Options:
    """What the operator asked of a swap."""

    nodes: tuple[str, ...] = ()
    mode: str | None = None
    allow_downtime: bool = False
    wait_s: float = 0.0
    json: bool = False
    dry_run: bool = False

    def wish(self) -> Wish:
        """The same for the plan. Raises UsageError for a mode that there is not."""
        from sparkops.plan.journal import Mode
        from sparkops.plan.option import Wish

        modes = [mode.value for mode in Mode if mode is not Mode.FIRST]
        if self.mode is not None and self.mode not in modes:
            raise UsageError(f"there is no mode {self.mode}", next_step=f"One of: {', '.join(modes)}")
        return Wish(self.nodes, Mode(self.mode) if self.mode else None, self.allow_downtime)


def swap(settings: Settings, fleet: Fleet, release: Release, options: Options, *, promote: bool) -> None:
    """Bring what runs beside the services up, plan, and swap."""
    from sparkops.fleet import agents, blue_green
    from sparkops.render.gateway import Service

    wish = options.wish()
    service = Service(release.service, release.recipe.serve.port)
    with _order(fleet, release.id, options.wait_s, "deploy") as order:
        gateway = fleet.gateway
        assert gateway is not None  # noqa: S101 - _order has refused an inventory without one
        if options.dry_run:
            data(_plan(order, release, wish))
            return
        agents.ensure(order.connected, agents.load(fleet, [service]), order.tell)
        if settings.verbose:
            say(_plan(order, release, wish))
        done = blue_green.deploy(order, release, wish, promote=promote)
    if done is None:
        say(f"nothing to do: {release.id} serves {release.service}", fg="green")
    else:
        _told(release.service, done)
    say(f"  {gateway.url(service.port)}   model: {release.service}")
    if done and not promote:
        say(f"  next: sparkops promote {release.service}, or: sparkops rollback {release.service}", bold=True)
    if options.json:
        data_json(done or {"release": release.id, "mode": None})


def _plan(order: Order, release: Release, wish: Wish) -> str:
    from sparkops.fleet import planning

    made = planning.make_plan(order, release, wish, planning.read_journal(order, release.service)).plan
    if made is None:
        return f"nothing to do: {release.id} serves {release.service}"
    return f"{made}{section(order.connected, release.recipe, [rank.node for rank in made.ranks])}"


def _told(service: str, done: dict[str, Any]) -> None:
    seconds = done.get("seconds", {})
    parts = " · ".join(f"{phase} {took:g} s" for phase, took in seconds.items())
    say(f"{service}: {done['release']} serves, mode {done['mode']}", fg="green")
    if parts:
        say(f"  {parts}")
    if done.get("cut"):
        say(f"  {done['cut']} requests were still under way after the drain time and were cut", fg="yellow")
    if done.get("unfinished"):
        say(f"  {done['unfinished']}; the guards do the rest, see `sparkops status`", fg="yellow")


@contextmanager
def _order(fleet: Fleet, release: str, wait_s: float, verb: str = "") -> Iterator[Order]:
    """Connections to every node that answers; the gateway's must."""
    from sparkops.fleet.connected import connect
    from sparkops.fleet.planning import Order

    with connect(fleet, required=False) as connected, progress() as tell:
        order = Order(connected, keep_of(release), tell, wait_s, verb)
        if order.gateway in connected.unreachable:
            raise connected.unreachable[order.gateway]
        for name, error in connected.unreachable.items():
            say(f"{name} is left out: {error}", fg="yellow")
        yield order


def promote(context: typer.Context, service: SERVICE, wait: WAIT = 0.0, json: JSON = False) -> None:
    """Keep a release that waits with the traffic since `deploy --no-promote`; the old one is drained and retired."""
    from sparkops.fleet import blue_green

    settings: Settings = context.obj
    with _order(settings.fleet(), service, wait, "promote") as order:
        done = blue_green.promote(order, service)
    _told(service, done)
    if json:
        data_json(done)


def rollback(
    context: typer.Context,
    service: SERVICE,
    allow_downtime: Annotated[
        bool, typer.Option("--allow-downtime", help="Let the service be down where nothing else fits.")
    ] = False,
    wait: WAIT = 0.0,
    json: JSON = False,
) -> None:
    """Back to the previous release: one switch while it is warm, otherwise a whole swap with all its gates."""
    from sparkops.fleet import blue_green

    settings: Settings = context.obj
    wish = Options(allow_downtime=allow_downtime).wish()
    with _order(settings.fleet(), service, wait, "rollback") as order:
        done = blue_green.rollback(order, service, wish)
    _told(service, done)
    if json:
        data_json(done)


def hold(
    context: typer.Context,
    service: SERVICE,
    message: Annotated[str, typer.Option("--message", "-m", help="Why; everybody who is refused reads it.")],
) -> None:
    """Freeze a service: no deploy, no rollback, no guard acts until `unhold`."""
    _hold(context.obj, service, message)
    say(f"{service} is on hold: {message}")


def unhold(context: typer.Context, service: SERVICE) -> None:
    """End a hold."""
    _hold(context.obj, service, None)
    say(f"{service} is free")


def _hold(settings: Settings, service: str, reason: str | None) -> None:
    from sparkops.fleet.guarded import Link

    with _order(settings.fleet(), service, 0.0) as order:
        gateway_first = sorted(order.connected.members.values(), key=lambda member: member.name != order.gateway)
        for member in gateway_first:  # it may refuse, and then no other is asked
            with closing(Link(member.node)) as link:
                link.ask("hold", service, reason=reason)


def history(context: typer.Context, service: SERVICE, json: JSON = False) -> None:
    """Show a service's past events, oldest first: what was deployed, what was reverted, why, and the evidence."""
    from sparkops.fleet import past
    from sparkops.plan.history import lines

    settings: Settings = context.obj
    with _order(settings.fleet(), service, 0.0) as order:
        events = past.events(order.connected, order.gateway, service, order.tell)
    if json:
        data_json({"service": service, "events": events})
    for event in () if json else events:
        data("\n".join(lines(event)))
    if not events:
        say(f"{service}: no events recorded by the gateway's guard")
