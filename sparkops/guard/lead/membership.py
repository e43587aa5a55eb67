"""The fleet of a guard: the leader that it follows or the guards that it leads, and the requests that change that."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sparkops.errors import PlanRefused, SparkopsError
from sparkops.guard.disk.durable import Unreadable
from sparkops.guard.disk.state import Membership, Peer, State
from sparkops.guard.lead.operator_socket import Request
from sparkops.guard.lead.peers import GuardLink, Reach
from sparkops.guard.messages import derive
from sparkops.swap import trouble, wire
from sparkops.swap.journal import Journal

KEY_BYTES = 32


@dataclass
class Members:
    """The membership of this node. `link` connects to a peer, `make` returns the exchanges over such links."""

    state: State
    node: str
    link: Callable[[str, Peer, Membership], GuardLink]
    make: Callable[[tuple[GuardLink, ...]], Reach]
    lock: threading.RLock
    reach: Reach = field(init=False)

    def __post_init__(self) -> None:
        self.reach = self._reach()

    @property
    def leads(self) -> bool:
        """Whether this guard leads others, or may."""
        membership = self.state.membership()
        return membership is not None and membership.leader == self.node

    @property
    def other(self) -> str:
        """The node whose guard leads this one; empty where this guard leads, or may."""
        membership = self.state.membership()
        return membership.leader if membership and membership.leader != self.node else ""

    def own(self) -> Membership:
        """Return the membership; without one, that of a leader without peers."""
        return self.state.membership() or self._fresh()

    def _fresh(self) -> Membership:
        return Membership(self.node, secrets.token_bytes(KEY_BYTES), {})

    def require_lead(self, besides: str = "") -> None:
        """Raise SparkopsError where this guard does not lead, nor that of `besides`."""
        other = self.other
        if self.leads or (other and other == besides):
            return
        if not other:
            step = "Deploy again with an inventory whose `gateway.node` is the leader."
            raise SparkopsError(f"{self.node} does not lead this fleet", next_step=step)
        step = f"Set `gateway.node: {other}` in the inventory; if its move was interrupted: {trouble.MOVE} {other}"
        raise SparkopsError(f"{self.node} does not lead this fleet: {other} does", next_step=step)

    def key(self, request: Request) -> str:
        """Return the key of one guard. The first request makes the fleet's key."""
        with self.lock:
            membership = self.own()
            if membership.leader != self.node:
                raise SparkopsError(f"{self.node} does not lead this fleet: {membership.leader} does")
            self.state.write_membership(membership)
        return derive(membership.key, request["node"]).hex()

    def join(self, request: Request) -> None:
        """Follow a leader: its messages are signed with this key."""
        with self.lock:
            old = self.state.membership()
            new = _following(old, request, self.node)
            if new != old:
                self.state.write_membership(new)
                self._renew()

    def resign(self, to: str) -> None:
        """Lead no more. Until the guard of `to` takes the lead and is introduced, no message has a key that fits."""
        old = self.own()
        self.state.write_membership(replace(old, leader=to, key=secrets.token_bytes(KEY_BYTES), peers={}))
        self._renew()

    def set_peers(self, peers: Mapping[str, Peer], gateway: tuple[str, ...] = ()) -> bool:
        """Lead these other guards; False where it leads them already. Nothing may need the present ones.

        `gateway`: the addresses of an earlier gateway that still has requests.
        """
        membership = self.own()
        same = self.state.membership() is not None and self.leads and dict(membership.peers) == dict(peers)
        if not same or membership.gateway != gateway:
            self.state.write_membership(replace(membership, peers=peers, gateway=gateway))
        if same:
            return False
        self._renew()
        self.reach.start()
        return True

    def _renew(self) -> None:
        self.reach.close()
        self.reach = self._reach()

    def _reach(self) -> Reach:
        membership = self.state.membership()
        if membership is None or membership.leader != self.node:
            return self.make(())
        return self.make(tuple(self.link(node, peer, membership) for node, peer in sorted(membership.peers.items())))


def _following(old: Membership | None, request: Request, node: str) -> Membership:
    """Return the membership of a guard that follows another one, with the keys of earlier leaders."""
    leader = request["leader"]
    former = {**old.former, old.leader: old.key} if old and old.leader != node else {}
    kept = _kept({name: key for name, key in former.items() if name != leader}, request)
    term = max(request["term"], old.term if old else 0)
    paths = old.paths if old else None
    if "paths" in request:
        paths = (paths or frozenset()).union(map(str, request["paths"]))
    return Membership(leader, bytes.fromhex(request["key"]), {}, kept, tuple(request["gateway"]), term, paths)


def _kept(former: Mapping[str, bytes], request: Request) -> dict[str, bytes]:
    """Return the keys of those earlier leaders that the operator names: they may return and lead on. Without, all."""
    names = request.get("former", former)
    return {name: key for name, key in former.items() if name in names}


@dataclass(frozen=True)
class RebuildRequests:
    """Requests about the leader. `message_s`: when the leader's last message came, in monotonic seconds."""

    state: State
    node: str
    message_s: Callable[[], float | None]

    def verbs(self) -> dict[str, Callable[[Request], object]]:
        return {"copies": lambda _: self.copies(), "terms": self._terms, "take": self._take}

    def _terms(self, _: Request) -> dict[str, int]:
        """Return the term of each service that this node leads behind a gateway, as far as it knows.

        One that led before has its journals still, and follows another.
        """
        membership, terms = self.state.membership(), dict[str, int]()
        if membership is not None and membership.leader != self.node:
            return terms
        for service in self.state.services():
            with suppress(Unreadable):  # `copies` reports it; it stops no other service
                journal = self.state.journal(service)
                if journal and journal.leader == self.node:
                    terms[service] = journal.term
        return terms

    def copies(self) -> dict[str, Any]:
        """Return the journals that this node leads by, its copies of its leader's, and what cannot be read."""
        membership, message_s = self.state.membership(), self.message_s()
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
        heard_ago_s = None if message_s is None else time.monotonic() - message_s
        leader, term = (membership.leader, membership.term) if membership else ("", 0)
        return {**copies, "leader": leader, "term": term, "heard_ago_s": heard_ago_s}

    def _take(self, request: Request) -> None:
        """Write journals that name this node as leader, and lead the fleet from the next start on.

        The fleet key and the term are new, also where this node leads already: the old key may be stolen. Raises
        PlanRefused for a journal that is older than what this guard knows.
        """
        journals = [wire.load_value(Journal, parsed) for parsed in request["journals"]]
        old = self.state.membership()
        leads = old is not None and old.leader == self.node
        joined = old.term if old and not leads else 0
        for journal in journals:
            highest = max(self.state.record(journal.service).term, joined)
            if journal.leader != self.node or journal.term <= highest:
                expected = f"leader {self.node}, term over {highest}"
                raise PlanRefused(
                    f"{journal.service}: leader {journal.leader}, term {journal.term}: expected {expected}"
                )
        for journal in journals:
            self.state.write_journal(journal)
        new = Membership(self.node, secrets.token_bytes(KEY_BYTES))
        if old is not None:  # an earlier gateway may still have requests: its addresses stay until `peers`
            former = old.former if leads else {**old.former, old.leader: old.key}
            peers, term = (old.peers, old.term + 1) if leads else ({}, joined)
            new = replace(
                new, peers=peers, former=_kept(former, request), gateway=old.gateway, term=term, paths=old.paths
            )
        self.state.write_membership(replace(new, term=max(new.term, *(journal.term for journal in journals), 0)))
