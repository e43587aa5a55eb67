"""What `sparkops status --json` prints. These models are its schema, and docs/status.md is made from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class Health(StrEnum):
    """What a container's server says about itself."""

    OK = "ok"
    STARTING = "starting"
    FAILING = "failing"
    NONE = "none"


GatewayState = Literal["up", "down", "absent", "unreachable"]
State = Literal["healthy", "starting", "degraded", "failed", "stopping", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of a node in GiB (2^30 bytes), shared by CPU and GPU on a Spark."""

    total_gib: float
    """All of it, in GiB."""
    available_gib: float
    """What a new program could take, in GiB."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """What a GPU does now, as its driver reports it; null: unknown."""

    use: float | None
    """Share of the last moment in which it computed, 0 to 1."""
    power_w: float | None
    """Watts."""
    temperature_c: float | None
    """Degrees Celsius."""
    clock_mhz: float | None
    """Clock of its processors in MHz."""


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """One node of the inventory."""

    name: str
    """Name in the inventory."""
    reachable: bool
    """Whether it could be reached and read."""
    error: str | None
    """Why it could not be reached or read."""
    memory: Memory | None
    """Its memory; null if it could not be read."""
    next_step: str | None = None
    """What to do about the error; null without one."""
    disk_free_gib: float | None = None
    """Free disk for Docker's images and containers, in GiB; null if unknown."""
    gpus: list[Gpu] = field(default_factory=list)
    """Its GPUs; empty without `--gpu`, and on nodes without nvidia-smi."""


@dataclass(frozen=True, kw_only=True)
class RankRow:
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
    """`ok` answers, `failing` did and does not, `none` does not run. A rank above 0 is `ok` while it runs."""
    port: int
    """HTTP port on the node."""
    exit_code: int | None
    """How the container ended; null while it runs."""
    running: int | None
    """Requests in the engine's batch."""
    waiting: int | None
    """Requests in the engine's queue."""
    tok_s: float | None
    """Tokens per second between the last two samples, 2 to 15 s apart; without a guard, over half a second."""
    ttft_s: float | None = None
    """Mean seconds to the first token over that time; as the shares below, since the engine's start while none came."""
    kv_use: float | None = None
    """Share of the KV cache in use, 0 to 1; of the fullest engine where a server has several."""
    prefix_hits: float | None = None
    """Share of the prompt tokens that were in the prefix cache, 0 to 1."""
    draft_accepted: float | None = None
    """Share of the drafted tokens that were accepted, 0 to 1; null without speculative decoding."""
    up_s: float | None = None
    """Seconds since the container was started; null unless it runs."""
    sampled_s: float = 0.0
    """Age in seconds of health and figures, at most 4 s."""
    progress: str | None = None
    """What the guard is waiting for, such as `loading weights 40 %, about 3 min left`; null otherwise."""
    left_s: float | None = None
    """Seconds until it answers, learnt from earlier starts: as the guard rounds them; null if unknown."""
    problem: str | None = None
    """Why it does not work; null otherwise."""
    next_step: str | None = None
    """What to do about the problem; null without one."""


@dataclass(frozen=True, kw_only=True)
class ReplicaRow:
    """One endpoint of a service."""

    release: str
    """ID of the release."""
    slot: str
    """blue or green."""
    ranks: list[RankRow]
    """Its containers."""
    age_s: float | None = None
    """Seconds since its first container was created; null if unknown."""


@dataclass(frozen=True, kw_only=True)
class Live:
    """The release that answers."""

    slot: str
    """blue or green."""
    release: str
    """ID of the release."""
    image: str
    """ID of its image, sha256:..."""


@dataclass(frozen=True, kw_only=True)
class SwapRow:
    """A swap that is under way."""

    release: str
    """ID of the release that it starts and gives the traffic to."""
    mode: str
    """first, beside, across, in-place or restart."""
    phase: str
    """What it does now."""
    reverting: bool
    """Whether it goes back to the old release."""
    waits_for_promote: bool
    """Whether an operator decides: `sparkops promote` or `sparkops rollback`."""
    why: str
    """Why it goes back, or starts a release again; empty otherwise."""


@dataclass(frozen=True, kw_only=True)
class WaitingRow:
    """Requests that wait in the gateway for a release."""

    requests: int
    """How many wait."""
    most: int
    """How many may wait; further ones get 503."""
    longest_s: float
    """How long the oldest has waited, in seconds."""
    limit_s: float
    """How long one may wait, in seconds."""
    left_s: float
    """Predicted seconds until a release answers."""


@dataclass(frozen=True, kw_only=True)
class ServiceRow:
    """One service."""

    name: str
    """The name that clients put into `model`."""
    url: str | None
    """Base URL for OpenAI clients on the gateway; null without a gateway."""
    state: State
    """`degraded`: some replicas answer; `failed`: one ended by itself, or none answers; `stopping`: not confirmed."""
    live: Live | None
    """The active release, or without a gateway the one that answers; null if there is none."""
    swap: SwapRow | None = None
    """The swap under way; null if there is none."""
    waiting: WaitingRow | None = None
    """Requests that wait for a release; null while they are answered or refused."""
    hold: str | None = None
    """Reason of the hold that blocks changes; null without one."""
    replicas: list[ReplicaRow]
    """Its endpoints, running or not."""
    events: list[str] = field(default_factory=list)
    """Its last events as its leader keeps them, oldest first."""


@dataclass(frozen=True, kw_only=True)
class GatewayRow:
    """The gateway."""

    node: str
    """Name of its node."""
    address: str
    """Host name or IP address that clients use."""
    url: str | None = None
    """Base URL for OpenAI clients of all services, by their `model`; null without `gateway.port`."""
    state: GatewayState
    """`absent`: no deploy has needed it yet; `unreachable`: its node could not be read."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A disagreement between what runs and what should."""

    code: str
    """What kind, such as `RESTARTING`, `TWO_RELEASES` or `LIVE_NOT_RUNNING`; the detail says it in words."""
    node: str
    """Name of the node."""
    detail: str
    """The disagreement in words."""
    next_step: str = ""
    """What to do about it."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """What `sparkops status --json` prints."""

    nodes: list[NodeRow]
    """Every node of the inventory, in its order."""
    services: list[ServiceRow]
    """Every service of which a node has a container, by name."""
    gateway: GatewayRow | None = None
    """The gateway; null without one."""
    drift: list[Drift]
    """Every disagreement."""
