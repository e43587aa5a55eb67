"""What `sparkops status --json` prints. These models are its schema, and docs/status.md is made from them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict


class Health(StrEnum):
    """What a container's server says about itself."""

    OK = "ok"
    STARTING = "starting"
    FAILING = "failing"
    NONE = "none"


GatewayState = Literal["up", "down", "absent", "unreachable"]
State = Literal["healthy", "starting", "degraded", "failed", "stopped"]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Memory(_Row):
    """Memory of a node in GiB (2^30 bytes), shared by CPU and GPU on a Spark."""

    total_gib: float
    """All of it, in GiB."""
    available_gib: float
    """What a new program could take, in GiB."""


class NodeRow(_Row):
    """One node of the inventory."""

    name: str
    """Name in the inventory."""
    reachable: bool
    """Whether it could be reached and read."""
    error: str | None
    """Why it could not be reached or read."""
    memory: Memory | None
    """Its memory; null if it could not be read."""


class RankRow(_Row):
    """One container."""

    node: str
    """Name of the node."""
    rank: int
    """Number of the rank in its replica; 0 answers requests."""
    container: str
    """Name of the container."""
    image: str
    """ID of the image that runs, sha256:..."""
    state: str
    """Docker's word: created, running, restarting, paused, exited, dead."""
    stage: str | None
    """Where a start is, such as `loading weights 40 %`; `serving` afterwards."""
    health: Health
    """What its server says: `ok` answers, `failing` did and does not, `none` does not run. A rank above 0 is `ok` while
    it runs."""
    port: int
    """HTTP port on the node."""
    exit_code: int | None
    """How the container ended; null while it runs."""
    running: int | None
    """Requests in the engine's batch."""
    waiting: int | None
    """Requests in the engine's queue."""
    tok_s: float | None
    """Tokens per second over the last second."""


class ReplicaRow(_Row):
    """One endpoint of a service."""

    release: str
    """ID of the release."""
    slot: str
    """blue or green."""
    ranks: list[RankRow]
    """Its containers."""


class Live(_Row):
    """The release that answers."""

    slot: str
    """blue or green."""
    release: str
    """ID of the release."""
    image: str
    """ID of its image, sha256:..."""


class SwapRow(_Row):
    """A swap that is under way, or was left."""

    release: str
    """ID of the release that comes."""
    mode: str
    """first, beside, across or in-place."""
    phase: str
    """What it does, or was doing."""
    holder: str | None
    """Who holds the lock; null if nobody does any more."""


class ServiceRow(_Row):
    """One service."""

    name: str
    """The name that clients put into `model`."""
    url: str | None
    """Base URL for OpenAI clients on the gateway; null without a gateway."""
    state: State
    """`degraded`: some replicas answer; `failed`: one ended by itself, or none answers any more."""
    live: Live | None
    """What has the traffic, or answers where there is no gateway; null if nothing does."""
    swap: SwapRow | None = None
    """The swap under way; null if there is none."""
    hold: str | None = None
    """Why nobody may change the service; null if they may."""
    replicas: list[ReplicaRow]
    """Its endpoints, running or not."""


class GatewayRow(_Row):
    """The gateway."""

    node: str
    """Name of its node."""
    address: str
    """Host name or IP address that clients use."""
    state: GatewayState
    """`absent`: no deploy has needed it yet; `unreachable`: its node could not be read."""


class Drift(_Row):
    """A disagreement between what runs and what should."""

    code: str
    """What kind, such as `RESTARTING`, `TWO_RELEASES` or `LIVE_NOT_RUNNING`; the detail says it in words."""
    node: str
    """Name of the node."""
    detail: str
    """The disagreement in words."""


class Status(_Row):
    """What `sparkops status --json` prints."""

    nodes: list[NodeRow]
    """Every node of the inventory, in its order."""
    services: list[ServiceRow]
    """Every service of which a node has a container, by name."""
    gateway: GatewayRow | None = None
    """The gateway; null without one."""
    drift: list[Drift]
    """Every disagreement."""
