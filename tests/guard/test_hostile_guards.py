"""Captured messages, and a guard on a compromised node: it has the key of its node, and sends what it likes."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkops.errors import ConnectionLost
from sparkops.guard import messages
from sparkops.guard.disk.state import State
from sparkops.guard.lead.peers import PeerLink
from sparkops.names import Slot
from sparkops.node.docker.commands import put
from sparkops.swap import wire
from sparkops.swap.effects import SwitchTraffic, WriteJournal
from sparkops.swap.fleet_state import EngineReport, EngineState, FleetState, GatewayView, Report
from sparkops.swap.journal import Journal
from sparkops.swap.leader import step
from sparkops.swap.model import Answer, Deployment, Mode, Phase, RankSpec, Replica
from tests.guard.test_peers import FLEET, KEY, ORDER, Guard, challenge, order_of, post


def test_captured_messages_count_neither_again_nor_after_a_restart_nor_elsewhere() -> None:
    with Guard().serving() as guard:
        captured = [
            order_of("first"),
            order_of(challenge(guard)),
            order_of(challenge(guard)),
            order_of(challenge(guard, "m"), "m"),
        ]
        assert [post(guard.port, message)[0] for message in captured[1:2]] == [200]
        captured[2] = order_of(challenge(guard))
        assert post(guard.port, captured[2])[0] == 200
        assert [post(guard.port, message)[0] for message in (*captured[:3], *reversed(captured[:3]))] == [409] * 6
        assert len(guard.received) == 2
    with Guard(port=guard.port).serving() as restarted:
        for message in (*captured, *reversed(captured)):
            assert post(restarted.port, message)[0] == 409
        assert restarted.received == []
    with Guard(node="spark-3", key=messages.derive(FLEET, "spark-3")).serving() as other:
        assert {post(other.port, message)[0] for message in captured} == {403}


@contextmanager
def replying(body: bytes) -> Iterator[PeerLink]:
    """A link to a guard that signs any body for exactly the message that it answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            packed = self.rfile.read(int(self.headers["Content-Length"]))
            envelope, _ = messages.unpack(messages.verify(KEY, packed))
            reply = replace(
                envelope,
                direction="report",
                sender="spark-2",
                receiver="spark-1",
                answers=envelope.challenge,
                challenge="next",
            )
            content = wire.dump(messages.Envelope, reply) + b"\n" + body
            content = messages.sign(KEY, content) + b"\n" + content
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield PeerLink("spark-2", "127.0.0.1", server.server_address[1], KEY, "spark-1")
        server.shutdown()


GOOD = {"node": "spark-2", "boot": "b", "term": 3, "revision": 17}


def reports(**changes: object) -> bytes:
    return json.dumps({"reports": {"chat": {**GOOD, **changes}}}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"[" * 200_000,
        b'{"reports": ' * 50_000,
        b'{"reports": []}',
        b'{"reports": {"chat": null}}',
        b'{"reports": {"chat": {"node": "spark-2"}}}',
        b'{"reports": {}, "progress": {"chat": {"c": 7}}}',
        b'{"problem": "\\ud800"}',
        b"\xff\xfe",
        reports(term=[3]),
        reports(term="3"),
        reports(term=0.5),
        reports(revision=None),
        reports(engines={}),
        reports(engines=[{"container": "c", "state": "fine"}]),
        reports(engines=[{"container": "c", "state": "healthy", "proven": "maybe"}]),
        b'{"reports": {"chat": {"node": "n", "boot": "b", "term": NaN, "revision": 1}}}',
        b'{"reports": {"chat": {"node": "n", "boot": "b", "term": 1e999, "revision": 1}}}',
        b'{"reports": {"chat": {"node": "n", "boot": "b", "term": ' + b"9" * 5000 + b', "revision": 1}}}',
        b'{"problem": "' + b"x" * messages.MAX_BYTES + b'"}',
    ],
    ids=lambda body: f"{bytes(body[:40])!r} {len(body)}",
)
def test_a_reply_that_is_no_report_is_a_lost_connection(body: bytes) -> None:
    with replying(body) as link, pytest.raises(ConnectionLost):
        link.exchange({"chat": ORDER})


@pytest.mark.parametrize(
    "body",
    [
        reports(term=10**100, revision=-(10**100)),
        reports(engines=[{"container": "c", "state": "healthy"}] * 20_000),
        json.dumps({"progress": {"chat": {"c": "\x1b]0;x\x07\n" * 1000}}}).encode(),
        json.dumps({"reports": {f"s{number}": GOOD for number in range(20_000)}}).encode(),
    ],
    ids=["huge numbers", "many engines", "control characters", "many services"],
)
def test_a_report_of_any_size_up_to_the_limit_is_a_value(body: bytes) -> None:
    with replying(body) as link:
        assert isinstance(link.exchange({"chat": ORDER}), dict)


OLD, NEW = (
    Deployment(name, slot, (Replica((RankSpec(node, f"{name}-r0"),)),))
    for name, slot, node in (("q-1", Slot.BLUE, "n2"), ("q-2", Slot.GREEN, "n3"))
)
SERVING = Journal("chat", "n1", peers=("n2", "n3", "n4"), revision=5, active=OLD)
NAMES = st.sampled_from(["q-1-r0", "q-2-r0", "x", ""])
KEYS = st.sampled_from(["", "1.1", "1.2", "9.9"])
ENGINES = st.builds(
    EngineReport,
    NAMES,
    st.sampled_from(EngineState),
    KEYS,
    st.sampled_from(Answer),
    KEYS,
    st.sampled_from(["", "it failed"]),
    st.booleans(),
    st.booleans(),
)
NUMBERS = st.integers(-3, 40) | st.sampled_from([2**63, -(2**63), 10**30])
LIES = st.builds(
    Report,
    st.sampled_from(["n1", "n2", "n3", "n4", "\x1b[2J"]),
    st.text(max_size=5),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.lists(ENGINES, max_size=4).map(tuple),
    NAMES,
    st.sampled_from(["", "build"]),
)


def in_phase(phase: Phase) -> Journal:
    journal = SERVING.begun("i", Mode.ACROSS, NEW, automatic=True)
    while journal.swap and journal.swap.phase is not phase:
        journal = journal.advanced()
    return journal


def known(journal: Journal, lie: Report, new: EngineState) -> FleetState:
    """The old release serves and answers; n4, which has no rank, lies. The new one is not proven."""
    at, key = journal.revision, journal.swap.key if journal.swap else ""
    honest = {
        "n2": Report("n2", "b", 1, at, at, (EngineReport("q-1-r0", EngineState.HEALTHY),), armed="q-1-r0"),
        "n3": Report("n3", "b", 1, at, at, (EngineReport("q-2-r0", new, key),)),
    }
    answers = {Slot.BLUE: Answer.YES, Slot.GREEN: Answer.UNKNOWN}
    gateway = GatewayView(Slot.BLUE, {Slot.BLUE: "q-1", Slot.GREEN: "q-2"}, answers, {Slot.BLUE: 1, Slot.GREEN: 0})
    return FleetState({**honest, "n4": lie}, gateway, frozenset({"n2"}), sampled_s=1e6)


@given(LIES)
def test_what_a_guard_without_a_rank_reports_changes_no_release(lie: Report) -> None:
    """It may claim a newer journal: then the leader changes nothing, and the release that serves goes on serving."""
    for journal, state in (
        (SERVING, EngineState.ABSENT),
        (in_phase(Phase.LOAD), EngineState.LOADING),
        (in_phase(Phase.VERIFY), EngineState.HEALTHY),
    ):
        effect = step(journal, known(journal, lie, state))
        assert effect is None, f"{journal.swap and journal.swap.phase}: {effect}"


@given(LIES.filter(lambda lie: lie.term <= 1))
def test_what_the_guard_of_the_new_release_claims_never_switches_before_it_answers(lie: Report) -> None:
    journal = in_phase(Phase.VERIFY)
    fleet = known(journal, lie, EngineState.HEALTHY)
    fleet = replace(fleet, reports={"n2": fleet.reports["n2"], "n3": lie})

    effect = step(journal, fleet)

    assert not isinstance(effect, SwitchTraffic)
    if isinstance(effect, WriteJournal):
        assert effect.journal.active == OLD
        assert effect.journal.swap is None or effect.journal.trouble, "it may only fail its own release"


def test_only_a_guard_and_the_ranks_can_read_the_token_of_a_ray_cluster(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    state.put_secret("chat", "ray-q-blue-0", b"token")
    [file] = [file for file in (tmp_path / "state").rglob("*") if file.is_file()]
    command = put("q-blue-r0", "/run/sparkops-ray-token", b"token")

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {stat.S_IMODE(parent.stat().st_mode) for parent in (file.parent, file.parent.parent)} == {0o700}
    assert "token" not in " ".join(command.argv).replace("sparkops-ray-token", "")
