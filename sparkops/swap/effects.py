"""The effects of the machine: one is persisted or executed at a time, so that every crash point is between two."""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, RankSpec


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """Leader: replace the journal on disk. Orders to the guards follow from it."""

    journal: Journal

    def __str__(self) -> str:
        swap = self.journal.swap
        return f"write the journal: {swap.phase if swap else 'no swap'}"


@dataclass(frozen=True, slots=True)
class PointSlot:
    """Leader: point a slot at a release. Of the slot with the traffic only replicas change: the others serve on."""

    deployment: Deployment

    def __str__(self) -> str:
        to = self.deployment
        several = f" on {' and '.join(rank.node for rank in to.heads)}" if len(to.replicas) > 1 else ""
        return f"gateway point {to.slot} {to.release}{several}"


@dataclass(frozen=True, slots=True)
class RequestHold:
    """Requests wait for a start. Its predicted end decides which requests wait, and the Retry-After of the others."""

    mark: str
    """The start that requests wait for; a new mark is a new prediction."""
    left_s: float
    """Predicted seconds until the end of the start."""
    longest_s: float
    """Longest wait of a request in seconds."""
    most: int
    """Most requests that may wait."""


@dataclass(frozen=True, slots=True)
class SwitchTraffic:
    """Leader: give the traffic to a release; None: to none. `hold`: requests wait meanwhile."""

    deployment: Deployment | None
    hold: RequestHold | None = None
    stopped: bool = False
    """Whether an operator stops the service: clients are not told to try again."""

    def __str__(self) -> str:
        if to := self.deployment:
            return f"gateway switch {to.slot} {to.release}"
        return f"gateway hold for about {self.hold.left_s:.0f} s" if self.hold else "gateway switch down"


@dataclass(frozen=True, slots=True)
class CutRequests:
    """Leader: end the requests in progress in a release; `left`: only those in replicas that its slot has lost."""

    deployment: Deployment
    left: bool = False

    def __str__(self) -> str:
        return f"gateway cut {self.deployment.slot}{' left' if self.left else ''}"


FrontEffect = PointSlot | SwitchTraffic | CutRequests
"""Effects on the gateway, or on the leader's map of a service without one."""
LeaderEffect = WriteJournal | FrontEffect


@dataclass(frozen=True, slots=True)
class KeepCopy:
    """Follower: write the leader's journal to disk."""

    journal: Journal

    def __str__(self) -> str:
        return f"keep a copy of revision {self.journal.revision}"


@dataclass(frozen=True, slots=True)
class ArmBoot:
    """Follower: replace the boot record; None: no engine. `alone`: the guard may start it without the leader."""

    rank: RankSpec | None
    alone: bool

    def __str__(self) -> str:
        return f"after a boot, start {self.rank.container if self.rank else 'nothing'}"


@dataclass(frozen=True, slots=True)
class CreateEngine:
    """Follower: create a container."""

    rank: RankSpec

    def __str__(self) -> str:
        return f"docker create --name={self.rank.container}"


@dataclass(frozen=True, slots=True)
class MarkStart:
    """Follower: write to disk that a start is due. It is executed once."""

    container: str
    key: str
    last: str = ""
    """The container's last start so far, as Docker shows it."""

    def __str__(self) -> str:
        return f"mark start {self.key} of {self.container}"


@dataclass(frozen=True, slots=True)
class MarkRestart:
    """Follower: count a start from the boot record on disk, before it happens."""

    container: str

    def __str__(self) -> str:
        return f"count a restart of {self.container}"


@dataclass(frozen=True, slots=True)
class StartEngine:
    """Follower: start a created or stopped container."""

    container: str

    def __str__(self) -> str:
        return f"docker start {self.container}"


@dataclass(frozen=True, slots=True)
class MarkStop:
    """Follower: write to disk that this container stops on the leader's order, so that nothing restarts it."""

    container: str

    def __str__(self) -> str:
        return f"mark the stop of {self.container}"


@dataclass(frozen=True, slots=True)
class StopEngine:
    """Follower: stop a container, with its grace period."""

    container: str

    def __str__(self) -> str:
        return f"docker stop {self.container}"


@dataclass(frozen=True, slots=True)
class ProveEngine:
    """Follower: run the smoke suite on rank 0, over localhost; check the network of every rank."""

    container: str
    key: str

    def __str__(self) -> str:
        return f"verify {self.container}"


FollowerEffect = (
    KeepCopy | ArmBoot | CreateEngine | MarkStart | MarkRestart | StartEngine | MarkStop | StopEngine | ProveEngine
)
