"""What changes a real gateway, what is refused, and what survives."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection

import pytest

from sparkops.gateway import commands
from sparkops.gateway.commands import Endpoint
from sparkops.names import Slot
from sparkops.operator.build.gateway.image import Service
from tests.gateway.live import CHAT, ENGINES, PORT, RELEASES, SERVED_BY, Live, is_documented_refusal, refused, wait_for
from tests.gateway.streams import Stream

pytestmark = pytest.mark.fleet

BLUE, GREEN = Slot


@contextmanager
def served_too(live: Live, name: str, port: int) -> Iterator[None]:
    """Let the gateway have a service beside chat, which takes a reload."""
    assert live.configure(CHAT, Service(name, port)) == "configured"
    try:
        yield
    finally:
        live.run(commands.forget(name))


def sessions(live: Live) -> tuple[int | None, int, int]:
    """Sessions of blue, those of them in old workers, and the number of workers."""
    counts = live.counts(BLUE)
    return live.slot(BLUE).sessions, counts.old_sessions, counts.workers


def refuses(live: Live, port: int) -> bool:
    """Whether nothing listens on a port of the gateway."""
    try:
        live.ask(port=port)
    except ConnectionRefusedError:
        return True
    return False


def test_a_switch_needs_the_release_that_the_slot_was_pointed_at(live: Live) -> None:
    refusal = refused(lambda: live.run(commands.switch("chat", GREEN, "chat-other")))

    assert refusal == f"gateway: chat green has release {RELEASES[GREEN]}, expected chat-other\n"
    assert live.ask().served_by == SERVED_BY[BLUE]


def test_a_slot_with_traffic_cannot_be_pointed_elsewhere(live: Live) -> None:
    refusal = refused(lambda: live.run(commands.point("chat", BLUE, "chat-x", [Endpoint("127.0.0.1", 9399, "chat-x")])))

    assert refusal == "gateway: chat blue is active: some of its servers must stay\n"
    assert live.point(BLUE)  # as it is: nothing to do
    assert list(live.facts.drift) == []


def test_a_client_that_keeps_its_connection_is_answered_after_a_reload(live: Live) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(closing(live.connect())) for _ in range(5)]
        for connection in idle:
            assert asked(connection) == ("blue", None)
        with served_too(live, "embed", PORT + 3):
            live.switch(GREEN)
            assert {asked(connection) for connection in idle} == {("green", "close")}


def asked(connection: HTTPConnection) -> tuple[str | None, str | None]:
    """Ask for the models over an open connection; the engine that answers, and whether the connection closes."""
    connection.request("GET", "/v1/models")
    response = connection.getresponse()
    response.read()
    return response.headers["x-stand-in"], response.headers["connection"]


def test_a_gateway_that_is_killed_comes_back_with_the_slot_of_its_file(live: Live) -> None:
    live.switch(GREEN)
    began = time.monotonic()
    live.machine.kill_container("sparkops-gateway")
    wait_for("killed", lambda: live.counts(BLUE).workers == 1)

    assert live.ask().served_by == SERVED_BY[GREEN]
    assert list(live.facts.drift) == []
    print(f"back after {time.monotonic() - began:.2f} s")


def test_after_a_crash_between_file_and_haproxy_the_file_wins_and_the_drift_has_a_name(live: Live) -> None:
    change = "import sys; sys.path[0] = '/opt/sparkops/gateway'; import disk; disk.activate({'chat': 'be_chat_green'})"
    live.inside("python3", "-c", change)

    assert list(live.facts.drift) == [("MAP_RUNTIME_DIFF", "chat: be_chat_green in the file, be_chat_blue in HAProxy")]
    assert live.ask().served_by == SERVED_BY[BLUE]
    live.switch(GREEN)  # running it again repairs it
    assert list(live.facts.drift) == []


def test_what_somebody_else_changed_in_haproxy_has_a_name_and_stops_a_switch(live: Live) -> None:
    change = "import sys; sys.path[0] = '/opt/sparkops/gateway'; import haproxy; haproxy.query(sys.argv[1])"
    live.inside("python3", "-c", change, "set server be_chat_green/s1 state maint")

    server = f"127.0.0.1:{ENGINES[GREEN]}"
    assert list(live.facts.drift) == [("SERVERS_DIFF", f"chat green: pointed at {server}, HAProxy has none")]
    assert "point it again" in refused(lambda: live.switch(GREEN))
    live.point(GREEN)
    live.switch(GREEN)


def test_adding_a_service_cuts_no_stream_and_old_workers_are_counted(live: Live) -> None:
    with Stream(live) as stream, served_too(live, "embed", PORT + 3):
        assert is_documented_refusal(live.ask(port=PORT + 3))
        live.switch(GREEN)
        wait_for("the old worker alone has the stream", lambda: sessions(live) == (1, 1, 2))
        stream.finish()
        assert stream.whole
        wait_for("the old worker's end", lambda: sessions(live) == (0, 0, 1))
    wait_for("its port is closed", lambda: refuses(live, PORT + 3))
    assert list(live.facts.services) == ["chat"]


def test_cut_ends_the_sessions_of_a_slot_in_old_workers_too(live: Live) -> None:
    with Stream(live) as old, served_too(live, "embed", PORT + 3), Stream(live) as new:
        live.switch(GREEN)
        with Stream(live) as untouched:
            assert live.run(commands.cut("chat", BLUE)) == "2"
            assert [stream.whole for stream in (old, new)] == [False, False]
            untouched.finish()
            assert untouched.whole
        wait_for("cut", lambda: live.slot(BLUE).sessions == 0)


def test_a_switch_is_refused_while_an_old_worker_does_not_reply(live: Live) -> None:
    with Stream(live) as stream, served_too(live, "embed", PORT + 3):
        shown = json.loads(live.run(commands.SHOW))["haproxy"]["processes"]
        _, old = (line.split()[0] for line in shown.splitlines() if line.split()[1:2] == ["worker"])
        live.inside("sh", "-c", f"kill -STOP {old}")
        try:
            assert "HAProxy does not answer" in refused(lambda: live.switch(GREEN))
            assert [live.slot(slot).sessions for slot in Slot] == [None, None]
        finally:
            live.inside("sh", "-c", f"kill -CONT {old}")
        live.switch(GREEN)
        stream.finish()
        assert stream.whole


def test_the_same_files_again_change_nothing(live: Live) -> None:
    before = live.facts

    assert live.configure() == "unchanged"
    assert live.facts.files == before.files


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("services/bad.cfg", "frontend fe_bad\n  nonsense here\n", "unknown keyword 'nonsense'"),
        ("services/twin.cfg", f"frontend fe_twin\n  bind :{PORT}\n", f"port {PORT} is in two files: chat.cfg"),
        ("services/ssh.cfg", "frontend fe_ssh\n  bind :22\n", "port 22 of ssh.cfg is in use by another program"),
        ("../escape.cfg", "x", "unknown file name: '../escape.cfg'"),
    ],
)
def test_files_that_cannot_be_loaded_are_not_kept(live: Live, name: str, text: str, error: str) -> None:
    before = live.facts.files

    assert error in refused(lambda: live.run(commands.configure({name: text})))
    assert live.facts.files == before
    assert list(live.facts.drift) == []
    assert live.ask().served_by == SERVED_BY[BLUE]


def test_operators_at_the_same_time_wait_for_each_other(live: Live) -> None:
    slots = [BLUE, GREEN] * 4
    with ThreadPoolExecutor() as threads:
        replies = list(threads.map(live.switch, slots))

    assert [line.split()[-1] for line in replies] == [f"be_chat_{slot}" for slot in slots]
    assert list(live.facts.drift) == []
