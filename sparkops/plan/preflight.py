"""What is tried between nodes before a model is loaded over their network, and what the answers mean. Pure.

A pair loads for 15 minutes before it fails on its network. These checks take seconds, and name the broken link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sparkops.command import Command
from sparkops.commands import fabric as commands
from sparkops.commands.fabric import Meeting, Perftest
from sparkops.errors import CommandFailed, SparkopsError
from sparkops.facts import preflight as answers
from sparkops.facts.fabric import NodeFabric
from sparkops.facts.preflight import Met
from sparkops.plan.fabric import Fabric, RankNetwork, Transport
from sparkops.plan.finding import Finding, Same, Severity
from sparkops.plan.links import Link
from sparkops.plan.ports import End

# One function of a ConnectX-7 carries 100 Gbit/s and more. Both at once measured 92.6 and 97.3 (NVIDIA's guide, whose
# mark is 184 for both) and 92.6 twice (mac-amd-cuda-llm-cluster, 2026-09); a test of 2 s may show a little less.
MARK = 0.9
FUNCTION_GBIT_S = 100.0
PERFTEST_KIB = 1024  # it locks two messages of 64 KiB and its queues; the limit of old systems is 64 KiB

COPY = "Copy the image from one node to the others"
SAME_DRIVER = Same("DRIVER", "the NVIDIA driver", "Install one driver on all nodes; mixed ones are slow.")

Outcome = str | SparkopsError
"""What a command printed, or why it failed."""


@dataclass(frozen=True)
class Check:
    """Commands that run on one node, one after the other, until one fails; `judge` reads what became of them."""

    node: str
    title: str
    commands: tuple[Command, ...]
    judge: Callable[[Sequence[Outcome]], Iterator[Finding]]
    meets: bool = False
    """Whether a rank meets the others in it."""

    def __str__(self) -> str:
        return f"{self.node}: {self.title}" + "".join(f"\n      $ {command}" for command in self.commands)


@dataclass(frozen=True)
class Ranks:
    """What the ranks will run. `port` is that of the first handshake, at rank 0; `ports` are others that each needs."""

    image: str
    port: int
    ports: tuple[int, ...] = ()


def same_driver(made: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    """All ranks must have one driver below them."""
    yield from SAME_DRIVER.check({node: facts[node].driver or "none" for node in made.ranks})


def equipment(made: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    """What must be there on each node before anything is tried."""
    for node in made.ranks:
        files = facts[node].rdma_files
        if made.transport is Transport.ROCE and not any(name.startswith("uverbs") for name in files):
            problem, step = "there is no /dev/infiniband/uverbs* for a container", "sudo modprobe ib_uverbs"
            yield Finding(code="NO_UVERBS", node=node, problem=problem, next_step=step)
        if "ping" not in facts[node].tools:
            problem = "ping is not installed, so it was not seen whether packets pass"
            step = "sudo apt-get install iputils-ping"
            yield Finding(code="NO_PING", node=node, problem=problem, next_step=step, severity=Severity.WARNING)


def same_image(image: str, inspects: Mapping[str, Mapping[str, Any] | None]) -> Iterator[Finding]:
    """All ranks must run the same content; a tag may mean two builds of the same recipe."""
    for node, inspect in inspects.items():
        if inspect is None:
            step = "sparkops build, or copy it from a node that has it"
            yield Finding(code="NO_IMAGE", node=node, problem=f"it does not have the image {image}", next_step=step)
    contents = {node: answers.content(inspect)[:12] for node, inspect in inspects.items() if inspect}
    yield from Same("IMAGE", f"the content of {image}", f"{COPY}: two builds are never the same.").check(contents)


def paths(made: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Check]:
    """Whether packets, also whole large ones, pass over each link, in both directions between neighbours."""
    for link in made.links:
        for one, two in zip(link.ends, link.ends[1:], strict=False):
            for here, there in ((one, two), (two, one)):
                if "ping" in facts[here.node].tools:
                    yield _path(link, here, there)


def _path(link: Link, here: End, there: End) -> Check:
    source, target = str(here.address.ip), str(there.address.ip)
    return Check(
        node=here.node,
        title=f"{there.node} answers over {link.subnet}, to {link.mtu} bytes in one piece",
        commands=(commands.ping(source, target), commands.ping_whole(source, target, link.mtu)),
        judge=partial(_judge_path, link, here, there),
    )


def _judge_path(link: Link, here: End, there: End, outcomes: Sequence[Outcome]) -> Iterator[Finding]:
    way = f"{here.node} {here} to {there.node} {there}"
    if isinstance(outcomes[0], SparkopsError):
        problem = f"the link {link.subnet} is broken: nothing comes back from {way}: {_why(outcomes[0])}"
        step = f"Look at the cable between {here.interface.name} and {there.interface.name}, and at both addresses."
        yield Finding(code="NO_ANSWER", node=here.node, problem=problem, next_step=step)
    elif isinstance(outcomes[-1], SparkopsError):
        problem = f"the link {link.subnet} loses packets of {link.mtu} bytes from {way}: {_why(outcomes[-1])}"
        step = f"Give both ends, and a switch between them, MTU {link.mtu} or more."
        yield Finding(code="MTU_PATH", node=here.node, problem=problem, next_step=step)


def _why(error: SparkopsError) -> str:
    """What a program said last, without the statistics' frame."""
    said = error.completed.last_lines if isinstance(error, CommandFailed) else str(error)
    lines = [line for line in said.splitlines() if line.strip()]
    return next((line for line in lines if "packet loss" in line), lines[-1] if lines else "it printed nothing")


def meetings(made: Fabric, ranks: Ranks, images: Mapping[str, str], script: bytes) -> Iterator[Check]:
    """Every rank calls rank 0 from inside the image that it will run. `images` are IDs by node."""
    nodes = list(made.ranks)
    head = made.ranks[nodes[0]]
    for number, (node, rank) in enumerate(made.ranks.items()):
        meeting = Meeting(number, len(nodes), rank.address, head.address, ranks.port, ranks.ports)
        yield Check(
            node=node,
            title=f"rank {number} meets the others from inside {ranks.image}",
            commands=(commands.meet(images[node], rank.options, meeting, script),),
            judge=partial(_judge_meeting, made.transport, number, rank, head, ranks.port),
            meets=True,
        )


def _judge_meeting(
    transport: Transport, number: int, rank: RankNetwork, head: RankNetwork, port: int, outcomes: Sequence[Outcome]
) -> Iterator[Finding]:
    met = read_meeting(outcomes[0])
    if isinstance(met, SparkopsError):
        step = "Try it by hand: docker run --rm --network=host IMAGE python --version"
        problem = f"a container of the image could not be tried: {_why(met)}"
        yield Finding(code="NO_CONTAINER", node=rank.node, problem=problem, next_step=step)
        return
    for taken in met.taken:
        step = f"Who has it: sudo ss -ltnp 'sport = :{taken}'"
        yield Finding(code="PORT_TAKEN", node=rank.node, problem=f"port {taken} is taken", next_step=step)
    if met.problem:
        what = f"rank {number} cannot reach {head.address}:{port}, rank 0 on {head.node}, from {rank.address}"
        problem = (
            f"{what}: {met.problem}" if number else f"rank 0 cannot listen on {head.address}:{port}: {met.problem}"
        )
        step = f"Is a firewall in the way? On {head.node}: sudo ufw status; sudo ss -ltnp 'sport = :{port}'"
        yield Finding(code="NO_MEETING", node=rank.node, problem=problem, next_step=step)
    if transport is Transport.ROCE:
        yield from _judge_rights(rank.node, met)


def _judge_rights(node: str, met: Met) -> Iterator[Finding]:
    if not met.locks_memory:
        problem = f"a container may lock {met.memlock_bytes} bytes of memory, and RDMA needs no limit"
        step = "Raise it for dockerd: sudo systemctl edit docker, LimitMEMLOCK=infinity, and restart it."
        yield Finding(code="MEMLOCK", node=node, problem=problem, next_step=step)
    if not any(name.startswith("uverbs") for name in met.rdma):
        problem, step = (
            "a container sees no /dev/infiniband/uverbs*",
            "sudo modprobe ib_uverbs, and look: ls /dev/infiniband",
        )
        yield Finding(code="NO_UVERBS", node=node, problem=problem, next_step=step)


def read_meeting(outcome: Outcome) -> Met | SparkopsError:
    """What a rank saw, or why nobody knows."""
    if isinstance(outcome, SparkopsError):
        return outcome
    try:
        return answers.met(outcome)
    except ValueError as error:
        return SparkopsError(str(error))


def same_versions(mets: Mapping[str, Met]) -> Iterator[Finding]:
    """All ranks must run one vLLM and one torch."""
    yield from Same("VLLM", "the version of vLLM", f"{COPY}.").check({node: met.vllm for node, met in mets.items()})
    yield from Same("TORCH", "the version of torch", f"{COPY}.").check({node: met.torch for node, met in mets.items()})


def bandwidths(made: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Check]:
    """ib_write_bw over all links of the first two nodes at once, where both can run it; else nothing."""
    nodes = list(made.ranks)[:2]
    if made.transport is not Transport.ROCE or not all(_measures(facts[node]) for node in nodes):
        return
    for number, link in enumerate(made.links):
        server, client = (_perftest(end, number) for end in link.ends[:2])
        here, there = link.ends[:2]
        title = f"bandwidth over {link.subnet}"
        yield Check(here.node, f"{title}, server", (commands.bandwidth_server(server),), lambda _: iter(()))
        call = commands.bandwidth_client(client, str(here.address.ip))
        yield Check(there.node, f"{title}, client", (call,), partial(_judge_bandwidth, link, there))


def _measures(said: NodeFabric) -> bool:
    """Whether a node has perftest, and its user may lock the memory that it writes from."""
    limit = said.memlock_kib
    return "ib_write_bw" in said.tools and (limit is None or limit >= PERFTEST_KIB)


def _perftest(end: End, link: int) -> Perftest:
    device = end.device
    if device is None or end.gid_index is None:  # join() has refused such a link
        raise ValueError(f"{end} is no port for RoCE")
    return Perftest(device.name, device.port, end.gid_index, link)


def _judge_bandwidth(link: Link, end: End, outcomes: Sequence[Outcome]) -> Iterator[Finding]:
    try:
        measured = answers.bandwidth(outcomes[0]) if isinstance(outcomes[0], str) else None
        why = "" if isinstance(outcomes[0], str) else _why(outcomes[0])
    except ValueError as error:
        measured, why = None, str(error)
    if measured is None:
        step = f"Try the link by hand, and look at its GID table: show_gids {end.device.name if end.device else ''}"
        problem = f"the link {link} carries no RDMA: {why}"
        yield Finding(code="NO_RDMA", node=end.node, problem=problem, next_step=step)
        return
    mark = MARK * min(FUNCTION_GBIT_S, link.speed_mbit_s / 1000 or FUNCTION_GBIT_S)
    if measured < mark:
        yield Finding(
            code="SLOW_LINK",
            node=end.node,
            problem=f"the link {link} carries {measured:g} Gbit/s, and {mark:g} are usual",
            next_step="Restart both nodes: after a cable was moved a port may stay at 13 Gbit/s until then.",
            severity=Severity.WARNING,
        )
