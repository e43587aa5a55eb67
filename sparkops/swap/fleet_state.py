"""The fleet as the leader knows it: the guards' reports and the answers through the gateway."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sparkops.names import Slot
from sparkops.swap.effects import FrontEffect
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Deployment, RankSpec

GARBAGE = " answers garbage: "
"""Between a release and what its watch has found, in the reason why it needs an operator."""


class EngineState(StrEnum):
    """The state of an engine's container, as its guard sees it."""

    ABSENT = "absent"
    STOPPED = "stopped"
    """It exists and does not run: created, exited, or stopped."""
    LOADING = "loading"
    HEALTHY = "healthy"
    """/health answers. It proves nothing more."""

    @property
    def running(self) -> bool:
        """Whether it uses memory."""
        return self in (EngineState.LOADING, EngineState.HEALTHY)


@dataclass(frozen=True, slots=True)
class EngineReport:
    """One container. `key` is the last start that its guard marked; `proven` the result of the smoke suite for it."""

    container: str
    state: EngineState
    key: str = ""
    proven: Answer = Answer.UNKNOWN
    proven_key: str = ""
    problem: str = ""
    """Why the start of `key` failed: refused by Docker, stalled, OOM-killed."""
    refused: bool = False
    """Whether the start of `key` has not happened, for lack of memory or since Docker refused it: its guard retries."""
    by_hand: bool = False
    """Whether an operator stopped it with Docker."""
    dead: str = ""
    """Why the watch of its guard takes this run for dead: no answer, and no step for longer than any takes."""
    garbled: str = ""
    """What is no text in the answers that the watch of its guard gets from this run."""


@dataclass(frozen=True, slots=True)
class Report:
    """One guard's report. `revision` is on its disk; `adopted` is the revision whose orders it follows now."""

    node: str
    boot: str
    term: int
    revision: int
    adopted: int = -1
    engines: tuple[EngineReport, ...] = ()
    armed: str = ""
    """The container that the boot record of this service names."""
    lease: str = ""
    """What a new release must wait for on this node: work, such as a build, or its cordon; empty for nothing."""
    load: str = ""
    """The engine of another service that loads on this node, or is promoted and about to; a start waits for it."""

    def engine(self, container: str) -> EngineReport:
        """Return the report on one container."""
        absent = EngineReport(container, EngineState.ABSENT)
        return next((engine for engine in self.engines if engine.container == container), absent)

    @property
    def kept(self) -> tuple[int, int]:
        """Position of the journal on the guard's disk."""
        return self.term, self.revision

    def follows(self, journal: Journal) -> bool:
        """Return whether the guard follows the orders of this journal, or of a newer one."""
        return (self.term, self.adopted) >= journal.position


@dataclass(frozen=True, slots=True)
class GatewayView:
    """The gateway. `answers` are requests sent through it: NO only after several failures in a row."""

    active: Slot | None = None
    """The slot that the map names; None: no slot, so that requests wait or get 503."""
    slots: Mapping[Slot, str] = field(default_factory=dict)
    """The mark of the release that each slot's servers belong to, at the addresses that the journal knows."""
    answers: Mapping[Slot, Answer] = field(default_factory=dict)
    """Whether the release of a slot answers a real completion."""
    open: Mapping[Slot, int] = field(default_factory=dict)
    """Requests in progress in the release of a slot, in every HAProxy worker."""
    left: Mapping[Slot, int] = field(default_factory=dict)
    """Requests in progress in replicas that a slot has lost."""
    failures: Mapping[Slot, str] = field(default_factory=dict)
    """What failed of a release that does not answer: the request or check, with what was got instead. Bounded."""
    held: str = ""
    """The start that requests wait for; empty: none."""
    down: frozenset[tuple[str, str]] = frozenset()
    """Node and container of rank 0 of each of several replicas that gets no requests, since HAProxy's checks fail."""
    stopped: bool = False
    """Whether requests get the answer of a service that an operator has stopped."""

    def has(self, deployment: Deployment) -> bool:
        """Return whether the slot of a release has this release: one id may have been deployed in both slots."""
        return self.slots.get(deployment.slot) == deployment.mark

    def serves(self, deployment: Deployment) -> bool:
        """Return whether requests go to a release."""
        return self.active is deployment.slot and self.has(deployment)

    def answer(self, deployment: Deployment | None) -> Answer:
        """Return whether a release answers through the gateway."""
        if deployment is None:
            return Answer.NO
        return self.answers.get(deployment.slot, Answer.UNKNOWN) if self.has(deployment) else Answer.UNKNOWN

    def failed(self, deployment: Deployment, where: str = "", *, retried: bool = False) -> str:
        """Return that a release does not answer, with what failed if that is known. `where`: ` through the gateway`.

        A return is `retried`, and keeps one text: another one would be a new revision of the journal at each look.
        """
        why = "" if retried else self.failures.get(deployment.slot, "")
        return f"{deployment.release} does not answer{where}" + (f" correctly: {why}" if why else "")

    def requests(self, deployment: Deployment) -> int | None:
        """Return the number of requests in progress in a release; None where they cannot be counted."""
        return self.open.get(deployment.slot) if self.has(deployment) else None

    def requests_left(self, rest: Deployment) -> int | None:
        """Return the number of requests in progress in the replicas that left `rest`; None as above."""
        return self.left.get(rest.slot) if self.has(rest) else None


@dataclass(frozen=True, slots=True)
class FleetState:
    """The input of every decision. A guard without a recent report is missing; so is a stalled gateway."""

    reports: Mapping[str, Report] = field(default_factory=dict)
    gateway: GatewayView | None = None
    contacts: frozenset[str] = frozenset()
    """Nodes whose guards have reported since the leader's process started."""
    sampled_s: float = 0.0
    """Seconds of this phase in which requests through the gateway were sampled."""
    waited_s: float = 0.0
    """Seconds of this phase without progress in what it waits for."""
    rested_s: float = 0.0
    """Seconds since the leader has restarted the release last."""
    tried: FrontEffect | None = None
    """The last effect on the gateway, while it has failed or changed nothing."""
    tried_s: float = 0.0
    """Seconds since the first attempt of `tried`."""
    why: str = ""
    """Why the last attempt of `tried` failed; empty if it changed nothing."""

    def engine(self, journal: Journal, rank: RankSpec) -> EngineReport | None:
        """Return the state of a rank under the orders of this revision; None if unknown."""
        report = self.reports.get(rank.node)
        return report.engine(rank.container) if report and report.follows(journal) else None

    def all(self, journal: Journal, ranks: Iterable[RankSpec], states: Collection[EngineState]) -> Answer:
        """Return whether every rank is in one of these states."""
        engines = [self.engine(journal, rank) for rank in ranks]
        known = [engine.state for engine in engines if engine]
        if any(state not in states for state in known):
            return Answer.NO
        return Answer.YES if len(known) == len(engines) else Answer.UNKNOWN

    def dead(self, journal: Journal, deployment: Deployment) -> str:
        """Return why the watch takes a release for dead; empty if it does not."""
        known = (self.engine(journal, rank) for rank in deployment.ranks)
        return next((engine.dead for engine in known if engine and engine.dead), "")

    def garbled(self, journal: Journal, deployment: Deployment) -> str:
        """Return what the watch finds in the answers of a release that is no text; empty if nothing."""
        known = (self.engine(journal, rank) for rank in deployment.ranks)
        why = next((engine.garbled for engine in known if engine and engine.garbled), "")
        return f"{deployment.release}{GARBAGE}{why}" if why else ""

    def replicated(self, journal: Journal) -> bool:
        """Return whether another reachable guard has this revision on its disk, or no other guard is reachable."""
        others = [report for node, report in self.reports.items() if node != journal.leader]
        return not others or any(report.kept >= journal.position for report in others)

    def confirmed(self, journal: Journal) -> bool:
        """Return whether a leader may act: a peer has confirmed its term since it started, or it has no peer."""
        peers = set(journal.peers)
        return peers <= journal.without or bool(peers & self.contacts)

    def deposed(self, journal: Journal) -> bool:
        """Return whether a newer leader exists, or a guard has a newer copy of this journal than its leader."""
        return any(report.kept > journal.position for report in self.reports.values())

    def lost(self, journal: Journal) -> bool:
        """Return whether the leader has lost its journal: a guard has a newer copy of its own term."""
        reports = self.reports.values()
        return any(report.term == journal.term and report.revision > journal.revision for report in reports)


def why_deposed(journal: Journal) -> str:
    """Return why a leader with an old journal does not act, with the way out."""
    return f"another guard has a newer journal than {journal.leader}: sparkops gateway rebuild {journal.leader}"
