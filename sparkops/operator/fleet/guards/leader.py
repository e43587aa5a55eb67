"""The operator's side of a guard: requests and replies, a line of JSON each, over the one connection to its node."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sparkops import foreign
from sparkops.errors import Busy, ConnectionLost, PlanRefused
from sparkops.node.agents.commands import CONTAINER, RELAY
from sparkops.node.cordon import Cordon
from sparkops.node.member import Member
from sparkops.node.node import Node
from sparkops.node.streams import KEEP, LineStream
from sparkops.node.waiting import retry_start
from sparkops.operator.fleet.guards.replies import Read, parsed, records, refusal, unfit
from sparkops.serving import service_state
from sparkops.serving.service_state import ServiceState
from sparkops.swap import wire
from sparkops.swap.intents import Intent
from sparkops.swap.journal import SCHEMA, Journal

REPLY_S = 60.0
"""Seconds within which a guard replies, besides the time that a request lets it wait."""
LIMIT = 4 * KEEP
"""Characters of a reply: a history of some 10^5 events."""
RESENDS = 3  # of an intent whose reply was lost: its identifier makes a repetition harmless


@dataclass(frozen=True)
class Decision:
    """The leader's reply to an intent: accepted, refused or nothing (to do). `code` is the exit code of a refusal."""

    result: str
    why: str = ""
    code: int = 0

    @property
    def accepted(self) -> bool:
        """Whether the fleet executes it; an intent that was sent twice was accepted the first time."""
        return self.result == "accepted" or (self.result == "nothing" and self.why.startswith("already accepted"))

    def require(self, service: str) -> None:
        """Raise Busy or PlanRefused for a refusal."""
        if self.result != "refused":
            return
        about = self.why if self.why.startswith(service) else f"{service}: {self.why}"
        if self.code == Busy.exit_code:
            raise Busy(about, next_step=service_state.free_step(service, about))
        raise PlanRefused(about, next_step="Check `sparkops status`, then retry.")


@dataclass
class GuardConnection:
    """A stream of requests to the guard of one node, opened at the first request and reopened after a failure."""

    node: Node
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.stream = LineStream(self.node, RELAY)

    def request(self, op: str, *, patience_s: float = 0.0, **words: Any) -> Any:
        """Send one request and return its reply; `patience_s` is how long the guard may wait before it replies.

        Raises the guard's refusal with its exit code, or ConnectionLost where no whole reply came.
        """
        return self.requests(op, [words], patience_s=patience_s)[0]

    def requests(self, op: str, questions: Sequence[Mapping[str, Any]], *, patience_s: float = 0.0) -> list[Any]:
        """Send requests in one round trip and return their replies in order. Raises the first error as `request`."""
        if not questions:
            return []
        sent = [json.dumps({"op": op, "format": SCHEMA, **words}) for words in questions]
        with self.mutex:
            lines = retry_start(lambda: self._exchange(op, sent, REPLY_S + patience_s), cancel=self.node.cancel)
        return [self._reply(op, line) for line in lines]

    def _reply(self, op: str, line: str) -> Any:
        try:
            reply = foreign.loads(line)
        except ValueError as error:
            raise ConnectionLost(self.node.name, f"the guard's reply to `{op}` is unreadable: {error}") from None
        if "error" in reply:
            raise refusal(self.node.name, reply)
        return parsed(self.node.name, op, reply, lambda reply: reply["ok"])

    def read(self, op: str, read: Callable[[Any], Read], **words: Any) -> Read:
        """Send one request and return its reply as `read` reads it. Raises WireError for one of another form."""
        return parsed(self.node.name, op, self.request(op, **words), read)

    def _exchange(self, op: str, questions: Sequence[str], timeout_s: float) -> list[str]:
        """Return the lines that reply. After any failure the next request opens a new stream."""
        try:
            reused = self._open()
            lines = self.stream.requests(questions, timeout_s, LIMIT + 1)
            if reused and not all(lines):  # the guard was replaced since the stream was opened: no request harms twice
                self.close()
                self._open()
                lines = self.stream.requests(questions, timeout_s, LIMIT + 1)
        except OSError as error:
            self.close()
            raise ConnectionLost(self.node.name, f"no reply to `{op}` from the guard: {error}") from error
        except BaseException:  # such as Ctrl-C: the reply would be taken for that of the next request
            self.close()
            raise
        if problem := next(filter(None, (unfit(op, line, LIMIT) for line in lines)), ""):
            self.close()
            step = f"docker logs {CONTAINER}, on {self.node.name}"
            raise ConnectionLost(self.node.name, problem, next_step=step)
        return lines

    def _open(self) -> bool:
        try:
            return self.stream.open()
        except OSError as error:
            raise ConnectionLost(self.node.name, f"the guard cannot be reached: {error}") from error

    def close(self) -> None:
        self.stream.close()

    def services(self) -> list[str]:
        return [*self.read("services", lambda names: wire.load_value(tuple[str, ...], names))]

    def state(self, service: str) -> ServiceState:
        """Return the state of a service. Raises WireError for one of another form."""
        return self.read("state", lambda reply: service_state.read(service, self.node.name, reply), service=service)

    def starts(self, service: str) -> list[dict[str, Any]]:
        """Return the successful starts of a service on the guard's node, oldest first."""
        return self.read("starts", lambda starts: [dict(start) for start in starts], service=service)

    def give_secret(self, service: str, name: str, value: str) -> None:
        """Give the guard a secret of a service, over stdin."""
        self.request("secret", service=service, name=name, value=value)

    def join(self, leader: str, key: str, term: int, gateway: Sequence[str] = (), **settings: Any) -> None:
        """Make the guard follow the guard of node `leader`, whose orders are signed with `key` (hex).

        `term`: that of the rebuild that made it the leader. `gateway`: the addresses of that node, which may connect
        to engines. `settings`: those of membership.py; `paths`, the directories, files and devices of its
        node that engines may get, besides those of earlier requests, which earlier releases may need; `former`, as of
        `take`. Without one, the guard keeps its own. Raises PlanRefused if another leader has deployed a service that
        needs this guard, or if the port of `monitoring` is taken.
        """
        self.request("join", leader=leader, key=key, term=term, gateway=list(gateway), **settings)

    def terms(self) -> dict[str, int]:
        """Return the term of each service that this node leads, as recorded by its guard."""
        return self.read("terms", lambda terms: {name: int(term) for name, term in terms.items()})

    def copies(self, read: Callable[[Any], Read]) -> Read:
        """Return the guard's journals and copies as `read`, that of agents.rebuild_plan, parses them."""
        return self.read("copies", read)

    def take(self, journals: Iterable[Journal], former: Iterable[str]) -> None:
        """Make the guard lead the fleet with these journals and a new fleet key, from its next start on.

        `former`: the earlier leaders whose keys it keeps, because they may return without knowledge of this one.
        """
        self.request("take", journals=[wire.plain(Journal, journal) for journal in journals], former=sorted(former))

    def resign(self, to: str) -> None:
        """Make the guard decide nothing more, for that of node `to` to take the lead. Raises Busy during a change."""
        self.request("resign", to=to)

    def lease(self, kind: str, holder: str, service: str = "") -> None:
        """Take or renew a lease, until this stream ends. Raises Busy while other work blocks it."""
        self.request("lease", kind=kind, holder=holder, service=service)

    def cordon(self) -> Cordon:
        """Return the cordon of the guard's node. Raises WireError for one of another form."""
        return self.read("cordon", lambda cordon: wire.load_value(Cordon, cordon))

    def set_cordon(self, was: Cordon, to: Cordon) -> None:
        """Replace the cordon of the guard's node. Raises Busy while a swap loads there, or if it is not `was`."""
        self.request("set_cordon", was=wire.plain(Cordon, was), to=wire.plain(Cordon, to))

    def events(self, service: str, since: int = 0, wait_s: float = 0.0) -> list[dict[str, Any]]:
        """Return the events after number `since`; without any, wait for one up to `wait_s` seconds."""
        return self.read("events", records, patience_s=wait_s, service=service, since=since, wait_s=wait_s)


@dataclass
class Leader(GuardConnection):
    """The guard that leads the services of a fleet."""

    def intend(self, service: str, intent: Intent) -> Decision:
        """Send an intent. Raises ConnectionLost if it is unknown whether the leader has accepted it."""
        sent = json.loads(wire.dump(type(intent), intent))
        decide = partial(wire.load_value, Decision)
        return self._resent(lambda: self.read("intend", decide, service=service, intent=sent))

    def _resent(self, send: Callable[[], Decision]) -> Decision:
        for _ in range(RESENDS - 1):
            with suppress(ConnectionLost):
                return send()
        return send()

    def keys_of(self, nodes: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Return by node the key (hex) with which orders to its guard are signed, and the term of the last rebuild."""
        replies = self.requests("key", [{"node": node} for node in nodes])

        def read(reply: Any) -> tuple[str, int]:
            return str(reply["key"]), int(reply["term"])

        return {node: parsed(self.node.name, "key", reply, read) for node, reply in zip(nodes, replies, strict=True)}

    def set_peers(
        self,
        peers: Mapping[str, tuple[str, int]],
        gateway: Sequence[str] = (),
        unread: Collection[str] = (),
        **settings: Any,
    ) -> None:
        """Set addresses and ports of other nodes' guards for the leader.

        `unread`: the nodes that do not answer this machine; the leader keeps an address of theirs. `gateway`: the
        addresses of an earlier gateway that still has requests. `settings`: as for `join`.
        """
        addresses = {node: {"address": address, "port": port} for node, (address, port) in peers.items()}
        self.request("peers", peers=addresses, gateway=list(gateway), unread=sorted(unread), **settings)

    def lead(self, service: str, copies: Iterable[Journal]) -> None:
        """Make this guard lead a service. `copies`: its journals on other guards. Raises PlanRefused while it runs."""
        journals = [json.loads(wire.dump(Journal, copy)) for copy in copies]
        self.request("lead", service=service, copies=journals)


def leading(member: Member) -> closing[Leader]:
    """Open requests to the guard of this node, which leads."""
    return closing(Leader(member.node))


def connect_guard(member: Member) -> closing[GuardConnection]:
    """Open requests to the guard of any node."""
    return closing(GuardConnection(member.node))
