"""The output of `sparkops doctor --json`. These models are its schema."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from sparkops.node.network.finding import Finding
from sparkops.operator.fleet.network.topology import Transport
from sparkops.operator.status.picture import Memory


class _Row(BaseModel):
    """An object of the output. None changes once it is made."""

    model_config = ConfigDict(frozen=True)


class DeviceRow(_Row):
    """One port of an RDMA device."""

    device: str
    """Name of the device, such as rocep1s0f0."""
    interface: str | None
    """Its network interface."""
    state: str
    """State that the driver reports, such as ACTIVE or DOWN."""
    rate: str
    """Rate that the driver reports, such as 200 Gb/sec (2X NDR)."""
    firmware: str
    """Version of its firmware."""
    addresses: list[str]
    """IPv4 addresses of the interface."""
    gid_rows: list[int]
    """Rows of its GID table that are RoCE v2 with an IPv4 address."""
    mtu: int | None
    """MTU of the interface in bytes."""


class NodeHealth(_Row):
    """One node of the inventory. A value that could not be read is null."""

    name: str
    """Name in the inventory."""
    reachable: bool
    """Whether the node and its Docker answered."""
    error: str | None
    """Reason why it is not reachable."""
    arch: str | None = None
    """Architecture, as `uname -m` prints it."""
    kernel: str | None = None
    """Version of the kernel."""
    docker: str | None = None
    """Version of Docker Engine."""
    driver: str | None = None
    """Version of the NVIDIA driver; empty without one."""
    gpu: str | None = None
    """Name of the GPU; empty without one."""
    memory: Memory | None = None
    """Memory of the node."""
    disk_free_gib: float | None = None
    """Free space for images, in GiB (2^30 bytes)."""
    clock_skew_s: float | None = None
    """Seconds that its clock is ahead of this machine's; 0 if less than the duration of the request."""
    devices: list[DeviceRow] = []
    """Its RDMA devices."""


class EndRow(_Row):
    """One end of a link."""

    node: str
    """Name of the node."""
    device: str | None
    """RDMA device; null over plain TCP."""
    interface: str
    """Network interface."""
    address: str
    """IPv4 address and length of its prefix."""
    gid_index: int | None
    """Row of the GID table."""
    mtu: int
    """MTU in bytes."""
    speed_mbit_s: int | None
    """Speed in Mbit/s; null if the interface does not report it."""


class LinkRow(_Row):
    """A subnet in which both nodes have a port."""

    subnet: str
    """Subnet in CIDR notation."""
    ends: list[EndRow]
    """The end at each node."""


class PairRow(_Row):
    """Two nodes that could run one replica together."""

    nodes: list[str]
    """Names of the nodes; the first would be rank 0."""
    transport: Transport | None
    """Transport between them; null without a connection."""
    links: list[LinkRow]
    """The links between them."""
    env: dict[str, dict[str, str]]
    """Environment of a rank on each node; empty while a link is broken."""
    reasons: list[str]
    """State of each RDMA device, if there is no link."""


class FixRow(_Row):
    """A fix that `--fix` ran."""

    node: str
    """Name of the node."""
    code: str
    """Code of the finding."""
    command: str
    """The command, or its description."""
    done: bool
    """Whether it succeeded."""
    detail: str = ""
    """Its output or error."""


class Diagnosis(_Row):
    """Diagnosis of the fleet."""

    ok: bool
    """Whether no finding is a problem; the exit code is then 0."""
    nodes: list[NodeHealth]
    """Nodes in the order of the inventory."""
    pairs: list[PairRow]
    """Pairs of reachable nodes."""
    findings: list[Finding]
    """Findings, problems first."""
    fixes: list[FixRow] = []
    """Fixes that `--fix` ran; findings are those afterwards."""
