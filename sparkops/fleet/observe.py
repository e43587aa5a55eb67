"""Look at the nodes: what a plan needs to know, and what status shows."""

from __future__ import annotations

import time
from dataclasses import replace

from requests import Session

from sparkops.commands import gateway
from sparkops.config.engine import ENGINES
from sparkops.config.recipe import Startup
from sparkops.errors import CommandFailed, NodeError
from sparkops.facts import docker as docker_facts
from sparkops.facts import fabric, host, metrics
from sparkops.facts import gateway as gateway_facts
from sparkops.facts.docker import Container
from sparkops.facts.gateway import GatewayFacts
from sparkops.facts.metrics import Load
from sparkops.fleet import models, preflight
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.guarded import linked
from sparkops.nodes.http import session
from sparkops.plan.deploy import Observed
from sparkops.plan.journal import Journal
from sparkops.plan.picture import Health
from sparkops.plan.seen import NodeReport, RankReport
from sparkops.plan.startup import Line, Sample, Watch, advance
from sparkops.probes import openai
from sparkops.release import Release, installed

RATE_WINDOW_S = 1.0
LOG_TAIL = 2000


def before_deploy(connected: Connected, release: Release) -> dict[str, Observed]:
    """Everything that a deploy of `release` wants to know of each connected node."""
    return connected.all(lambda member: _observe(member, release))


def _observe(member: Member, release: Release) -> Observed:
    facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
    image = member.engine.trusted(release.image)
    seen = Observed(
        config=member.config,
        host=facts,
        containers=containers(member),
        image=image["Id"] if image else None,
        installed=installed(image["Config"].get("Labels") or {}) if image else "",
    )
    if release.recipe.serve.tensor_parallel > 1:
        seen = _with_fabric(member, seen)
    if not ENGINES[release.recipe.engine].weights:
        return seen
    path = release.recipe.model.path
    try:
        return replace(seen, weights=models.look(member, [path]).checkpoints.get(path))
    except NodeError as error:  # it may be that this node is not even meant
        return replace(seen, unseen=error)


def _with_fabric(member: Member, seen: Observed) -> Observed:
    """Add the node's network, or why it is unknown: the plan may not need this node."""
    try:
        return replace(seen, fabric=preflight.facts_of(member))
    except NodeError as error:
        return replace(seen, fabric_unknown=error.problem.replace(f"`{fabric.query()}`", "the query"))
    except ValueError as error:
        return replace(seen, fabric_unknown=f"its answer cannot be read: {error}")


def containers(member: Member, **labels: str) -> tuple[Container, ...]:
    """The containers of ours on a node that carry `labels`."""
    return tuple(docker_facts.parse(member.name, each) for each in member.engine.containers(**labels))


def report(member: Member, *, at_gateway: bool = False) -> NodeReport:
    """One node as status shows it; the gateway's node knows more."""
    facts = host.parse(member.node.run(host.MEMORY).stdout)
    return NodeReport(
        name=member.name,
        host=facts,
        ranks=tuple(rank_report(member, each) for each in containers(member)),
        gateway=_gateway(member) if at_gateway else None,
        journals=_journals(member),
    )


def _gateway(member: Member) -> GatewayFacts | None:
    """What the gateway says; None where no deploy has needed it yet."""
    if member.engine.container(gateway.CONTAINER) is None:
        return None
    try:
        return gateway_facts.parse(member.node.run(gateway.SHOW).stdout)
    except (CommandFailed, ValueError) as error:
        return GatewayFacts(services={}, files={}, loaded=False, problem=str(error))


def _journals(member: Member) -> tuple[Journal, ...]:
    """What the node's guard has written down."""
    with linked(member) as link:
        if link is None:
            return ()
        names = link.ask("services", "")
        return tuple(link.journal(name) for name in names)


def rank_report(member: Member, container: Container) -> RankReport:
    """One container: its stage, its health, its load."""
    if not container.running:
        return RankReport(container)
    if container.rank:  # it answers nobody; rank 0 shows whether they work together
        return RankReport(container, Health.OK, f"rank {container.rank} of {container.ranks}")
    with session(member.node, container.port) as asking:
        if openai.healthy(asking):
            load, tok_s = _load(asking)
            return RankReport(container, Health.OK, "serving", load, tok_s)
    log = member.engine.log(container.name, since=container.started_at, tail=LOG_TAIL)
    lines = tuple(Line(0.0, text) for _, text in docker_facts.log_lines(log))
    watch = advance(Watch(Startup()), Sample(0.0, lines))
    served = watch.stage.name == "SERVING"
    return RankReport(container, Health.FAILING if served else Health.STARTING, watch.text)


def _load(asking: Session) -> tuple[Load | None, float]:
    """Requests now, and tokens per second over one second if anything runs."""
    first = _metrics(asking)
    if first is None or not first.running:
        return first, 0.0
    began = time.monotonic()
    time.sleep(RATE_WINDOW_S)
    second = _metrics(asking)
    if second is None:
        return first, 0.0
    return second, (second.generated - first.generated) / (time.monotonic() - began)


def _metrics(asking: Session) -> Load | None:
    """None for a server that does not say it, or is not vLLM."""
    try:
        return metrics.parse(openai.metrics(asking) or "")
    except ValueError:
        return None
