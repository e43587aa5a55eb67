"""Notices of all guards, read by an operator, and tests of their webhooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from sparkops.errors import SparkopsError
from sparkops.guard_client.leader import GuardConnection, connect_guard
from sparkops.guard_client.leases import guarded
from sparkops.nodes.connected import Connected
from sparkops.nodes.parallel import on_each

Message = Mapping[str, Any]
"""One notice as notices.message.as_json has it."""
Reply = tuple[int, Sequence[Message], Mapping[str, str]]
"""The number of the last notice, the new ones, and why each receiver fails that does."""


@dataclass(frozen=True)
class Page:
    """What one read has brought: new notices, oldest first; by node the receivers that fail, and why a read failed."""

    messages: tuple[Message, ...]
    failing: Mapping[str, Mapping[str, str]]
    unread: Mapping[str, SparkopsError]


@dataclass
class NoticeReader:
    """Reads what is new since the last read. `guards`: connections by node."""

    connected: Connected
    guards: Mapping[str, GuardConnection]
    last: dict[str, int] = field(default_factory=dict)
    """By node: the number of the last notice that was read."""

    def read(self, wait_s: float = 0.0) -> Page:
        """Read every node at once; without a new notice, each waits up to `wait_s` seconds for one."""
        outcomes = on_each(self.guards, lambda node: self._read(node, wait_s), self.connected.cancel)
        replies = {node: reply for node, reply in outcomes.items() if not isinstance(reply, SparkopsError)}
        for node, (last, _, _) in replies.items():
            self.last[node] = last
        messages = [message for _, notices, _ in replies.values() for message in notices]
        failing = {node: receivers for node, (_, _, receivers) in replies.items() if receivers}
        return Page(
            tuple(sorted(messages, key=lambda message: (message["at"], message["node"], message["n"]))),
            failing,
            {node: error for node, error in outcomes.items() if isinstance(error, SparkopsError)},
        )

    def _read(self, node: str, wait_s: float) -> Reply:
        since, guard = self.last.get(node, 0), self.guards[node]
        reply = guard.read("notices", page, patience_s=wait_s, since=since, wait_s=wait_s)
        if reply[0] < since:  # its numbers began anew: the file was damaged
            reply = guard.read("notices", page, since=0, wait_s=0.0)
        return reply


def page(reply: Any) -> Reply:
    """Read a reply to `notices`. Raises an error for one of another form."""
    failing = {str(item["receiver"]): str(item["failing"]) for item in reply["receivers"] if item["failing"]}
    texts = ("at", "node", "state", "severity", "code", "text")
    notices = [{**item, "n": int(item["n"]), **{key: str(item[key]) for key in texts}} for item in reply["notices"]]
    return int(reply["last"]), notices, failing


@contextmanager
def reading(connected: Connected) -> Iterator[NoticeReader]:
    """Open requests to the guards of all connected nodes; those without one have no notices."""
    with ExitStack() as opened:
        names = [name for name in connected.members if guarded(connected.member(name))]
        yield NoticeReader(
            connected, {name: opened.enter_context(connect_guard(connected.member(name))) for name in names}
        )


def test(connected: Connected) -> dict[str, Sequence[Mapping[str, str]] | SparkopsError]:
    """Let every guard send a test to its receivers; return by node each receiver with its problem, empty for none."""
    with reading(connected) as reader:
        names, cancel = reader.guards, connected.cancel
        return dict(on_each(names, lambda node: reader.guards[node].read("notices_test", tested), cancel))


def tested(reply: Any) -> list[dict[str, str]]:
    """Read a reply to `notices_test`. Raises an error for one of another form."""
    return [{key: str(item[key]) for key in ("receiver", "problem")} for item in reply]
