"""The rules of a journal: who may take it, keep it and change it. Pure.

A lease is counted on the clock of the node that keeps the journal, and every taking gets a number of its own: who has
lost the lock can change nothing any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.plan.journal import Holder, Journal, Phase

LEASE_S = 90.0
RENEW_S = 15.0
NEXT_STEP = "sparkops status shows it; `--wait` waits for it."


@dataclass(frozen=True)
class Clock:
    """A node's clock at one moment: seconds since its boot, and the boot's id."""

    now_s: float
    boot: str


@dataclass(frozen=True)
class Refusal:
    """Why a journal was not changed."""

    why: str


def lease_left(journal: Journal, clock: Clock) -> float:
    """Seconds until the holder's lease ends; 0 where nobody holds it, or the node was rebooted."""
    holder = journal.holder
    if holder is None or holder.boot != clock.boot:
        return 0.0
    return max(0.0, holder.renewed_s + LEASE_S - clock.now_s)


def shown(journal: Journal, clock: Clock) -> Journal:
    """The journal as others are told of it: one whose lease has ended holds nothing."""
    return journal if lease_left(journal, clock) else journal.model_copy(update={"holder": None})


def named(holder: Holder) -> str:
    """Return the holder as messages name it: `ann@desk (deploy, pid 4711)`."""
    return f"{holder.owner} ({holder.run})" if holder.run else holder.owner


def held_s(holder: Holder, clock: Clock) -> float | None:
    """Return the seconds since the lock was taken; None if unknown."""
    return None if holder.since_s is None or holder.boot != clock.boot else max(0.0, clock.now_s - holder.since_s)


def locked(journal: Journal, clock: Clock) -> str:
    """Return who holds the lock, since when and in which phase; empty if the lock is free."""
    holder, left = journal.holder, lease_left(journal, clock)
    if holder is None or not left:
        return ""
    took_s = held_s(holder, clock)
    since = f" for {took_s:.0f} s" if took_s is not None else ""
    phase = f", phase {journal.swap.phase.value}" if journal.swap else ""
    return f"{journal.service}: locked by {named(holder)}{since}{phase}; lease ends in {left:.0f} s"


def acquire(
    journal: Journal, owner: str, deploy: str, clock: Clock, *, loads: bool = False, run: str = ""
) -> Journal | Refusal:
    """Take the lock. The generation grows, so that whoever held it before can change nothing any more."""
    if journal.hold:
        return Refusal(f"{journal.service} is on hold: {journal.hold}")
    if journal.holder and journal.holder.deploy != deploy and (why := locked(journal, clock)):
        return Refusal(why)
    now = {"renewed_s": clock.now_s, "since_s": clock.now_s, "boot": clock.boot}
    holder = Holder(owner=owner, deploy=deploy, loads=loads, run=run, **now)
    return journal.model_copy(update={"generation": journal.generation + 1, "holder": holder})


def loading(journal: Journal, clock: Clock, node: str) -> bool:
    """Whether an engine of this service is loading on `node`, so that nobody knows yet what memory it will take."""
    swap = journal.swap
    if lease_left(journal, clock):
        loaded = swap is not None and swap.phase.order >= Phase.SWITCH.order
        return journal.holder is not None and journal.holder.loads and not loaded
    if swap is None or swap.verdict or swap.green.on(node) is None or swap.boot != clock.boot:
        return False
    return Phase.START.order <= swap.phase.order < Phase.SWITCH.order


def freeze(journal: Journal, reason: str | None, clock: Clock) -> Journal | Refusal:
    """Put the service on hold, unless somebody is changing it just now; None ends a hold."""
    if reason and journal.holder and lease_left(journal, clock):
        phase = f" (phase {journal.swap.phase})" if journal.swap else ""
        return Refusal(f"{journal.holder.owner} is changing {journal.service} just now{phase}")
    return journal.model_copy(update={"hold": reason})


def holder_of(journal: Journal, generation: int) -> Holder | Refusal:
    """Who took the lock with this generation, even if the lease has ended; or why it has the lock no more."""
    if generation != journal.generation:
        return Refusal(f"another deploy has taken over {journal.service}")
    return journal.holder or Refusal(f"the lock of {journal.service} was given back")


def renew(journal: Journal, generation: int, clock: Clock) -> Journal | Refusal:
    """Keep the lock. Refused when somebody else has taken it since."""
    holder = holder_of(journal, generation)
    if isinstance(holder, Refusal):
        return holder
    renewed = holder.model_copy(update={"renewed_s": clock.now_s, "boot": clock.boot})
    return journal.model_copy(update={"holder": renewed})


def release(journal: Journal, generation: int) -> Journal | Refusal:
    """Give the lock back. A second time changes nothing."""
    if generation != journal.generation:
        return Refusal(f"another deploy has taken over {journal.service}")
    return journal.model_copy(update={"holder": None})


def put(journal: Journal, new: Journal, generation: int) -> Journal | Refusal:
    """Replace what is intended, by the holder only; lock and generation stay the keeper's own."""
    holder = holder_of(journal, generation)
    if isinstance(holder, Refusal):
        return holder
    return new.model_copy(update={"generation": journal.generation, "holder": holder, "hold": journal.hold})
