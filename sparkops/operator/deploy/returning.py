"""What `rollback` does, from the state of a service: end a swap, or return to an earlier release. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sparkops.errors import Busy, PlanRefused, UsageError
from sparkops.operator.deploy.plan import nodes_of
from sparkops.serving.service_state import ServiceState, free_step
from sparkops.swap.intents import changing
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Phase


class Way(StrEnum):
    """How a service returns."""

    END = "end the swap"
    """The old release has kept running, and serves on."""
    JOIN = "follow the return"
    """A return is in progress."""
    SWITCH = "switch"
    """The release is still warm."""
    DEPLOY = "deploy"
    """The release starts again."""


@dataclass(frozen=True)
class Return:
    """The way back, and the release that then serves: None if none did before a first deploy."""

    service: str
    way: Way
    to: Deployment | None
    leaves: str = ""
    """The release that serves until then, or that starts; empty without one."""

    def __str__(self) -> str:
        to = f"{self.to.release} on {' and '.join(nodes_of(self.to))}" if self.to else "no release"
        match self.way:
            case Way.END:
                return f"{self.service}: ending the swap to {self.leaves}; {to} serves then"
            case Way.JOIN:
                return f"{self.service}: {to} returns already"
            case _:
                how = "still warm" if self.way is Way.SWITCH else "started again"
                return f"{self.service}: returning to {to}, {how}" + (f"; now {self.leaves}" if self.leaves else "")

    def as_json(self) -> dict[str, object]:
        """Return the object of `--dry-run --json`."""
        nodes, release = (list(nodes_of(self.to)), self.to.release) if self.to else ([], None)
        return {"service": self.service, "way": self.way.value, "release": release, "nodes": nodes}


def back(state: ServiceState, to: str = "") -> Return | None:
    """Return the way back, to the release `to` or the previous one; None if there is nothing to return to.

    Raises Busy during a change that no rollback ends, PlanRefused for a release that the last rollback has left unless
    it is named, and UsageError for a name that the service does not know.
    """
    journal, swap = state.journal, state.swap
    service, active = journal.service, journal.active
    if swap:
        source = swap.target if swap.reverting else swap.source
        if to and (source is None or source.release != to):
            raise Busy(changing(journal), next_step=f"sparkops rollback {service}, which ends it")
        if swap.reverting:
            return Return(service, Way.JOIN, swap.target)
        if swap.retries or swap.reached(Phase.PROMOTE):
            raise Busy(why := changing(journal), next_step=free_step(service, why))
        return Return(service, Way.END, swap.source, swap.target.release)
    if to and active and to == active.release and not state.fails:
        return None
    earlier = list(_earlier(journal))
    release = next((item for item in earlier if not to or item.release == to), None)
    if release is None and to:
        names = ", ".join(dict.fromkeys(item.release for item in earlier))
        known = f"one of: {names}" if names else "none: it has no earlier release"
        raise UsageError(
            f"--to: unknown release {to} of {service}, expected {known}", next_step="sparkops deploy RECIPE"
        )
    if release is None or (active is None and not to and journal.earlier is None):
        return None
    if not to and release.release == journal.withdrawn:
        problem = f"{service}: {release.release} was rolled back; another rollback would go forward to it again"
        raise PlanRefused(problem, next_step=f"sparkops rollback {service} --to {release.release}")
    way = Way.SWITCH if release == journal.warm else Way.DEPLOY
    return Return(service, way, release, active.release if active else "")


def _earlier(journal: Journal) -> Iterator[Deployment]:
    """Yield the releases that the service may return to, the next one first. A stopped one is not what came before."""
    releases = (journal.warm, journal.previous) if journal.active else (journal.earlier, journal.previous)
    yield from dict.fromkeys(item for item in releases if item)
