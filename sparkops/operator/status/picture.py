"""The output of `sparkops status --json`. These models are its schema and the source of docs/status.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from sparkops.node.host import Gpu
from sparkops.serving.watch.finding import EngineFinding


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of a node in GiB (2^30 bytes), shared by CPU and GPU on a Spark."""

    total_gib: float
    """Total memory in GiB."""
    available_gib: float
    """Memory available to new programs, in GiB."""


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """One node of the inventory."""

    name: str
    """Name in the inventory."""
    reachable: bool
    """Whether the node could be reached and read."""
    error: str | None
    """Reason if not; null otherwise."""
    memory: Memory | None
    """Its memory; null if it could not be read."""
    next_step: str | None = None
    """Next step after the error; null without one."""
    disk_free_gib: float | None = None
    """Free disk for images and containers, in GiB; null if unknown."""
    gpus: list[Gpu] = field(default_factory=list)
    """Its GPUs; empty without `--gpu`, and on nodes without nvidia-smi."""
    cordon: str | None = None
    """Why nothing new starts on it, and by whom; null for an open node."""
    cordon_unknown: bool = False
    """Whether it is unknown whether new releases start on it: its guard does not reply its cordon."""
    displaced: list[str] = field(default_factory=list)
    """Services that a drain has moved or stopped, until `sparkops node return` has brought them back."""


class Health(StrEnum):
    """Health of a container's server."""

    OK = "ok"
    STARTING = "starting"
    FAILING = "failing"
    UNKNOWN = "unknown"
    NONE = "none"


class Source(StrEnum):
    """How a container is known: `seen` on its node, `reported` by the guard that leads, or `unknown`."""

    SEEN = "seen"
    REPORTED = "reported"
    UNKNOWN = "unknown"


GatewayState = Literal["up", "down", "absent", "unreachable"]
State = Literal["healthy", "starting", "degraded", "failed", "stopping", "stopped", "unknown"]


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
    """ID of its image, sha256:..."""
    state: str
    """State in Docker: created, running, restarting, paused, exited or dead. Where this client could not read the
    node: running, exited, absent or `unknown`."""
    stage: str | None
    """Stage of the start, such as `loading weights 40 %`; `serving` afterwards."""
    health: Health
    """`ok`: answers; `failing`: stopped answering; `unknown`: does not answer, and Docker does not inspect it;
    `none`: not running. A rank above 0 is `ok` while it runs."""
    port: int
    """HTTP port on the node."""
    exit_code: int | None
    """Exit code of the container; null while it runs."""
    running: int | None
    """Requests in the engine's batch."""
    waiting: int | None
    """Requests in the engine's queue."""
    tok_s: float | None
    """Tokens per second between the last two samples, 2 to 15 s apart; without a guard, over half a second."""
    ttft_s: float | None = None
    """Mean seconds to the first token over that time, or since engine start if it has none; so are the shares."""
    kv_use: float | None = None
    """Share of the KV cache in use, 0 to 1; of the fullest engine where a server has several."""
    prefix_hits: float | None = None
    """Share of the prompt tokens that were in the prefix cache, 0 to 1."""
    draft_accepted: float | None = None
    """Share of the drafted tokens that were accepted, 0 to 1; null without speculative decoding."""
    up_s: float | None = None
    """Seconds since the start of the container; null unless it runs."""
    sampled_s: float = 0.0
    """Age in seconds of health and figures, at most 4 s."""
    progress: str | None = None
    """Progress of a start, such as `loading weights 40 %, about 3 min left`; null otherwise."""
    left_s: float | None = None
    """Estimated seconds until it answers, from earlier starts, rounded; null if unknown."""
    problem: str | None = None
    """Reason why it does not work; null if it works."""
    next_step: str | None = None
    """Next step after the problem; null without one."""
    source: Source = Source.SEEN
    """`seen` by this client on the node; `reported` by the guard that leads, since this client could not read the
    node; `unknown` if neither."""


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
    active: bool = False
    """Whether requests go to it; of several, to the one with the fewest in progress."""


@dataclass(frozen=True, kw_only=True)
class Live:
    """The release that answers."""

    slot: str
    """blue or green."""
    release: str
    """ID of the release."""
    image: str
    """ID of its image, sha256:..."""
    changes: list[str] | None = None
    """KEY=VALUE of each `--set` of its deploy, which the next deploy loses if it does not repeat it; null if
    unknown."""


@dataclass(frozen=True, kw_only=True)
class SwapRow:
    """A swap in progress."""

    release: str
    """ID of the new release."""
    mode: str
    """first, beside, across, in-place or restart."""
    phase: str
    """Current phase."""
    reverting: bool
    """Whether it reverts to the old release."""
    waits_for_promote: bool
    """Whether it waits for `sparkops promote` or `sparkops rollback`."""
    why: str
    """Reason why it reverts or restarts a release; empty otherwise."""


@dataclass(frozen=True, kw_only=True)
class WarmRow:
    """The old release after a swap, kept running so that a rollback takes seconds."""

    release: str
    """ID of the old release."""
    until: float | None
    """Unix time at which it stops; null if unknown, or while only it answers."""
    by_name: bool = False
    """Whether only `rollback --to RELEASE` returns to it: the last rollback has left it."""


@dataclass(frozen=True, kw_only=True)
class WaitingRow:
    """Requests that wait in the gateway for a release."""

    requests: int
    """Number of waiting requests."""
    most: int
    """Maximum number of waiting requests; more get 503."""
    longest_s: float
    """Wait of the oldest request, in seconds."""
    limit_s: float
    """Maximum wait of a request, in seconds."""
    left_s: float
    """Predicted seconds until a release answers."""


@dataclass(frozen=True, kw_only=True)
class ServiceRow:
    """One service."""

    name: str
    """Name that clients pass as `model`."""
    url: str | None
    """Base URL for OpenAI clients: that of all services with `gateway.port`, else its own; null where the gateway does
    not have the service."""
    state: State
    """`degraded`: some replicas answer; `failed`: one exited, or none answers; `stopping`: not confirmed yet;
    `unknown`: this client could not read its nodes, and no guard reports it."""
    live: Live | None
    """The active release; where the gateway cannot be read, one that answers; null without one."""
    swap: SwapRow | None = None
    """The swap in progress; null without one, also while the old release is kept warm."""
    warm: WarmRow | None = None
    """The old release while it is kept warm; null without one."""
    waiting: WaitingRow | None = None
    """Requests that wait for a release; null while they are answered or refused."""
    hold: str | None = None
    """Reason of the hold that blocks changes; null without one."""
    replicas: list[ReplicaRow]
    """Its endpoints, running or not."""
    events: list[str] = field(default_factory=list)
    """Its last events, oldest first."""
    event_age_s: float | None = None
    """Seconds since the last of them; null without one."""
    unread: str | None = None
    """Which of its nodes this client could not read, and what the fleet reports instead; null if all were read."""
    next_step: str | None = None
    """How to start a stopped service; null for any other."""


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
    """`absent`: not deployed yet; `unreachable`: this client could not read its node."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A difference between journal and node."""

    code: str
    """Code, such as `NODE_NAME`, `RANK_MISSING` or `LIVE_NOT_RUNNING`."""
    node: str
    """Name of the node."""
    detail: str
    """Description."""
    next_step: str = ""
    """Next step."""
    service: str = ""
    """Name of the service; empty for a difference of a node or of the inventory."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """The output of `sparkops status --json`."""

    nodes: list[NodeRow]
    """Every node of the inventory, in its order."""
    services: list[ServiceRow]
    """Every service with a container on a node, by name."""
    gateway: GatewayRow | None = None
    """The gateway; null without one."""
    findings: list[EngineFinding] = field(default_factory=list)
    """Warnings of the guards about engines of promoted releases; the exit code does not depend on them."""
    drift: list[Drift]
    """Every difference between journal and node."""
