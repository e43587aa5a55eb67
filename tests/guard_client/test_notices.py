"""Notices of several guards, read by an operator."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkops.errors import ConnectionLost
from sparkops.guard.operator_socket import ConnectionLeases, answer
from sparkops.guard.state import State
from sparkops.guard.webhook import Webhooks
from sparkops.guard_client.notices import NoticeReader
from sparkops.guard_client.replies import is_unknown_request, parsed, refusal
from sparkops.notices.catalogue import Code, Notice

pytestmark = pytest.mark.unit


class Guard:
    """A guard's reply to requests, without a connection. `verbs`: None for a lost one."""

    def __init__(self, node: str, directory: Path) -> None:
        self.node, self.state = node, State(directory / node)
        self.verbs: Any = Webhooks(self.state, node, lambda _: None).verbs()

    def request(self, op: str, *, patience_s: float = 0.0, **words: Any) -> Any:
        assert patience_s >= 0
        if self.verbs is None:
            raise ConnectionLost(self.node, "no reply")
        with ConnectionLeases() as leases:
            reply = answer(self.verbs, json.dumps({"op": op, **words}).encode(), leases)
        if "error" in reply:
            raise refusal(self.node, reply)
        return json.loads(json.dumps(reply))["ok"]

    def read(self, op: str, read: Any, **words: Any) -> Any:
        return parsed(self.node, op, self.request(op, **words), read)


def reader(*guards: Guard) -> NoticeReader:
    connected: Any = SimpleNamespace(cancel=threading.Event())
    by_name: Any = {guard.node: guard for guard in guards}
    return NoticeReader(connected, by_name)


def texts(read: NoticeReader) -> list[tuple[str, str]]:
    return [(message["node"], message["text"]) for message in read.read().messages]


def test_each_notice_of_every_node_is_read_once_in_the_order_of_their_times(tmp_path: Path) -> None:
    first, second = Guard("n1", tmp_path), Guard("n2", tmp_path)
    clock = iter([3.0, 1.0, 2.0, 4.0])
    for guard in (first, second):
        guard.state.outbox.now = lambda: next(clock)
    first.state.outbox.add(Notice(Code.STOPPED, "third"))
    second.state.outbox.add(Notice(Code.STOPPED, "first"))
    second.state.outbox.add(Notice(Code.STOPPED, "second"))
    read = reader(first, second)

    assert texts(read) == [("n2", "first"), ("n2", "second"), ("n1", "third")]
    assert texts(read) == []
    first.state.outbox.add(Notice(Code.STOPPED, "fourth"))
    assert texts(read) == [("n1", "fourth")]


def test_numbers_that_begin_anew_hide_nothing(tmp_path: Path) -> None:
    guard = Guard("n1", tmp_path)
    for number in range(3):
        guard.state.outbox.add(Notice(Code.STOPPED, str(number)))
    read = reader(guard)
    texts(read)
    (tmp_path / "n1" / "notices").write_bytes(b"damaged")
    guard.state = State(tmp_path / "n1")
    guard.verbs = Webhooks(guard.state, "n1", lambda _: None).verbs()

    [(_, text)] = texts(read)
    assert text.startswith("notices that waited on this node cannot be read")


def test_a_node_that_is_lost_or_of_an_earlier_version_hides_no_other(tmp_path: Path) -> None:
    guards = [Guard(name, tmp_path) for name in ("n1", "n2", "n3")]
    for guard in guards:
        guard.state.outbox.add(Notice(Code.STOPPED, guard.node))
    guards[1].verbs, guards[2].verbs = None, {}
    page = reader(*guards).read()

    assert [message["node"] for message in page.messages] == ["n1"]
    assert {node: is_unknown_request(error) for node, error in page.unread.items()} == {"n2": False, "n3": True}
