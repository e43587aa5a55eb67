"""The effects of the machine: one is persisted or executed at a time, so that every crash point is between two."""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, RankSpec


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """Leader: replace the journal on disk. Orders to the guards follow from it."""

    journal: Journal


@dataclass(frozen=True, slots=True)
class PointSlot:
    """Leader: let a slot without traffic mean a release."""

    deployment: Deployment


@dataclass(frozen=True, slots=True)
class SwitchTraffic:
    """Leader: give the traffic to a release; None: to none."""

    deployment: Deployment | None


@dataclass(frozen=True, slots=True)
class CutRequests:
    """Leader: end the requests in progress in a release."""

    deployment: Deployment


@dataclass(frozen=True, slots=True)
class ConfigureAgents:
    """Leader: give the gateway its configuration."""

    digest: str


LeaderEffect = WriteJournal | PointSlot | SwitchTraffic | CutRequests | ConfigureAgents


@dataclass(frozen=True, slots=True)
class KeepCopy:
    """Follower: write the leader's journal to disk."""

    journal: Journal


@dataclass(frozen=True, slots=True)
class ArmBoot:
    """Follower: replace the boot record; None: no engine. `alone`: the guard may start it without the leader."""

    rank: RankSpec | None
    alone: bool


@dataclass(frozen=True, slots=True)
class CreateEngine:
    """Follower: create a container."""

    rank: RankSpec


@dataclass(frozen=True, slots=True)
class MarkStart:
    """Follower: write to disk that a start is about to happen. It happens once."""

    container: str
    key: str


@dataclass(frozen=True, slots=True)
class MarkRestart:
    """Follower: count a start from the boot record on disk, before it happens."""

    container: str


@dataclass(frozen=True, slots=True)
class StartEngine:
    """Follower: start a created or stopped container."""

    container: str


@dataclass(frozen=True, slots=True)
class MarkStop:
    """Follower: write to disk that this container stops on the leader's order, so that nothing restarts it."""

    container: str


@dataclass(frozen=True, slots=True)
class StopEngine:
    """Follower: stop a container, with its grace period."""

    container: str


@dataclass(frozen=True, slots=True)
class ProveEngine:
    """Follower: run the smoke suite on rank 0, over localhost."""

    container: str
    key: str


FollowerEffect = (
    KeepCopy | ArmBoot | CreateEngine | MarkStart | MarkRestart | StartEngine | MarkStop | StopEngine | ProveEngine
)
