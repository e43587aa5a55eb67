"""The values of a swap: which release runs where, in which mode and phase. Memory in GiB (2^30 bytes), times in s."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sparkops.names import Slot

MAX_REPLICAS = 16


class Answer(StrEnum):
    """The result of a question to the fleet. UNKNOWN is never taken for NO."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    LATER = "later"
    """A clock, a guard's job or an operator ends this wait, which takes long by nature: `Swap.lasts_s` bounds it."""


class Mode(StrEnum):
    """How the new release starts while the old one serves."""

    FIRST = "first"
    """No release serves yet."""
    BESIDE = "beside"
    """On the old release's nodes, next to it."""
    ACROSS = "across"
    """On other nodes."""
    IN_PLACE = "in-place"
    """On the old release's nodes, after the old release stopped."""
    ROLLING = "rolling"
    """Replica after replica: each is withdrawn, stopped, replaced, proven and gets requests, while the others serve."""

    @property
    def stops_source(self) -> bool:
        """Whether containers of the old release stop before those of the new one start."""
        return self in (Mode.IN_PLACE, Mode.ROLLING)


class Phase(StrEnum):
    """The phases of a swap, in order."""

    PREPARE = "prepare"
    QUIESCE = "stop traffic"
    FREE = "stop old release"
    WORKERS = "start workers"
    START = "start"
    LOAD = "wait until ready"
    VERIFY = "verify"
    SWITCH = "switch"
    BAKE = "bake"
    PROMOTE = "promote"
    DRAIN = "drain"
    RETIRE = "retire"

    @property
    def order(self) -> int:
        """Position in a swap."""
        return _ORDER[self]


_ORDER = {phase: number for number, phase in enumerate(Phase)}
_START = (Phase.WORKERS, Phase.START, Phase.LOAD, Phase.VERIFY, Phase.SWITCH)
_WARM = (Phase.PREPARE, *_START, Phase.BAKE, Phase.PROMOTE, Phase.DRAIN, Phase.RETIRE)
_STOPPED = (Phase.PREPARE, Phase.QUIESCE, Phase.FREE, *_START, Phase.BAKE, Phase.PROMOTE)
PHASES: Mapping[Mode, tuple[Phase, ...]] = {
    Mode.FIRST: (Phase.PREPARE, *_START, Phase.PROMOTE),
    Mode.BESIDE: _WARM,
    Mode.ACROSS: _WARM,
    Mode.IN_PLACE: _STOPPED,
    Mode.ROLLING: _STOPPED,
}


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One container of a replica. `claim_gib`: free memory that its start needs."""

    node: str
    container: str
    claim_gib: float = 0.0
    spec: str = ""
    """What `docker create` needs, as JSON: image id, arguments, environment."""

    @property
    def place(self) -> tuple[str, str]:
        """Node and container: a release that moves to another node has a container of one name on both."""
        return self.node, self.container


@dataclass(frozen=True, slots=True)
class Replica:
    """One endpoint: its ranks in order. Rank 0 answers requests."""

    ranks: tuple[RankSpec, ...]

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of its ranks."""
        return frozenset(rank.node for rank in self.ranks)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a swap, from the recipe's `swap` section; times in seconds."""

    bake_s: float = 120.0
    drain_s: float = 900.0
    keep_old_s: float = 600.0
    hold_s: float = 540.0
    """Longest wait of a request while no release has the traffic."""
    hold_max: int = 500
    """Most requests that may wait."""
    start_s: float = 0.0
    """Predicted time from the start of an engine to its first answer; 0: unknown."""
    unknown_s: float = 600.0
    """Longest wait of a phase for an unknown state before the service needs an operator."""
    load_s: float = 4 * 3600.0
    """Longest load. Its guard ends a start that stalls much sooner; this bounds a guard that cannot watch it."""
    verify_s: float = 3600.0
    """Longest verification of a start, with every repetition."""
    min_serving: int = 0
    """Replicas that serve while others are replaced; 0: all but the one that is."""

    def least(self, count: int) -> int:
        """Return how many of `count` replicas serve while others are replaced."""
        return min(self.min_serving or count - 1, count - 1)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A release in a slot, on the nodes of its replicas (1 to 16). Self-contained: a guard starts it without files.

    While replicas are replaced one after another, some are still of the release before; `release` is the new one.
    """

    release: str
    slot: Slot
    replicas: tuple[Replica, ...]
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not 1 <= len(self.replicas) <= MAX_REPLICAS or not all(replica.ranks for replica in self.replicas):
            raise ValueError(f"expected 1 to {MAX_REPLICAS} replicas of at least one rank each")

    @property
    def mark(self) -> str:
        """What tells it from others in its slot: the release, and of several replicas their places."""
        if len(self.replicas) == 1:
            return self.release
        return " ".join([self.release, *(f"{rank.container}@{rank.node}" for rank in self.heads)])

    @property
    def ranks(self) -> Iterator[RankSpec]:
        """Every container, replica by replica, in order."""
        return (rank for replica in self.replicas for rank in replica.ranks)

    @property
    def heads(self) -> Iterator[RankSpec]:
        """Rank 0 of every replica."""
        return (replica.ranks[0] for replica in self.replicas)

    @property
    def workers(self) -> Iterator[RankSpec]:
        """Every other rank."""
        return (rank for replica in self.replicas for rank in replica.ranks[1:])

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of its containers."""
        return frozenset(rank.node for rank in self.ranks)

    @property
    def alone(self) -> bool:
        """Whether no replica spans nodes, so that a guard may restart a rank by itself."""
        return not any(self.workers)

    def only(self, replicas: Collection[Replica]) -> Part:
        """Return the part of it with these replicas."""
        return self._part(replica for replica in self.replicas if replica in replicas)

    def less(self, replicas: Collection[Replica]) -> Part:
        """Return the part of it without these replicas."""
        return self._part(replica for replica in self.replicas if replica not in replicas)

    def _part(self, replicas: Iterable[Replica]) -> Part:
        return Part(self.release, self.slot, tuple(replicas), self.limits)

    def on(self, node: str) -> Iterator[RankSpec]:
        """Return its containers on a node."""
        return (rank for rank in self.ranks if rank.node == node)


class Part(Deployment):
    """Some replicas of a deployment, or none. No journal has one."""

    __slots__ = ()

    def __post_init__(self) -> None:
        pass
