"""The next commands for each reason why a service needs an operator. Pure.

Every place that shows such a reason takes its commands from here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sparkops.swap.journal import Journal, present
from sparkops.swap.model import Phase

NEXT = "\nnext: "
"""Separates a reason from a next step of its own, in one text of a guard."""
UNCONFIRMED = "no other guard confirms"
REBUILD = "sparkops gateway rebuild"
MOVE = "sparkops gateway move"
BY_HAND = " was stopped by hand"
"""End of the reason after the name of a container."""
AGAIN = "sparkops deploy RECIPE"
"""RECIPE: one that works. A deploy replaces what does not serve, also in the middle of a swap."""


def reason(why: str) -> str:
    """Return the reason without a next step of its own."""
    return why.partition(NEXT)[0]


def stopped_by_hand(why: str) -> str:
    """Return the container that an operator stopped, if that is the reason; else an empty text."""
    return why.removesuffix(BY_HAND) if why.endswith(BY_HAND) else ""


def next_step(journal: Journal, why: str, missing: Collection[str] = ()) -> str:
    """Return the commands for a reason, one a line. `missing`: nodes whose guards do not report, as far as known.

    A step that the reason names itself comes first; alone it does not end a swap.
    """
    own = why.partition(NEXT)[2]
    further = _commands(journal, reason(why), missing) if journal.swap or not own else ()
    return "\n".join([*([own] if own else ()), *further])


def of_refusal(journal: Journal, why: str) -> str:
    """Return the commands where an intent is refused because of silent guards or a newer journal; otherwise none."""
    blocked = why.startswith(UNCONFIRMED) or REBUILD in why
    return "\n".join(_commands(journal, why, ())) if blocked else ""


def _commands(journal: Journal, why: str, missing: Collection[str]) -> Iterator[str]:
    service, leader = journal.service, journal.leader
    if REBUILD in why:  # another guard has a newer journal
        yield f"{REBUILD} {leader}"
    elif why.startswith(UNCONFIRMED):
        silent = [node for node in journal.peers if node not in journal.without]
        yield f"docker start sparkops-guard, on {' or '.join(silent)}; sparkops doctor"
        yield f"If they are lost: {AGAIN}{_without(silent)}"
    elif why.startswith("Traceback"):  # an error of the guard's own code
        yield f"docker restart sparkops-guard, on {leader}; sparkops history {service}"
    elif why.startswith("the gateway cannot be read"):
        yield "sparkops doctor --fix"
    elif why.startswith("gateway "):  # a change that it refuses, and that is tried again
        yield f"df and docker logs --tail 50 sparkops-gateway, on {leader}; sparkops doctor"
    elif "does not report" in why:  # a stop that no guard confirms
        yield "sparkops doctor"
    else:
        if journal.hold:  # every other change is refused
            yield f"sparkops hold {service} --off"
        yield from (_of_swap if journal.swap else _of_release)(journal, service, why, missing)


def _of_release(journal: Journal, service: str, why: str, missing: Collection[str]) -> Iterator[str]:
    """Yield the way out where the active release does not answer; one that an operator stopped is deployed again."""
    if stopped_by_hand(why):
        yield AGAIN
        return
    yield f"sparkops logs {service}"
    previous = journal.previous
    returns = previous is not None and not previous.nodes & set(missing)
    yield (f"sparkops rollback {service}" if returns else AGAIN) + _lost(journal, missing)


def _of_swap(journal: Journal, service: str, why: str, missing: Collection[str]) -> Iterator[str]:
    """Yield the way out of a swap: what it waits for is shown by doctor.

    It is rolled back where the old release may return: a return has none, nor has a first deploy.
    """
    swap = present(journal.swap)
    waits = why.startswith("no progress in phase")
    yield "sparkops doctor" if waits else f"sparkops logs {service}"
    ends = swap.retries or swap.reached(Phase.PROMOTE)
    returns = swap.source is not None and not ends and not swap.source.nodes & set(missing)
    if waits and returns:
        yield f"sparkops rollback {service}"
    if not (waits and returns) or swap.reached(Phase.SWITCH):  # whether the old one answers is not known
        yield AGAIN + _lost(journal, missing)


def _lost(journal: Journal, missing: Collection[str]) -> str:
    """Return the options that give up the silent nodes of a service."""
    nodes = {node for release in journal.deployments for node in release.nodes}
    return _without(sorted(nodes & set(missing)))


def _without(nodes: Collection[str]) -> str:
    return "".join(f" --without {node}" for node in dict.fromkeys(nodes))
