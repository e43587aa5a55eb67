"""This guard's place among the others: the leader that it follows, or the guards that it leads and the way to them."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sparkops.deploy.deployment import is_direct
from sparkops.errors import PlanRefused, SparkopsError
from sparkops.guard.door import Question
from sparkops.guard.messages import derive
from sparkops.guard.reach import GuardLink, Reach
from sparkops.guard.state import Membership, Peer, State

KEY_BYTES = 32


@dataclass
class Members:
    """The membership of this node. `link` opens the way to a peer, `reach` makes the exchanges over such links."""

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

    def own(self) -> Membership:
        """The membership; before there is one, that of a leader without peers."""
        return self.state.membership() or self._fresh()

    def _fresh(self) -> Membership:
        return Membership(self.node, secrets.token_bytes(KEY_BYTES), {})

    def require_lead(self) -> None:
        """Raise SparkopsError where another guard leads."""
        if not self.leads:
            step = "Deploy again with an inventory whose `gateway.node` is the leader."
            raise SparkopsError(f"{self.node} does not lead this fleet", next_step=step)

    def key(self, request: Question) -> str:
        """The key of one guard. The first question makes the fleet's key. `idle`: leave a leader of nothing."""
        with self.lock:
            membership = self.own()
            if membership.leader != self.node:
                if not request.get("idle"):
                    raise SparkopsError(f"{self.node} does not lead this fleet: {membership.leader} does")
                self._require_idle(membership.leader)
                membership = self._fresh()
            self.state.write_membership(membership)
        return derive(membership.key, request["node"]).hex()

    def join(self, request: Question) -> None:
        """Follow a leader: its messages are signed with this key.

        Refused while another leader has a replica without a gateway on several nodes here; `idle`: or anything else.
        """
        with self.lock:
            membership = self.own()
            if membership.leader != request["leader"]:
                self._require_idle(membership.leader, direct_only=not request.get("idle"))
            old = self.state.membership()
            new = _following(old, request, self.node)
            if new != old:
                self.state.write_membership(new)
                self._renew()

    def _require_idle(self, leader: str, *, direct_only: bool = False) -> None:
        """Raise PlanRefused where a service of this leader is deployed, and this guard not the only one of it."""
        for service in self.state.services():
            journal = self.state.journal(service) if leader == self.node else self.state.record(service).copy
            if journal is None or journal.leader != leader or not journal.peers:
                continue
            if any(not direct_only or is_direct(item) for item in journal.deployments):
                follows = "leads" if leader == self.node else f"follows {leader} for"
                problem = f"{self.node} {follows} {service}: a guard takes orders from one leader"
                step = f"sparkops stop {service}\nor name nodes of that leader with --node, {leader} first"
                raise PlanRefused(problem, next_step=step)

    def set_peers(self, peers: Mapping[str, Peer]) -> bool:
        """Lead these other guards. False where it does. Nothing must need the present ones."""
        membership = self.own()
        if self.state.membership() and self.leads and dict(membership.peers) == dict(peers):
            return False
        self.state.write_membership(replace(membership, peers=peers))
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


def _following(old: Membership | None, request: Question, node: str) -> Membership:
    """The membership of a guard that follows another one; the keys of earlier leaders are kept."""
    leader = request["leader"]
    former = {**old.former, old.leader: old.key} if old and old.leader != node else {}
    kept = {name: key for name, key in former.items() if name != leader}
    term = max(request.get("term", 0), old.term if old else 0)
    return Membership(leader, bytes.fromhex(request["key"]), {}, kept, tuple(request.get("gateway", ())), term)
