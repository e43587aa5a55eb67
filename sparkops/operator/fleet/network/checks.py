"""Checks of links, and of the image of ranks, which take seconds, before a model is loaded for minutes. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sparkops.command import Command
from sparkops.errors import CommandFailed, SparkopsError
from sparkops.node.docker.facts import image_content
from sparkops.node.network import commands
from sparkops.node.network.commands import UNLIMITED, Perftest, RankRendezvous, RendezvousReport
from sparkops.node.network.finding import Finding, Kind, Same, Severity
from sparkops.operator.fleet.network.facts import NodeFabric
from sparkops.operator.fleet.network.links import MTU_DIFFERS, NCCL_FAILS, End, Link
from sparkops.operator.fleet.network.topology import Fabric, RankNetwork, Transport

# One function of a ConnectX-7 carries 100 Gbit/s and more. Both at once measured 92.6 and 97.3 (NVIDIA's guide, whose
# mark is 184 for both) and 92.6 twice (mac-amd-cuda-llm-cluster, 2026-09); a test of 2 s may show a little less.
MARK = 0.9
FUNCTION_GBIT_S = 100.0
PERFTEST_KIB = 1024  # it locks two messages of 64 KiB and its queues; the limit of old systems is 64 KiB

UNLIKE = (
    "Two Sparks with different drivers and kernels were 2.4 times slower than with the same ones (reported by al-engr)."
)
ONE_ENGINE = "The ranks are one engine: each runs the same code."
NO_UVERBS = Kind("NO_UVERBS", "A container without these files has no RDMA.")
NO_PING = Kind("NO_PING", "The link was not tested.", Severity.WARNING)
NO_ANSWER = Kind("NO_ANSWER", NCCL_FAILS)
MTU_PATH = Kind("MTU_PATH", MTU_DIFFERS)
NO_RDMA = Kind("NO_RDMA", NCCL_FAILS)
SLOW_LINK = Kind("SLOW_LINK", "Tensor parallelism waits for this link at every layer.", Severity.WARNING)

DRIVER = Kind("DRIVER", UNLIKE)
IMAGE = Kind("IMAGE", ONE_ENGINE)
NO_IMAGE = Kind("NO_IMAGE", "A rank starts from the image on its own node.")
NO_CONTAINER = Kind("NO_CONTAINER", "A rank starts as a container of this image, as the test did.")
PORT_TAKEN = Kind("PORT_TAKEN", "A rank listens on this port, and fails if another program does.")
NO_MEETING = Kind(
    "NO_MEETING", "A rank that does not reach rank 0 waits for its timeout, while the others wait for it."
)
RAY_OLD = Kind("RAY_OLD", "Ray before 2.52 ignores RAY_AUTH_MODE: any client that reaches it runs code.")
MEMLOCK = Kind("MEMLOCK", "RDMA locks the memory that it registers.")
BEFORE_DEPLOY = (DRIVER, IMAGE, NO_IMAGE, NO_CONTAINER, PORT_TAKEN, NO_MEETING, RAY_OLD, MEMLOCK)
"""Found only before a deploy with several ranks, which has an image to test."""

IN_USE = "ddress already in use"
"""As strerror of EADDRINUSE, and Python, which writes the first letter small behind an address."""
SAME_DRIVER = Same(DRIVER, "the NVIDIA driver", "Install the same driver on all nodes; mixed drivers are slow.")

Outcome = str | SparkopsError
"""What a command printed, or why it failed."""


@dataclass(frozen=True)
class Check:
    """Commands that run on one node, one after the other, until one fails; `judge` reads their outcomes."""

    node: str
    title: str
    commands: tuple[Command, ...]
    judge: Callable[[Sequence[Outcome]], Iterator[Finding]]

    def __str__(self) -> str:
        return f"{self.node}: {self.title}" + "".join(f"\n      $ {command}" for command in self.commands)


@dataclass(frozen=True)
class Ranks:
    """The image and ports of ranks: first handshake at rank 0, others of every rank. `ray`: Ray must authenticate."""

    image: str
    recipe: str
    """Name of the recipe, for next steps."""
    port: int
    ports: tuple[int, ...] = ()
    ray: bool = False


def same_driver(fabric: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    """Yield a finding if the driver differs between the nodes."""
    yield from SAME_DRIVER.check({node: facts[node].driver or "none" for node in fabric.ranks})


def equipment(fabric: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    """Yield what a node lacks for the checks."""
    for node in fabric.ranks:
        files = facts[node].rdma_files
        if fabric.transport is Transport.ROCE and not any(name.startswith("uverbs") for name in files):
            problem, step = "/dev/infiniband/uverbs* not found", "sudo modprobe ib_uverbs"
            yield NO_UVERBS.at(node, problem, step)
        if "ping" not in facts[node].tools:
            problem = "ping is not installed, so the link was not tested"
            step = "sudo apt-get install iputils-ping"
            yield NO_PING.at(node, problem, step)


def paths(fabric: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Check]:
    """Yield checks that small and large packets pass over each link, in both directions between neighbours."""
    for link in fabric.hops:
        one, two = link.ends
        for here, far in ((one, two), (two, one)):
            if "ping" in facts[here.node].tools:
                yield _path(link, here, far)


def _path(link: Link, here: End, far: End) -> Check:
    source, target = str(here.address.ip), str(far.address.ip)
    return Check(
        node=here.node,
        title=f"{far.node} answers over {link.subnet}, to {link.mtu} bytes in one piece",
        commands=(commands.ping(source, target), commands.ping(source, target, link.mtu)),
        judge=partial(_judge_path, link, here, far),
    )


def _judge_path(link: Link, here: End, far: End, outcomes: Sequence[Outcome]) -> Iterator[Finding]:
    way = f"{here.node} {here} to {far.node} {far}"
    if isinstance(outcomes[0], SparkopsError):
        problem = f"the link {link.subnet} is broken: no reply from {way}: {why(outcomes[0])}"
        step = f"Check the cable between {here.interface.name} and {far.interface.name}, and both addresses."
        yield NO_ANSWER.at(here.node, problem, step)
    elif isinstance(outcomes[-1], SparkopsError):
        problem = f"the link {link.subnet} loses packets of {link.mtu} bytes from {way}: {why(outcomes[-1])}"
        step = f"Set MTU {link.mtu} or more at both ends, and on a switch between them."
        yield MTU_PATH.at(here.node, problem, step)


def why(error: SparkopsError) -> str:
    """Return the last line of a failed program; of ping the one about packet loss."""
    text = error.completed.last_lines if isinstance(error, CommandFailed) else str(error)
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "packet loss" in line), lines[-1] if lines else "no output")


def bandwidths(fabric: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Check]:
    """Yield runs of ib_write_bw over all links at once, if all nodes can run it.

    Each node sends to the one before it and receives from the one after it, so that no half of a port does either
    twice.
    """
    nodes = [facts[node] for node in fabric.ranks]
    equipped = all("ib_write_bw" in node.tools for node in nodes)
    may_lock = all(node.memlock_kib is None or node.memlock_kib >= PERFTEST_KIB for node in nodes)
    if fabric.transport is not Transport.ROCE or not equipped or not may_lock:
        return
    numbers = {link.subnet: number for number, link in enumerate(fabric.links)}
    for link in fabric.hops:
        (here, far), number = link.ends, numbers[link.subnet]
        title = f"bandwidth over {link.subnet}"
        wait = commands.bandwidth_server(_perftest(here, number))
        call = commands.bandwidth_client(_perftest(far, number), str(here.address.ip))
        yield Check(here.node, f"{title}, server", (wait,), lambda _: iter(()))  # its failure is the client's as well
        yield Check(far.node, f"{title}, client", (call,), partial(_judge_bandwidth, link, far))


def _perftest(end: End, link: int) -> Perftest:
    device = end.device
    if device is None or end.gid_index is None:  # join() has refused such a link
        raise ValueError(f"{end} is not a port for RoCE")
    return Perftest(device.name, device.port, end.gid_index, link)


def _judge_bandwidth(link: Link, end: End, outcomes: Sequence[Outcome]) -> Iterator[Finding]:
    measured = _measured(outcomes[0])
    if isinstance(measured, str):
        step = f"Test the link by hand, and check its GID table: show_gids {end.device.name if end.device else ''}"
        problem = f"the link {link} carries no RDMA: {measured}"
        yield NO_RDMA.at(end.node, problem, step)
        return
    mark = MARK * min(FUNCTION_GBIT_S, link.speed_mbit_s / 1000 or FUNCTION_GBIT_S)
    if measured < mark:
        problem = f"the link {link} carries {measured:g} Gbit/s, expected {mark:g}"
        step = "Restart both nodes: after a cable was moved, a port may stay at 13 Gbit/s until a restart."
        yield SLOW_LINK.at(end.node, problem, step)


def _measured(outcome: Outcome) -> float | str:
    """Return Gbit/s, or why there is no figure."""
    if isinstance(outcome, SparkopsError):
        return why(outcome)
    try:
        return commands.bandwidth(outcome)
    except ValueError as error:
        return str(error)


RAY_TOKENS = (2, 52)
"""The first release of Ray with token authentication (RAY_AUTH_MODE=token)."""


def same_image(image: str, recipe: str, inspects: Mapping[str, Mapping[str, Any] | None]) -> Iterator[Finding]:
    """Yield a finding if the content differs between ranks: a tag may name two builds of the same recipe."""
    present = [node for node, inspect in inspects.items() if inspect]
    for node, inspect in inspects.items():
        if inspect is None:
            step = f"sparkops build {recipe} builds it once and copies it to the nodes without it."
            yield NO_IMAGE.at(node, f"image not found: {image}", step)
    contents = {node: image_content(inspect)[:12] for node, inspect in inspects.items() if inspect}
    step = f"sparkops build {recipe} --once" + "".join(f" --node {node}" for node in present)
    yield from Same(IMAGE, f"the content of {image}", step).check(contents)


def rendezvous(fabric: Fabric, ranks: Ranks, images: Mapping[str, str], script: bytes) -> Iterator[Check]:
    """Yield a rendezvous of every rank with rank 0 from inside its image. `images` are IDs by node."""
    nodes = list(fabric.ranks)
    head = fabric.ranks[nodes[0]]
    addresses = tuple(rank.address for rank in fabric.ranks.values())
    for number, (node, rank) in enumerate(fabric.ranks.items()):
        arguments = RankRendezvous(number, addresses, ranks.port, ranks.ports)
        yield Check(
            node=node,
            title=f"rendezvous of rank {number} from inside {ranks.image}",
            commands=(commands.rendezvous(images[node], rank.options, arguments, script),),
            judge=partial(_judge_rendezvous, fabric.transport, number, rank, head, ranks),
        )


def _judge_rendezvous(
    transport: Transport, number: int, rank: RankNetwork, head: RankNetwork, ranks: Ranks, outcomes: Sequence[Outcome]
) -> Iterator[Finding]:
    report, port = _read_rendezvous(outcomes[0]), ranks.port
    if isinstance(report, SparkopsError):
        step = "Test it by hand: docker run --rm --network=host IMAGE python --version"
        problem = f"no test in a container of the image: {why(report)}"
        yield NO_CONTAINER.at(rank.node, problem, step)
        return
    for taken in report.taken:
        step = f"Find the program: sudo ss -ltnp 'sport = :{taken}'"
        yield PORT_TAKEN.at(rank.node, f"port {taken} is in use", step)
    if report.problem and not number and IN_USE in report.problem:
        step = f"Find the program: sudo ss -ltnp 'sport = :{port}'"
        yield PORT_TAKEN.at(rank.node, f"port {port} is in use, where rank 0 listens for the others", step)
    elif report.problem:
        what = f"rank {number} cannot reach {head.address}:{port}, rank 0 on {head.node}, from {rank.address}"
        problem = (
            f"{what}: {report.problem}"
            if number
            else f"rank 0 cannot listen on {head.address}:{port}: {report.problem}"
        )
        step = f"Check the firewall on {head.node}: sudo ufw status; sudo ss -ltnp 'sport = :{port}'"
        yield NO_MEETING.at(rank.node, problem, step)
    if ranks.ray:
        yield from _judge_ray(rank.node, report)
    if transport is Transport.ROCE:
        yield from _judge_rights(rank.node, report)


def without_echoes(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without those of other ranks that did not reach a rank 0 that could not listen."""
    taken = any(finding.code == PORT_TAKEN.code for finding in findings)
    return [finding for finding in findings if not (taken and finding.code == NO_MEETING.code)]


def _judge_ray(node: str, report: RendezvousReport) -> Iterator[Finding]:
    """Yield a Ray before 2.52: it ignores RAY_AUTH_MODE, so any client runs code. The start reports an absent Ray."""
    release = re.match(r"(\d+)\.(\d+)", report.ray)
    if release and (int(release[1]), int(release[2])) < RAY_TOKENS:
        expected = ".".join(map(str, RAY_TOKENS))
        problem = f"Ray {report.ray} in the image has no token authentication, expected {expected} or newer"
        step = f"Set image.packages: [ray>={expected}] or serve.executor: mp in the recipe, then build it again."
        yield RAY_OLD.at(node, problem, step)


def _judge_rights(node: str, report: RendezvousReport) -> Iterator[Finding]:
    if report.memlock_bytes != UNLIMITED:
        problem = f"containers may lock {report.memlock_bytes} bytes of memory, but RDMA needs an unlimited amount"
        step = "Raise it for dockerd: sudo systemctl edit docker, LimitMEMLOCK=infinity, and restart it."
        yield MEMLOCK.at(node, problem, step)
    if not any(name.startswith("uverbs") for name in report.rdma):
        problem = "containers have no /dev/infiniband/uverbs*"
        step = "sudo modprobe ib_uverbs, then check: ls /dev/infiniband"
        yield NO_UVERBS.at(node, problem, step)


def _read_rendezvous(outcome: Outcome) -> RendezvousReport | SparkopsError:
    """Return the report of a rank, or why there is none."""
    if isinstance(outcome, SparkopsError):
        return outcome
    try:
        return commands.rendezvous_report(outcome)
    except ValueError as error:
        return SparkopsError(str(error))
