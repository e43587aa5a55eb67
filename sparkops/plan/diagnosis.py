"""What `sparkops doctor --json` prints. These models are its schema, and docs/doctor.md is made from them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from sparkops.plan.fabric import Transport
from sparkops.plan.finding import Finding
from sparkops.plan.picture import Memory


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class DeviceRow(_Row):
    """One port of an RDMA device."""

    device: str
    """Name of the device, such as rocep1s0f0."""
    interface: str | None
    """Its network interface."""
    state: str
    """The driver's word, such as ACTIVE or DOWN."""
    rate: str
    """The driver's words, such as 200 Gb/sec (2X NDR)."""
    firmware: str
    """Version of its firmware."""
    addresses: list[str]
    """IPv4 addresses of the interface."""
    gid_rows: list[int]
    """Rows of its GID table that are RoCE v2 with an IPv4 address."""
    mtu: int | None
    """MTU of the interface in bytes."""


class NodeHealth(_Row):
    """One node of the inventory. What could not be read is null."""

    name: str
    """Name in the inventory."""
    reachable: bool
    """Whether it could be reached, and its Docker asked."""
    error: str | None
    """Why not."""
    arch: str | None = None
    """Processor, as uname says it."""
    kernel: str | None = None
    """Version of the kernel."""
    docker: str | None = None
    """Version of Docker Engine."""
    driver: str | None = None
    """Version of NVIDIA's driver; empty where there is none."""
    gpu: str | None = None
    """Name of the GPU; empty where there is none."""
    memory: Memory | None = None
    """Its memory."""
    disk_free_gib: float | None = None
    """Free space for images, in GiB (2^30 bytes)."""
    clock_skew_s: float | None = None
    """Seconds by which its clock is ahead of this machine's; 0 within what the network takes."""
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
    """Speed in Mbit/s, where the interface says it."""


class LinkRow(_Row):
    """A subnet that both nodes have a port in."""

    subnet: str
    """The subnet."""
    ends: list[EndRow]
    """One end for each node."""


class PairRow(_Row):
    """Two nodes that could run one replica together."""

    nodes: list[str]
    """Their names; the first would be rank 0."""
    transport: Transport | None
    """How they reach each other; null: not at all."""
    links: list[LinkRow]
    """The links between them."""
    env: dict[str, dict[str, str]]
    """What a rank on each node would be told; empty while a link is broken."""
    reasons: list[str]
    """What each RDMA device is, or lacks, where there is no link."""


class Diagnosis(_Row):
    """The fleet as doctor saw it."""

    ok: bool
    """Whether no finding is a problem: the exit code is then 0."""
    nodes: list[NodeHealth]
    """The nodes, as the inventory orders them."""
    pairs: list[PairRow]
    """Every pair of nodes that were reached."""
    findings: list[Finding]
    """What is not as it should be, problems first."""
