"""Measure a release that serves, one concurrency after the other, and keep what is known after each on the leader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Literal

from sparkops import __version__
from sparkops.command import Command, quote
from sparkops.config.inventory import Gateway
from sparkops.config.recipe import Recipe
from sparkops.errors import Busy, NodeError, NotReady, SparkopsError, UsageError
from sparkops.node import host
from sparkops.node.docker.commands import model_dir
from sparkops.node.docker.places import CONTAINER
from sparkops.node.host import HostFacts
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.operator.bench import runs, tool
from sparkops.operator.bench.runs import Point, Run, Start
from sparkops.operator.bench.tool import Load, Outcome
from sparkops.operator.deploy import deployment
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards.leader import Leader, connect_guard
from sparkops.operator.fleet.transfer import transfer
from sparkops.serving import engine_spec
from sparkops.serving.memory.relief import floor_gib
from sparkops.serving.startup import estimate
from sparkops.swap.model import Deployment

CLOCKS = Command(("sh", "-c", f"{quote(*host.CLOCKS_ARGV)} 2>/dev/null || true"), timeout_s=15.0)
"""Prints nothing on a node without nvidia-smi."""


@dataclass(frozen=True)
class Target:
    """A release that serves: the node of rank 0 of its first replica, the image there, and where it is asked.

    `key`: the gateway's; empty for none. `url` is without /v1.
    """

    release: str
    recipe: Recipe
    node: str
    image: str
    url: str
    via: Literal["gateway", "engine"]
    key: str = field(default="", repr=False)


def target(active: Deployment, service: str, gateway: Gateway, key: str, *, direct: bool) -> Target:
    """Return what to measure: through the gateway, or with `direct` the engine of the first replica itself.

    Raises UsageError for an engine without a benchmark, PlanRefused for the release of another version.
    """
    recipe = deployment.kept_release(active, service).recipe
    tool.require(recipe)
    head = next(active.heads)
    spec = engine_spec.of(head)
    if direct:
        own = f"http://127.0.0.1:{spec.rank(head.node).port}"
        return Target(active.release, recipe, head.node, spec.image, own, "engine")
    url = gateway.url(recipe.serve.port).removesuffix("/v1")
    return Target(active.release, recipe, head.node, spec.image, url, "gateway", key)


def serving(leader: Leader, service: str) -> Deployment:
    """Return the release that serves. Raises Busy during a swap, UsageError for a service that is stopped."""
    state = leader.state(service)
    if state.swap:
        step = f"sparkops status {service} --follow"
        raise Busy(f"{service}: a swap to {state.swap.target.release} is in progress", next_step=step)
    if state.journal.active is None:
        raise UsageError(f"{service} is stopped", next_step=f"sparkops restart {service}")
    return state.journal.active


def new_run(member: Member, target: Target, service: str, load: Load, concurrencies: Sequence[int]) -> Run:
    """Return a run whose points are all to be measured, with what the node reports of the release and itself."""
    facts = host.parse(member.node.run(host.FREE).stdout)
    require_room(member, target.recipe, facts)
    recipe = target.recipe
    return Run(
        service=service,
        release=target.release,
        started=datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"),
        node=target.node,
        sparkops=__version__,
        recipe=recipe.name,
        engine=recipe.engine,
        image=target.image,
        model=recipe.model.id,
        revision=recipe.model.revision,
        model_path=recipe.model.path,
        args=recipe.model_dump(mode="json")["serve"]["args"],
        via=target.via,
        url=target.url,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        requests=load.requests,
        seed=load.seed,
        memory_total_gib=facts.memory_total_gib,
        memory_available_gib=facts.memory_available_gib,
        start=start_of(member, service, target.release),
        points=tuple(Point(concurrency=one, requests=load.requests_at(one)) for one in concurrencies),
    )


def require_room(member: Member, recipe: Recipe, facts: HostFacts) -> None:
    """Raise NotReady where the container of the tool could take memory that the node keeps free."""
    floor = floor_gib(recipe.swap.reserve_gib, facts.memory_total_gib)
    if facts.memory_available_gib - floor < tool.TOOL_GIB:
        problem = (
            f"{facts.memory_available_gib:.1f} GiB of memory available, expected {tool.TOOL_GIB} GiB for the benchmark "
            f"above the {floor:.1f} GiB that stay free"
        )
        step = "Lower gpu-memory-utilization of the recipe, or stop another service on the node."
        raise NotReady(member.name, problem, next_step=step)


def start_of(member: Member, service: str, release: str) -> Start | None:
    """Return the last start of a release on a node, from its guard; None where none is known."""
    try:
        with connect_guard(member) as guard:
            past = [one for one in estimate.remembered(guard.starts(service)) if one.release == release]
    except SparkopsError:  # the figures are worth more than the start beside them
        return None
    if not past:
        return None
    stages = {stage.value: seconds for stage, seconds in past[-1].stages.items()}
    return Start(took_s=past[-1].took_s, stages=stages, **asdict(past[-1].memory))


def argv(target: Target, run: Run, concurrency: int) -> tuple[str, ...]:
    load = Load(run.input_tokens, run.output_tokens, run.requests, run.seed)
    return tool.arguments(target.recipe, target.url, load, concurrency)


def command(member: Member, target: Target, run: Run, concurrency: int) -> Command:
    return tool.command(target.image, model_dir(member.config), argv(target, run, concurrency), target.key)


def measure(
    member: Member, target: Target, run: Run, keep: Callable[[Run], None], same: Callable[[], bool], report: OnEvent
) -> Run:
    """Measure the points that are not complete, and `keep` the run after each. Raises NodeError, Interrupted.

    `same`: whether the release still serves. A point that another release has answered in part stays incomplete.
    """
    keep(run)
    for point in run.points:
        if point.complete:
            continue
        outcome, clocks = _one(member, command(member, target, run, point.concurrency), point, report)
        if outcome.problem:
            step = f"sparkops logs {run.service}; then sparkops bench {run.service} --continue"
            raise NodeError(member.name, f"concurrency {point.concurrency}: {outcome.problem}", next_step=step)
        if not same():
            problem = f"{run.release} no longer serves {run.service}: concurrency {point.concurrency} is not complete"
            raise NodeError(member.name, problem, next_step=f"sparkops history {run.service}")
        ended = point.model_copy(update={"complete": True, "result": dict(outcome.result)})
        run = run.with_point(ended, tool=dict(outcome.tool), clocks=clocks or run.clocks)
        keep(run)
    return run


def _one(member: Member, command: Command, point: Point, report: OnEvent) -> tuple[Outcome, tuple[dict[str, int], ...]]:
    """Measure one concurrency; return the outcome, and the clocks of the GPUs once requests are answered."""
    what = f"concurrency {point.concurrency}"
    report(Event(member.name, f"{what}: starting {point.requests} requests"))
    end, clocks = Outcome(), tuple[dict[str, int], ...]()

    def read_line(line: str) -> None:
        nonlocal end, clocks
        match tool.parse(line):
            case (int(at), int(of)):
                clocks = clocks or _clocks(member)
                report(Event(member.name, f"{what}: requests", at, of, lasting=False))
            case Outcome() as outcome:
                end = outcome
            case None:
                pass

    transfer.attended(member, command, read_line)
    if not end.problem:
        report(Event(member.name, f"{what}: {end.result.get('completed')} requests answered"))
    return end, clocks


def _clocks(member: Member) -> tuple[dict[str, int], ...]:
    """Return the clocks of a node's GPUs."""
    return tuple(asdict(gpu) for gpu in host.parse_clocks(member.node.run(CLOCKS).stdout))


def keep(leader: Member, run: Run) -> None:
    """Keep a run on the leader. Raises NodeError."""
    transfer.run(leader, tool.save(run.service, run.name, run.text()))


def kept(connected: Connected) -> list[Run]:
    """Return the runs that the guards of the connected nodes keep, oldest first: the leader may have moved."""
    found = dict[str, Run]()
    for outcome in connected.on_each(_kept).values():
        if not isinstance(outcome, SparkopsError):
            found |= {run.name: run for run in outcome}
    return sorted(found.values(), key=lambda run: run.started)


def _kept(member: Member) -> list[Run]:
    if member.engine.container(CONTAINER) is None:
        return []
    try:
        return runs.kept(transfer.run(member, tool.read()).stdout)
    except ValueError as error:
        raise NodeError(member.name, str(error)) from error
