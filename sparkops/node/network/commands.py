"""Commands that test the network between nodes before a model is loaded over it, and their output."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sparkops import foreign
from sparkops.command import Command
from sparkops.node.docker.commands import RIGHTS

RDMA_OPTIONS = ("--device=/dev/infiniband", "--ulimit=memlock=-1:-1")
"""Options of a container for RDMA. The limit suffices for locked memory. IPC_LOCK would not: Docker gives an added
capability to root only (CapEff is 0 with --user and --cap-add in Docker 20.10 and 26.1)."""
ICMP_BYTES = 28  # header of IPv4 and of ICMP: 9000 bytes on the wire carry 8972
PERFTEST_PORT = 18515  # perftest's own; each further link takes the next one
PERFTEST_S = 2
# bytes, iterations, peak (0.00 when a duration is given), average, messages: the columns of perftest's result
SHOWN = 200
"""Characters of an unexpected answer in an error."""
RESULT = re.compile(r"\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*")
UNLIMITED = -1  # of locked memory, which RDMA needs
PATIENCE_S = 7.0  # for a container to start and reach the other ranks
CALL_SCRIPT = 'tries=0; until "$@"; do tries=$((tries + 1)); [ "$tries" -lt 10 ] || exit 1; sleep 0.3; done'


def ping(source: str, target: str, mtu: int | None = None) -> Command:
    """Send packets; with `mtu` packets of that many bytes, which may not be fragmented."""
    options = () if mtu is None else ("-M", "do", "-s", str(mtu - ICMP_BYTES))
    return Command(("ping", "-n", *options, "-c", "2", "-i", "0.2", "-W", "1", "-I", source, target), timeout_s=4.0)


@dataclass(frozen=True)
class Perftest:
    """One end of a bandwidth test over one link."""

    device: str
    port: int
    gid_index: int
    link: int
    """Number of the link, from 0: all are tested at once, as an engine uses them."""


def bandwidth_server(end: Perftest) -> Command:
    """Wait for the other end. `timeout` ends it: closing a connection does not end a program."""
    return Command(("timeout", "7", *_perftest(end)), timeout_s=9.0)


def bandwidth_client(end: Perftest, server: str) -> Command:
    """Write to the other end for some seconds, as soon as it listens."""
    call = ("sh", "-c", CALL_SCRIPT, "sparkops", *_perftest(end), server)
    return Command(("timeout", "7", *call), timeout_s=9.0)


def _perftest(end: Perftest) -> tuple[str, ...]:
    device = ("-d", end.device, "-i", str(end.port), "-x", str(end.gid_index))
    test = ("-p", str(PERFTEST_PORT + end.link), "-D", str(PERFTEST_S), "-F", "--report_gbits")
    return ("ib_write_bw", *device, *test)


@dataclass(frozen=True)
class RankRendezvous:
    """Arguments of templates/rendezvous.py, which describes them."""

    rank: int
    addresses: tuple[str, ...]
    port: int
    ports: tuple[int, ...] = ()
    patience_s: float = PATIENCE_S


def rendezvous(image: str, options: Sequence[str], arguments: RankRendezvous, script: bytes) -> Command:
    """Run a rendezvous from inside the image, with the network and rights of the engine, without GPU and model."""
    return Command(
        (
            *("docker", "run", "--rm", "--interactive", "--network=host", *RIGHTS),
            *options,
            *("--entrypoint=python", image, "-", json.dumps(asdict(arguments))),
        ),
        stdin=script,
        timeout_s=arguments.patience_s + 3.0,
    )


@dataclass(frozen=True)
class RendezvousReport:
    """The report of a rank from inside its image. `met`: the ranks that it reached; `taken`: the ports in use."""

    ray: str
    memlock_bytes: int
    rdma: tuple[str, ...]
    taken: tuple[int, ...]
    met: tuple[int, ...]
    problem: str


def bandwidth(printed: str) -> float:
    """Return the Gbit/s that ib_write_bw measured. Raises ValueError if it printed no result in Gbit/s."""
    lines = printed.splitlines()
    results = [match[1] for line in lines if (match := RESULT.fullmatch(line))]
    if not results or not any("BW average[Gb/sec]" in line for line in lines):
        raise ValueError(f"no result in {printed[:SHOWN]!r}")
    return float(results[-1])


def rendezvous_report(printed: str) -> RendezvousReport:
    """Parse the last line of templates/rendezvous.py. Raises ValueError for other text."""
    try:
        reply = foreign.loads((printed.splitlines() or [""])[-1])
        return RendezvousReport(
            ray=reply["ray"],
            memlock_bytes=reply["memlock"],
            rdma=tuple(reply["rdma"]),
            taken=tuple(reply["taken"]),
            met=tuple(reply["met"]),
            problem=reply["problem"],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"unexpected answer {printed[:SHOWN]!r}: {error}") from None
