"""Commands that try a network between nodes before a model is loaded over it. Nothing here runs anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sparkops.command import Command
from sparkops.docker.commands import RIGHTS

RDMA_OPTIONS = ("--device=/dev/infiniband", "--ulimit=memlock=-1:-1")
"""Options of a container for RDMA. The limit alone permits locked memory: Docker gives no user but root an added
capability such as IPC_LOCK (CapEff is 0 with --user and --cap-add in Docker 20.10 and 26.1)."""
ICMP_BYTES = 28  # header of IPv4 and of ICMP: 9000 bytes on the wire carry 8972
PERFTEST_PORT = 18515  # perftest's own; each further link takes the next one
PERFTEST_S = 2
PATIENCE_S = 7.0  # for a container to start and meet the others
CALL_SCRIPT = 'tries=0; until "$@"; do tries=$((tries + 1)); [ "$tries" -lt 10 ] || exit 1; sleep 0.3; done'


def ping(source: str, target: str) -> Command:
    """Whether anything comes back at all."""
    return _ping(source, target)


def ping_whole(source: str, target: str, mtu: int) -> Command:
    """Whether a packet of `mtu` bytes passes in one piece: one end, or a switch, may take less."""
    return _ping(source, target, "-M", "do", "-s", str(mtu - ICMP_BYTES))


def _ping(source: str, target: str, *options: str) -> Command:
    return Command(("ping", "-n", *options, "-c", "2", "-i", "0.2", "-W", "1", "-I", source, target), timeout_s=4.0)


@dataclass(frozen=True)
class Perftest:
    """One end of a bandwidth test over one link."""

    device: str
    port: int
    gid_index: int
    link: int
    """Number of the link, from 0: all are tried at once, as an engine uses them."""


def bandwidth_server(end: Perftest) -> Command:
    """Wait for the other end. It stops by itself: to close a connection does not end a program."""
    return Command(("timeout", "7", *_perftest(end)), timeout_s=9.0)


def bandwidth_client(end: Perftest, server: str) -> Command:
    """Write to the other end for some seconds, as soon as it listens."""
    call = ("sh", "-c", CALL_SCRIPT, "sparkops", *_perftest(end), server)
    return Command(("timeout", "7", *call), timeout_s=9.0)


def _perftest(end: Perftest) -> tuple[str, ...]:
    which = ("-d", end.device, "-i", str(end.port), "-x", str(end.gid_index))
    how = ("-p", str(PERFTEST_PORT + end.link), "-D", str(PERFTEST_S), "-F", "--report_gbits")
    return ("ib_write_bw", *which, *how)


@dataclass(frozen=True)
class Meeting:
    """What templates/meet.py is told: see there."""

    rank: int
    ranks: int
    address: str
    head: str
    port: int
    ports: tuple[int, ...] = ()
    patience_s: float = PATIENCE_S


def meet(image: str, options: Sequence[str], meeting: Meeting, script: bytes) -> Command:
    """Meet the other ranks from inside the image, with the network and the rights that the engine will have.

    The container has no GPU and no model, removes itself, and ends by itself.
    """
    return Command(
        (
            *("docker", "run", "--rm", "--interactive", "--network=host", *RIGHTS),
            *options,
            *("--entrypoint=python", image, "-", json.dumps(asdict(meeting))),
        ),
        stdin=script,
        timeout_s=meeting.patience_s + 3.0,
    )
