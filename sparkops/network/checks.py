"""Checks of the network between nodes, which take seconds, before a model is loaded over it for minutes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sparkops.command import Command
from sparkops.errors import CommandFailed, SparkopsError
from sparkops.network import commands
from sparkops.network.commands import Perftest
from sparkops.network.facts import NodeFabric
from sparkops.network.finding import Finding, Same, Severity
from sparkops.network.links import Link
from sparkops.network.ports import End
from sparkops.network.topology import Fabric, Transport

# One function of a ConnectX-7 carries 100 Gbit/s and more. Both at once measured 92.6 and 97.3 (NVIDIA's guide, whose
# mark is 184 for both) and 92.6 twice (mac-amd-cuda-llm-cluster, 2026-09); a test of 2 s may show a little less.
MARK = 0.9
FUNCTION_GBIT_S = 100.0
PERFTEST_KIB = 1024  # it locks two messages of 64 KiB and its queues; the limit of old systems is 64 KiB

SAME_DRIVER = Same("DRIVER", "the NVIDIA driver", "Install the same driver on all nodes; mixed drivers are slow.")

Outcome = str | SparkopsError
"""What a command printed, or why it failed."""


@dataclass(frozen=True)
class Check:
    """Commands that run on one node, one after the other, until one fails; `judge` reads their outcomes."""

    node: str
    title: str
    commands: tuple[Command, ...]
    judge: Callable[[Sequence[Outcome]], Iterator[Finding]]
    rendezvous: bool = False
    """Whether it is a rendezvous of ranks."""

    def __str__(self) -> str:
        return f"{self.node}: {self.title}" + "".join(f"\n      $ {command}" for command in self.commands)


@dataclass(frozen=True)
class Ranks:
    """The image and ports of ranks: first handshake at rank 0, others of every rank. `ray`: Ray must authenticate."""

    image: str
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
            yield Finding(code="NO_UVERBS", node=node, problem=problem, next_step=step)
        if "ping" not in facts[node].tools:
            problem = "ping is not installed, so the link was not tested"
            step = "sudo apt-get install iputils-ping"
            yield Finding(code="NO_PING", node=node, problem=problem, next_step=step, severity=Severity.WARNING)


def paths(fabric: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Check]:
    """Yield checks that small and large packets pass over each link, in both directions between neighbours."""
    for link in fabric.links:
        for one, two in zip(link.ends, link.ends[1:], strict=False):
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
        yield Finding(code="NO_ANSWER", node=here.node, problem=problem, next_step=step)
    elif isinstance(outcomes[-1], SparkopsError):
        problem = f"the link {link.subnet} loses packets of {link.mtu} bytes from {way}: {why(outcomes[-1])}"
        step = f"Set MTU {link.mtu} or more at both ends, and on a switch between them."
        yield Finding(code="MTU_PATH", node=here.node, problem=problem, next_step=step)


def why(error: SparkopsError) -> str:
    """Return the last line of a failed program; of ping the one about packet loss."""
    text = error.completed.last_lines if isinstance(error, CommandFailed) else str(error)
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "packet loss" in line), lines[-1] if lines else "no output")


def bandwidths(fabric: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Check]:
    """Yield runs of ib_write_bw over all links of the first two nodes at once, if both can run it."""
    nodes = [facts[node] for node in list(fabric.ranks)[:2]]
    equipped = all("ib_write_bw" in node.tools for node in nodes)
    may_lock = all(node.memlock_kib is None or node.memlock_kib >= PERFTEST_KIB for node in nodes)
    if fabric.transport is not Transport.ROCE or not equipped or not may_lock:
        return
    for number, link in enumerate(fabric.links):
        here, far = link.ends[:2]
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
        yield Finding(code="NO_RDMA", node=end.node, problem=problem, next_step=step)
        return
    mark = MARK * min(FUNCTION_GBIT_S, link.speed_mbit_s / 1000 or FUNCTION_GBIT_S)
    if measured < mark:
        problem = f"the link {link} carries {measured:g} Gbit/s, expected {mark:g}"
        step = "Restart both nodes: after a cable was moved, a port may stay at 13 Gbit/s until a restart."
        yield Finding(code="SLOW_LINK", node=end.node, problem=problem, next_step=step, severity=Severity.WARNING)


def _measured(outcome: Outcome) -> float | str:
    """Return Gbit/s, or why there is no figure."""
    if isinstance(outcome, SparkopsError):
        return why(outcome)
    try:
        return commands.bandwidth(outcome)
    except ValueError as error:
        return str(error)
