"""What clients of a real gateway see."""

from __future__ import annotations

import json
import socket
from contextlib import closing

import pytest

from sparkops.gateway import commands
from sparkops.gateway.commands import Endpoint
from sparkops.names import Slot
from tests.gateway.live import (
    ENGINES,
    METRICS,
    PATIENCE_S,
    RELEASES,
    SERVED_BY,
    Answer,
    Live,
    is_documented_refusal,
    refused,
    wait_for,
)
from tests.gateway.streams import Stream

pytestmark = pytest.mark.fleet

BLUE, GREEN = Slot


def test_a_service_that_nobody_serves_answers_with_the_documented_503(live: Live) -> None:
    live.run(commands.switch_down("chat"))

    for _ in range(3):
        assert is_documented_refusal(live.ask(body={"model": "chat"}))
    assert live.facts.services["chat"].active is None


def test_a_service_that_is_stopped_says_so_and_asks_for_no_retry(live: Live) -> None:
    live.run(commands.switch_down("chat", stopped=True))

    reply = live.ask(body={"model": "chat"})
    assert (reply.status, reply.json["error"]["code"]) == (503, "stopped")
    assert "retry-after" not in {name.lower() for name in reply.headers}
    assert (live.facts.services["chat"].active, live.facts.services["chat"].stopped) == (None, True)
    live.run(commands.switch_down("chat"))
    assert is_documented_refusal(live.ask(body={"model": "chat"}))


def test_an_engine_that_is_not_there_answers_with_the_same_503(live: Live) -> None:
    with live.engine("late", 9313):
        live.run(commands.switch_down("chat"))
        live.run(commands.point("chat", GREEN, "chat-late", [Endpoint("127.0.0.1", 9313, "chat-late")]))
        live.run(commands.switch("chat", GREEN, "chat-late"))
        assert live.ask().served_by == ("late", "green", "chat-late")
    try:
        wait_for("the engine's end", lambda: live.ask().status != 200)
        assert is_documented_refusal(live.ask())
        assert live.counts(GREEN).errors > 0
    finally:
        live.switch(BLUE)
        live.point(GREEN)


def test_an_answer_names_the_slot_and_the_release_that_gave_it(live: Live) -> None:
    assert live.ask().served_by == SERVED_BY[BLUE]
    live.switch(GREEN)
    assert live.ask().served_by == SERVED_BY[GREEN]


def test_a_stream_that_is_open_during_a_switch_ends_well_and_is_counted(live: Live) -> None:
    with Stream(live) as stream:
        live.switch(GREEN)

        assert live.ask().served_by == SERVED_BY[GREEN]
        assert live.slot(BLUE).sessions == 1
        assert stream.response.headers["x-sparkops-release"] == RELEASES[BLUE]
        stream.finish()
        assert stream.whole
    wait_for("drained", lambda: live.slot(BLUE).sessions == 0)


def test_a_kept_connection_follows_the_switch_and_does_not_count_as_a_session(live: Live) -> None:
    with closing(live.connect()) as connection:
        for slot in (BLUE, GREEN, BLUE):
            live.switch(slot)
            connection.request("GET", "/v1/models")
            assert Answer.of(connection.getresponse()).served_by == SERVED_BY[slot]
            wait_for("no session", lambda slot=slot: live.slot(slot).sessions == 0)


def test_a_client_that_leaves_ends_its_request_at_the_engine(live: Live) -> None:
    def left() -> int:
        return int(live.ask("/v1/models/seen").json["left"])

    before = left()
    with closing(live.connect()) as connection:
        connection.request("POST", "/v1/completions", json.dumps({"wait_s": 100 * PATIENCE_S}))
        wait_for("under way", lambda: live.slot(BLUE).sessions == 1)

    wait_for("the engine notices", lambda: left() == before + 1)


def test_a_client_chooses_no_slot(live: Live) -> None:
    assert live.ask(x_sparkops_slot="green").served_by == SERVED_BY[BLUE]
    headers = live.ask("/v1/models/seen", x_sparkops_slot="green").json["headers"]
    assert not [name for name in headers if name.startswith("x-sparkops")]


def test_a_slot_without_traffic_is_asked_through_the_gateway(live: Live) -> None:
    assert live.run(commands.preview("chat", GREEN)) == RELEASES[GREEN]
    live.run(commands.point("chat", GREEN, "chat-nobody", [Endpoint("127.0.0.1", 9398, "chat-nobody")]))
    problem = refused(lambda: live.run(commands.preview("chat", GREEN)))
    live.run(commands.point("chat", GREEN, RELEASES[GREEN], [Endpoint("127.0.0.1", ENGINES[GREEN], RELEASES[GREEN])]))

    assert "chat green: a request through the gateway got HTTP 503" in problem
    assert live.ask().served_by == SERVED_BY[BLUE]


def test_an_engine_that_dies_is_an_error_and_a_client_that_leaves_is_none(live: Live) -> None:
    before = live.counts(BLUE)
    for _ in range(3):
        with Stream(live) as stream:
            wait_for("a part", lambda lines=stream.lines: lines)
    wait_for("gone", lambda: live.slot(BLUE).sessions == 0)
    assert live.counts(BLUE).errors == before.errors

    live.ask(body={"fail": True})
    assert live.counts(BLUE).answers_5xx == before.answers_5xx + 1
    answer = live.ask(body={"die": True})
    assert answer.status == 502
    assert answer.json["error"]["code"] == "unavailable"
    assert live.counts(BLUE).errors == before.errors + 1


def test_requests_are_counted_for_each_slot_and_for_prometheus(live: Live) -> None:
    before = live.counts(BLUE).requests, live.counts(GREEN).requests
    for _ in range(5):
        live.ask()

    assert (live.counts(BLUE).requests, live.counts(GREEN).requests) == (before[0] + 5, before[1])
    fetch = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{METRICS}/metrics').read().decode())"
    line = f'haproxy_backend_sessions_total{{proxy="be_chat_blue"}} {before[0] + 5}'
    assert line in live.inside("python3", "-c", fetch).splitlines()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((live.machine.address, METRICS), timeout=5)
