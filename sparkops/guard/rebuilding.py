"""Requests about who leads: what this guard knows of every service, the lead of the fleet, and another leader."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sparkops.errors import PlanRefused
from sparkops.guard.door import Question
from sparkops.guard.durable import Unreadable
from sparkops.guard.members import KEY_BYTES
from sparkops.guard.state import Membership, State
from sparkops.swap import wire
from sparkops.swap.journal import Journal


@dataclass(frozen=True)
class RebuildVerbs:
    """What the door answers about the leader. `heard_s`: when the leader's last message came, in monotonic seconds."""

    state: State
    node: str
    heard_s: Callable[[], float | None]

    def verbs(self) -> dict[str, Callable[[Question], object]]:
        """Return the verbs by name."""
        return {"copies": lambda _: self.copies(), "terms": self._terms, "take": self._take}

    def _terms(self, _: Question) -> dict[str, int]:
        """Return the term of each service that this node leads behind a gateway, as far as it knows."""
        terms = {}
        for service in self.state.services():
            with suppress(Unreadable):  # `copies` reports it; it stops no other service
                journal = self.state.journal(service)
                if journal and journal.leader == self.node and self.state.direct(service) is None:
                    terms[service] = journal.term
        return terms

    def copies(self) -> dict[str, Any]:
        """Return the journals that this node leads by, its copies of its leader's, and what cannot be read."""
        membership, heard_s = self.state.membership(), self.heard_s()
        copies: dict[str, list[Any]] = {"journals": [], "copies": [], "problems": []}
        for service in self.state.services():
            try:
                journal, copy = self.state.journal(service), self.state.record(service).copy
            except Unreadable as error:
                copies["problems"].append(str(error))
                continue
            if journal and journal.leader == self.node:
                copies["journals"].append(wire.plain(Journal, journal))
            if copy:
                copies["copies"].append(wire.plain(Journal, copy))
        heard_ago_s = None if heard_s is None else time.monotonic() - heard_s
        leader, term = (membership.leader, membership.term) if membership else ("", 0)
        return {**copies, "leader": leader, "term": term, "heard_ago_s": heard_ago_s}

    def _take(self, request: Question) -> None:
        """Write journals that name this node as leader, and lead the fleet from the next start on, with a new key.

        Raises PlanRefused for a journal that is older than what this guard knows.
        """
        journals = [wire.load_value(Journal, parsed) for parsed in request["journals"]]
        old = self.state.membership()
        leads = old is not None and old.leader == self.node
        joined = old.term if old and not leads else 0
        for journal in journals:
            known = max(self.state.record(journal.service).term, joined)
            if journal.leader != self.node or journal.term <= known:
                expected = f"leader {self.node}, term over {known}"
                raise PlanRefused(
                    f"{journal.service}: leader {journal.leader}, term {journal.term}: expected {expected}"
                )
        for journal in journals:
            self.state.write_journal(journal)
        if old is None or not leads:
            former = {**old.former, old.leader: old.key} if old else {}
            old = Membership(self.node, secrets.token_bytes(KEY_BYTES), {}, former)
        term = max(old.term, joined, *(journal.term for journal in journals))
        self.state.write_membership(replace(old, term=term))
