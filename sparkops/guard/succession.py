"""Whether another guard may lead by now: what a leader that was away finds out before its node starts an engine."""

from __future__ import annotations

import time

from sparkops.guard.leading import Leading

CONFIRM_S = 10.0


def awaited(leading: Leading) -> str:
    """Return what engines of this node wait for before they start; empty for nothing.

    A leader that was away may have been replaced: it asks a guard first, and waits for one up to CONFIRM_S.
    """
    reach = leading.members.reach
    for service, lead in tuple(leading.leads.items()):
        if any(report.term > lead.journal.term for report in reach.reports(service).values()):
            return "new leader of this fleet: the next deploy lets this node join it"
    unmet = reach.links and not reach.met and time.monotonic() - reach.began_s < CONFIRM_S
    return "answer of another guard" if unmet else ""
