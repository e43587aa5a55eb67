"""Requests to a guard over a stream, as a real process replies to them or does not."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from sparkops.command import Command
from sparkops.errors import Busy, ConnectionLost, NeedsOperator, NodeError, PlanRefused, SparkopsError
from sparkops.node.agents.commands import RELAY
from sparkops.node.local import LocalNode
from sparkops.node.node import Stream
from sparkops.operator.deploy.agents import rebuild_plan
from sparkops.operator.fleet.guards.following import Accepted, Following
from sparkops.operator.fleet.guards.leader import LIMIT, Decision, Leader
from sparkops.operator.fleet.guards.membership import GuardSettings
from sparkops.swap.intents import Hold
from sparkops.swap.journal import Journal
from sparkops.swap.wire import WireError
from tests.guard_peer import Peer
from tests.operator.deploy.states import serving
from tests.places import ROOT

NOT_BEGUN = (
    "OCI runtime exec failed: exec failed: unable to start container process: "
    "waiting for init preliminary setup: read init-p: connection reset by peer: unknown"
)


@dataclass(frozen=True)
class Guarded:
    """This machine, whose guard is a program."""

    argv: tuple[str, ...]
    name: str = "n1"
    cancel: threading.Event = field(default_factory=threading.Event)

    def pipe(self, command: Command) -> Stream:
        assert command == RELAY
        return LocalNode(self.name).pipe(Command(("env", f"PYTHONPATH={ROOT}", *self.argv)))


def peer_node(directory: Path) -> Guarded:
    return Guarded((sys.executable, "-m", "tests.guard_peer", str(directory), "n1", "n2"))


def leader_of(*argv: str) -> Leader:
    return Leader(Guarded(argv))  # type: ignore[arg-type]


def replying(line: str, times: int = 1) -> Leader:
    """A guard that replies the same to every request and ends after some."""
    return leader_of(
        "sh", "-c", f'for i in $(seq {times}); do read asked || exit; printf "%s\\n" "$1"; done', "sh", line
    )


def test_a_guard_replies_to_every_request_of_the_protocol(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    peer.write(serving().journal)

    with closing(Leader(peer_node(tmp_path))) as leader:  # type: ignore[arg-type]
        assert leader.services() == ["chat"]
        assert leader.state("chat").journal == serving().journal
        assert leader.state("other") == replace(leader.state("other"), journal=Journal("other", "n1"))
        leader.give_secret("chat", "ray-q-blue", "t0k3n")
        assert leader.keys_of(["n2", "n3"]) == {"n2": ("key of n2", 0), "n3": ("key of n3", 0)}
        leader.join("n1", "k", 3, ["10.0.0.1"], **GuardSettings().request)
        leader.set_peers({"n2": ("10.0.0.2", 10844)}, monitoring=None, webhook=None)
        assert leader.intend("chat", Hold("i1", 7, "fair")) == Decision("accepted")
        assert [event["kind"] for event in leader.events("chat", 0)] == ["intent", "note"]
    assert peer.requests("secret") == [{"op": "secret", "service": "chat", "name": "ray-q-blue", "value": "t0k3n"}]
    sent = {"leader": "n1", "key": "k", "term": 3, "gateway": ["10.0.0.1"], "monitoring": None, "webhook": None}
    assert peer.requests("join") == [{"op": "join", **sent}]
    peers = {"n2": {"address": "10.0.0.2", "port": 10844}}
    assert peer.requests("peers") == [
        {"op": "peers", "peers": peers, "gateway": [], "unread": [], "monitoring": None, "webhook": None}
    ]
    assert peer.requests("events") == [{"op": "events", "service": "chat", "since": 0, "wait_s": 0.0}]


@pytest.mark.parametrize(("code", "kind"), [(4, Busy), (5, PlanRefused), (7, NeedsOperator), (1, NodeError)], ids=str)
def test_a_refusal_keeps_its_exit_code_and_next_step(code: int, kind: type[SparkopsError]) -> None:
    line = json.dumps({"error": "journal unreadable", "next_step": "sparkops status", "exit_code": code})

    with closing(replying(line)) as leader, pytest.raises(kind, match="n1: journal unreadable") as caught:
        leader.services()
    assert (caught.value.exit_code, caught.value.next_step) == (code, "sparkops status")


ASKS: dict[str, Callable[[Leader], object]] = {
    "services": Leader.services,
    "state": lambda leader: leader.state("chat"),
    "starts": lambda leader: leader.starts("chat"),
    "terms": Leader.terms,
    "copies": lambda leader: leader.copies(rebuild_plan.read),
    "cordon": Leader.cordon,
    "events": lambda leader: leader.events("chat"),
    "intend": lambda leader: leader.intend("chat", Hold("i1", 7, "fair")),
    "key": lambda leader: leader.keys_of(["n2"]),
}


@pytest.mark.parametrize(
    "reply", [{}, {"ok": 7}, {"ok": {"reason": []}}, {"ok": [7]}, {"ok": "ab"}, {"ok": None}], ids=str
)
@pytest.mark.parametrize("op", ASKS)
def test_a_reply_of_another_form_is_an_error_of_the_guard_that_sent_it(op: str, reply: object) -> None:
    with closing(replying(json.dumps(reply))) as leader, pytest.raises(WireError) as caught:
        ASKS[op](leader)

    assert str(caught.value).startswith(f"n1: the guard's reply to `{op}` has another form: ")
    assert caught.value.next_step == "docker logs sparkops-guard, on n1"


@pytest.mark.parametrize(
    "event", [{"kind": "end"}, {"kind": "end", "result": "done", "exit_code": "0"}, {"kind": "phase", "phase": "load"}]
)
def test_an_event_of_another_form_is_an_error_of_the_guard_that_sent_it(event: dict[str, object]) -> None:
    """The last one has a time that is none, which matters once the swap has ended."""
    events = json.dumps({"ok": [{"n": 1, "at": "T", "text": "x", **event}] * 2})
    fields = {"needs_operator": "", "reports": {}, "progress": {}, "missing": [], "why_missing": {}, "last": 2}
    state = json.dumps({"ok": {"journal": None, "gateway": None, **fields}})
    script = 'while read asked; do case "$asked" in *events*) echo "$1" ;; *) echo "$2" ;; esac; done'
    leader = leader_of("sh", "-c", script, "sh", events, state)

    with closing(leader), pytest.raises(WireError, match="n1: the guard's reply to `events` has another form: "):
        Following(leader, "chat", lambda _: None).until_end(Accepted("", 0))


@pytest.mark.parametrize("code", [None, [], "5", 0, -1, 256, 5.5, True])
def test_a_refusal_of_another_form_is_one_all_the_same(code: object) -> None:
    with closing(replying(json.dumps({"error": 7, "exit_code": code}))) as leader, pytest.raises(NodeError) as caught:
        leader.services()

    assert (str(caught.value), caught.value.exit_code, caught.value.next_step) == ("n1: 7", 1, "")


@pytest.mark.parametrize("printed", ["", '{"ok": []'], ids=["nothing", "half a reply"])
def test_a_guard_that_ends_is_a_lost_connection(printed: str) -> None:
    leader = leader_of("sh", "-c", f"read line; printf '{printed}'")

    with (
        closing(leader),
        pytest.raises(ConnectionLost, match="the guard ended before it replied to `services`") as caught,
    ):
        leader.services()
    assert caught.value.next_step == "docker logs sparkops-guard, on n1"


def test_the_next_request_opens_a_new_stream_after_one_was_lost(tmp_path: Path) -> None:
    once = 'echo >>"$1"; read line; [ "$(wc -l <"$1")" -ge 2 ] || exit; echo \'{"ok": ["chat"]}\''

    with closing(leader_of("sh", "-c", once, "sh", str(tmp_path / "tries"))) as leader:
        with pytest.raises(ConnectionLost):
            leader.services()
        assert leader.services() == ["chat"]


@pytest.mark.parametrize(("output", "tries"), [(NOT_BEGUN, 3), ("OCI runtime exec failed: no such file", 1)])
def test_a_program_that_docker_could_not_start_is_started_again(tmp_path: Path, output: str, tries: int) -> None:
    script = 'echo >>"$1"; echo "$2"; exit 126'

    with (
        closing(leader_of("sh", "-c", script, "sh", str(tmp_path / "tries"), output)) as leader,
        pytest.raises(ConnectionLost, match="the guard did not receive `services`: OCI"),
    ):
        leader.services()
    assert (tmp_path / "tries").read_text() == "\n" * tries


def test_a_reply_without_end_is_refused() -> None:
    size = 1 << 20
    endless = f"import sys; sys.stdin.readline()\nfor _ in range({LIMIT // size + 2}): print('x' * {size}, end='')"

    with closing(leader_of(sys.executable, "-c", endless)) as leader, pytest.raises(ConnectionLost) as caught:
        leader.services()
    assert str(caught.value) == f"n1: the guard's reply to `services` has more than {LIMIT} characters"


def test_an_intent_whose_reply_was_lost_is_sent_again_and_counts_once(tmp_path: Path) -> None:
    """The first reply is swallowed: the guard has accepted, and its stream ends."""
    Peer(tmp_path).write(serving().journal)
    deaf = (
        "import sys; from pathlib import Path; from tests.guard_peer import Peer\n"
        "peer, first = Peer(Path(sys.argv[1])), Path(sys.argv[1]) / 'first'\n"
        "for line in sys.stdin:\n"
        "    reply = peer.reply(line)\n"
        "    if not first.exists():\n"
        "        first.touch(); sys.exit()\n"
        "    print(reply, end='', flush=True)\n"
    )

    with closing(leader_of(sys.executable, "-c", deaf, str(tmp_path))) as leader:
        decision = leader.intend("chat", Hold("i1", 7, "fair"))

    assert decision.accepted
    assert decision == Decision("nothing", "already accepted")
    assert len(Peer(tmp_path).requests("intend")) == 2
    journal = Peer(tmp_path).journal("chat")
    assert journal is not None
    assert (journal.hold, journal.revision) == ("fair", 8)


def test_a_refused_intent_is_busy_or_refused_with_what_to_do() -> None:
    with pytest.raises(Busy, match="chat: on hold: fair") as caught:
        Decision("refused", "on hold: fair", 4).require("chat")
    assert "--wait 10m" in caught.value.next_step
    with pytest.raises(PlanRefused, match="chat: slot blue has the traffic"):
        Decision("refused", "slot blue has the traffic", 5).require("chat")
    assert not Decision("nothing", "q-1 is active").accepted
