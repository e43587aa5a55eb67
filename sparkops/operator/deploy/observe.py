"""Read from the nodes what the plan of a deploy needs."""

from __future__ import annotations

from dataclasses import replace

from sparkops.config.release import Release, installed
from sparkops.engines import ENGINES
from sparkops.errors import NodeError, SparkopsError
from sparkops.node import host
from sparkops.node.docker.facts import Container, parse_container
from sparkops.node.member import Member
from sparkops.operator.build.weights import models
from sparkops.operator.deploy.preconditions import Observed, required_cuda
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards import leases
from sparkops.operator.fleet.network import preflight
from sparkops.operator.fleet.network.facts import fabric_query


def before_deploy(connected: Connected, release: Release) -> dict[str, Observed]:
    return connected.all(lambda member: _observe(member, release))


def of_fleet(connected: Connected, *, links: bool) -> dict[str, Observed | SparkopsError]:
    """Return what decides which recipes fit on each node: its memory, GPUs and containers, and with `links` its
    network.
    """

    def observe(member: Member) -> Observed:
        facts = host.parse(member.node.run(host.FREE).stdout)
        observed = Observed(config=member.config, host=facts, containers=containers(member))
        return _with_fabric(member, observed) if links else observed

    return connected.on_each(observe)


def _observe(member: Member, release: Release) -> Observed:
    facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
    found = ((tag, image) for tag in release.images if (image := member.engine.trusted(tag)))
    tag, image = next(found, ("", None))
    observed = Observed(
        config=member.config,
        host=facts,
        containers=containers(member),
        image=image["Id"] if image else None,
        tag=tag,
        installed=installed(image["Config"].get("Labels") or {}) if image else "",
        requires=required_cuda(image["Config"].get("Env") or ()) if image else "",
    )
    try:
        observed = replace(observed, cordon=leases.cordon_of(member).reason)
    except SparkopsError as error:  # the plan may not need this node
        observed = replace(observed, cordon_error=error)
    if release.recipe.serve.ranks > 1:
        observed = _with_fabric(member, observed)
    if not ENGINES[release.recipe.engine].weights:
        return observed
    path, draft = release.recipe.model.path, release.recipe.model.draft
    try:
        directory = models.look(member, [path, *([draft.path] if draft else [])])
        checkpoints = directory.checkpoints
        drafted = checkpoints.get(draft.path) if draft else None
        return replace(observed, directory=directory, weights=checkpoints.get(path), draft=drafted)
    except NodeError as error:  # the plan may not need this node
        return replace(observed, weights_error=error)


def _with_fabric(member: Member, observed: Observed) -> Observed:
    """Add the node's network, or why it is unknown: the plan may not need this node."""
    try:
        return replace(observed, fabric=preflight.facts_of(member))
    except NodeError as error:
        return replace(observed, fabric_unknown=error.problem.replace(f"`{fabric_query()}`", "the query"))
    except ValueError as error:
        return replace(observed, fabric_unknown=f"unexpected reply: {error}")


def containers(member: Member, **labels: str) -> tuple[Container, ...]:
    """Return the containers of sparkops on a node that have these labels."""
    return tuple(parse_container(member.name, inspect) for inspect in member.engine.containers(**labels))
