"""Uninstall sparkops from a node: read what it has and what needs it, and run the planned removals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from sparkops.command import Command
from sparkops.config.release import TAGS
from sparkops.errors import NotReady, PlanRefused, SparkopsError, UsageError, joined
from sparkops.gateway.commands import SHOW
from sparkops.gateway.facts import parse_gateway
from sparkops.names import GUARD
from sparkops.node.docker import places
from sparkops.node.docker.commands import model_dir, stop
from sparkops.node.docker_api import Facts
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.operator.build.weights import models
from sparkops.operator.deploy.prune.run import guard_states, read_disk, run_removals
from sparkops.operator.deploy.prune.uninstall import Extent, Installed, Uninstall, Uses, agents, plan, refusals
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards import leases, membership
from sparkops.serving.service_state import ServiceState

RUN_EXISTS = Command(("sh", "-c", f"[ ! -e {places.RUN} ] || echo exists"), timeout_s=10.0)


BUILDX = Command(
    (
        *("sh", "-c"),
        'cd "${DOCKER_CONFIG:-$HOME/.docker}/buildx" 2>/dev/null && [ -z "$(ls instances 2>/dev/null)" ] && pwd; true',
    ),
    timeout_s=10.0,
)
"""Prints the directory where `docker build` notes builds, unless the user has builders of their own in it."""


@dataclass(frozen=True)
class Target:
    """A node to uninstall. `without`: other nodes that were given up and need not answer."""

    connected: Connected
    node: str
    extent: Extent
    without: frozenset[str] = frozenset()

    @property
    def member(self) -> Member:
        return self.connected.member(self.node)

    @property
    def leader(self) -> Member | None:
        """The node whose guard leads this one; None if it leads itself, or its leader was given up.

        Raises PlanRefused if that node is unreachable.
        """
        settings = self.connected.fleet.gateway
        if settings is None or settings.node in (self.node, *self.without):
            return None
        if error := self.connected.unreachable.get(settings.node):
            step = f"If {settings.node} is lost: sparkops node uninstall {self.node} --without {settings.node}"
            raise PlanRefused(f"{error}; its guard leads {self.node}", next_step=error.steps(step))
        return self.connected.member(settings.node)


def prepare_uninstall(target: Target) -> Uninstall:
    """Return the plan. Changes nothing.

    Raises the reasons why nothing may be removed: PlanRefused for a service that needs the node, NotReady for a guard
    that does not answer, NeedsOperator for a journal that cannot be read; UsageError for a node that is not lost.
    """
    require_lost(target.connected, target.without)
    leader = target.leader
    if leader is not None:
        membership.require_leader(target.connected, leader.name)
    installed = _with_shared(target, read(target.member))
    uses = _uses(target, installed, leader)
    if problems := list(refusals(installed, uses, target.without)):
        raise joined(problems)
    dismissing = leader.name if leader is not None and leases.guarded(leader) else ""
    return plan(installed, target.extent, dismissing, uses)


def require_lost(connected: Connected, without: Collection[str]) -> None:
    """Raise UsageError for a node that was given up although its guard runs: it may lead, or have engines."""
    for name in sorted(without):
        if name in connected.members and leases.guarded(connected.member(name)):
            raise UsageError(f"--without {name}: its guard answers", next_step="Drop --without for this node.")


def read(member: Member) -> Installed:
    """Read everything of sparkops on a node. Raises NodeError."""
    found = {name: facts for name in agents() if (facts := member.engine.container(name)) is not None}
    return Installed(
        stored=read_disk(member),
        agents=tuple(found),
        guard_image=_guard_image(member, found),
        run_exists=bool(member.node.run(RUN_EXISTS).stdout.strip()),
        buildx=member.node.run(BUILDX).stdout.strip(),
        model_dir=model_dir(member.config),
        checkpoints=tuple(models.look(member).checkpoints.values()),
    )


def _with_shared(target: Target, installed: Installed) -> Installed:
    """Return the same, with the model files that other nodes have too, if they would be removed."""
    if not (target.extent.weights and installed.checkpoints):
        return installed
    others = target.connected.only([name for name in target.connected.members if name != target.node])
    shared, unasked = dict[str, str](), [*others.unreachable]
    for name, outcome in others.on_each(models.look).items():
        if isinstance(outcome, SparkopsError):
            unasked.append(name)
            continue
        theirs = {checkpoint.id for checkpoint in outcome.checkpoints.values()}
        shared |= {checkpoint.path: name for checkpoint in installed.checkpoints if checkpoint.id in theirs}
    return replace(installed, shared=shared, unasked=tuple(unasked))


def _guard_image(member: Member, found: Mapping[str, Facts]) -> str:
    """Return the image of the node's guard, or the newest one without its container; empty without one."""
    if container := found.get(places.CONTAINER):
        return str(container["Image"])
    images = [
        image
        for image in member.engine.images(recipe=GUARD)
        if any(tag.startswith(f"{TAGS}{GUARD}:") for tag in image["RepoTags"] or ())
    ]
    return str(max(images, key=lambda image: str(image["Created"]))["Id"]) if images else ""


def _uses(target: Target, installed: Installed, leader: Member | None) -> Uses:
    """Read what the node is used for. Raises NotReady if its guard, or its leader's, exists and does not run."""
    states: dict[str, ServiceState] = {}
    unreadable: list[SparkopsError] = []
    leading = leader or target.member
    if leading.engine.container(places.CONTAINER) is not None:
        if not _runs(leading, places.CONTAINER):
            problem = "its guard does not run: whether a service needs this node is unknown"
            raise NotReady(leading.name, problem, next_step=f"On {leading.name}: docker start {places.CONTAINER}")
        for service, state in guard_states(leading).items():
            if isinstance(state, SparkopsError):
                unreadable.append(state)
            elif not state.journal.forgotten:
                states[service] = state
    traffic: Sequence[str] = ()
    if places.GATEWAY in installed.agents and _runs(target.member, places.GATEWAY):
        services = parse_gateway(target.member.node.run(SHOW).stdout).services
        traffic = [name for name, service in services.items() if service.active]
    return Uses(states, leader is None, traffic, unreadable)


def _runs(member: Member, container: str) -> bool:
    facts = member.engine.container(container)
    return facts is not None and bool(facts["State"]["Running"])


def run(target: Target, planned: Uninstall, report: OnEvent, wait_s: float = 0.0) -> tuple[Command, ...]:
    """Run the planned removals that are still allowed, and return those that succeeded.

    Leases block intents and engine loads until the guard is removed; then nothing can start an engine here. A failed
    removal stops no other; it is raised at the end, with what `prepare_uninstall` raises.
    """
    with ExitStack() as leased:
        leading = target.leader or target.member
        leased.enter_context(leases.of_agents(leading, f"uninstall of {target.node}", report, wait_s))
        leased.enter_context(leases.on_node(target.member, "uninstall", report, wait_s))
        current = prepare_uninstall(target)
        if current.leader:
            report(Event(current.leader, f"its guard dismisses {target.node}"))
            membership.dismiss(target.connected, current.leader, target.node)
        first = [removal for removal in planned.agents if removal in current.agents]
        removed, errors = run_removals(target.member, first, report)
    if not errors:  # else a guard may still start engines
        rest = [removal for removal in planned.others if removal in current.others]
        more, errors = run_removals(target.member, rest, report)
        removed += more
    if errors:
        raise joined(errors)
    return tuple(removed)


def discard(member: Member, report: OnEvent, stays: Callable[[str], bool]) -> None:
    """Remove everything of sparkops from a node without a fleet, running engines too.

    Asks no guard: it may be the part that does not work. `stays`: whether an image or volume of this name is not to be
    removed. A failed removal stops no other; it is raised at the end.
    """
    _, errors = run_removals(member, plan_discard(member, stays).agents, report)
    if errors:  # a guard may still start engines
        raise joined(errors)
    for engine in read(member).stored.engines:
        member.node.run(stop(engine.name, grace_s=1))
    _, errors = run_removals(member, plan_discard(member, stays).removals, report)
    if errors:
        raise joined(errors)


def plan_discard(member: Member, stays: Callable[[str], bool]) -> Uninstall:
    """Return what `discard` removes. Raises NodeError."""
    installed = read(member)
    images = tuple(image for image in installed.stored.images if not any(map(stays, image.tags or (image.id,))))
    volumes = tuple(name for name in installed.stored.volumes if not stays(name))
    return plan(replace(installed, stored=replace(installed.stored, images=images, volumes=volumes)), Extent())
