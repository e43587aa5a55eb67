"""Checks of the image of ranks: the same on all nodes, and a rendezvous of ranks from inside it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sparkops.docker.facts import image_content
from sparkops.errors import SparkopsError
from sparkops.network import commands
from sparkops.network.checks import Check, Outcome, Ranks, why
from sparkops.network.commands import UNLIMITED, RankRendezvous, RendezvousReport
from sparkops.network.finding import Finding, Same
from sparkops.network.topology import Fabric, RankNetwork, Transport
from sparkops.release import recipe_of

RAY_TOKENS = (2, 52)
"""The first release of Ray with token authentication (RAY_AUTH_MODE=token)."""
COPY = "Run one image on all nodes: `sparkops images copy` copies it from one node to the others."


def same_image(image: str, inspects: Mapping[str, Mapping[str, Any] | None]) -> Iterator[Finding]:
    """Yield a finding if the content differs between ranks: a tag may name two builds of the same recipe."""
    recipe, present = recipe_of(image), [node for node, inspect in inspects.items() if inspect]
    for node, inspect in inspects.items():
        if inspect is None:
            step = f"sparkops build {recipe} builds it once and copies it to the nodes without it."
            yield Finding(code="NO_IMAGE", node=node, problem=f"image not found: {image}", next_step=step)
    contents = {node: image_content(inspect)[:12] for node, inspect in inspects.items() if inspect}
    others = "".join(f" --to {node}" for node in present[1:])
    step = f"sparkops images copy {recipe} --from {present[0]}{others}" if present else ""
    yield from Same("IMAGE", f"the content of {image}", step).check(contents)


def checks(fabric: Fabric, ranks: Ranks, images: Mapping[str, str], script: bytes) -> Iterator[Check]:
    """Yield a rendezvous of every rank with rank 0 from inside its image. `images` are IDs by node."""
    nodes = list(fabric.ranks)
    head = fabric.ranks[nodes[0]]
    for number, (node, rank) in enumerate(fabric.ranks.items()):
        arguments = RankRendezvous(number, len(nodes), rank.address, head.address, ranks.port, ranks.ports)
        yield Check(
            node=node,
            title=f"rendezvous of rank {number} from inside {ranks.image}",
            commands=(commands.rendezvous(images[node], rank.options, arguments, script),),
            judge=partial(_judge_rendezvous, fabric.transport, number, rank, head, ranks),
            rendezvous=True,
        )


def _judge_rendezvous(
    transport: Transport, number: int, rank: RankNetwork, head: RankNetwork, ranks: Ranks, outcomes: Sequence[Outcome]
) -> Iterator[Finding]:
    report, port = read(outcomes[0]), ranks.port
    if isinstance(report, SparkopsError):
        step = "Test it by hand: docker run --rm --network=host IMAGE python --version"
        problem = f"no test in a container of the image: {why(report)}"
        yield Finding(code="NO_CONTAINER", node=rank.node, problem=problem, next_step=step)
        return
    for taken in report.taken:
        step = f"Find the program: sudo ss -ltnp 'sport = :{taken}'"
        yield Finding(code="PORT_TAKEN", node=rank.node, problem=f"port {taken} is in use", next_step=step)
    if report.problem:
        what = f"rank {number} cannot reach {head.address}:{port}, rank 0 on {head.node}, from {rank.address}"
        problem = (
            f"{what}: {report.problem}"
            if number
            else f"rank 0 cannot listen on {head.address}:{port}: {report.problem}"
        )
        step = f"Check the firewall on {head.node}: sudo ufw status; sudo ss -ltnp 'sport = :{port}'"
        yield Finding(code="NO_MEETING", node=rank.node, problem=problem, next_step=step)
    if ranks.ray:
        yield from _judge_ray(rank.node, report)
    if transport is Transport.ROCE:
        yield from _judge_rights(rank.node, report)


def _judge_ray(node: str, report: RendezvousReport) -> Iterator[Finding]:
    """Yield a Ray before 2.52: it ignores RAY_AUTH_MODE, so any client runs code. The start reports an absent Ray."""
    release = re.match(r"(\d+)\.(\d+)", report.ray)
    if release and (int(release[1]), int(release[2])) < RAY_TOKENS:
        expected = ".".join(map(str, RAY_TOKENS))
        problem = f"Ray {report.ray} in the image has no token authentication, expected {expected} or newer"
        step = f"Set image.packages: [ray>={expected}] or serve.executor: mp in the recipe, then build it again."
        yield Finding(code="RAY_OLD", node=node, problem=problem, next_step=step)


def _judge_rights(node: str, report: RendezvousReport) -> Iterator[Finding]:
    if report.memlock_bytes != UNLIMITED:
        problem = f"containers may lock {report.memlock_bytes} bytes of memory, but RDMA needs an unlimited amount"
        step = "Raise it for dockerd: sudo systemctl edit docker, LimitMEMLOCK=infinity, and restart it."
        yield Finding(code="MEMLOCK", node=node, problem=problem, next_step=step)
    if not any(name.startswith("uverbs") for name in report.rdma):
        problem = "containers have no /dev/infiniband/uverbs*"
        step = "sudo modprobe ib_uverbs, then check: ls /dev/infiniband"
        yield Finding(code="NO_UVERBS", node=node, problem=problem, next_step=step)


def read(outcome: Outcome) -> RendezvousReport | SparkopsError:
    """Return the report of a rank, or why there is none."""
    if isinstance(outcome, SparkopsError):
        return outcome
    try:
        return commands.rendezvous_report(outcome)
    except ValueError as error:
        return SparkopsError(str(error))


def same_versions(reports: Mapping[str, RendezvousReport]) -> Iterator[Finding]:
    """Yield findings if the version of vLLM or torch differs between ranks."""
    yield from Same("VLLM", "the version of vLLM", COPY).check({node: report.vllm for node, report in reports.items()})
    yield from Same("TORCH", "the version of torch", COPY).check(
        {node: report.torch for node, report in reports.items()}
    )
