"""Requests that wait in a real gateway for the next release: reloads, clients that leave, bounds."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from sparkops.gateway import commands
from sparkops.gateway.commands import Endpoint
from sparkops.gateway.facts import HoldFacts
from sparkops.names import Slot
from sparkops.operator.build.gateway.image import Service
from sparkops.swap.effects import RequestHold
from tests.gateway.live import (
    METRICS,
    PORT,
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
CLIENTS = 40
HOLD = RequestHold("1.2", left_s=60.0, longest_s=540.0, most=500)


@pytest.fixture
def clients() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(CLIENTS) as threads:
        yield threads


def wait_in(live: Live, clients: ThreadPoolExecutor, count: int) -> list[Future[Answer]]:
    """Requests that wait."""
    before = held(live).waiting
    waiting = [clients.submit(live.ask, "/v1/completions", {"prompt": "x"}) for _ in range(count)]
    wait_for("waiting", lambda: held(live).waiting == before + count)
    return waiting


def held(live: Live) -> HoldFacts:
    hold = live.facts.services["chat"].hold
    assert hold
    return hold


def test_requests_wait_and_the_next_release_answers_them_all(live: Live, clients: ThreadPoolExecutor) -> None:
    live.run(commands.hold("chat", HOLD))
    waiting = wait_in(live, clients, 20)
    assert not any(answer.done() for answer in waiting)
    live.run(commands.hold("chat", RequestHold("1.2+", 30.0, 540.0, 500)))
    assert (held(live).mark, held(live).waiting, held(live).most) == ("1.2+", 20, 500)
    assert list(live.facts.drift) == []

    live.switch(GREEN)

    assert {answer.result().served_by for answer in waiting} == {SERVED_BY[GREEN]}
    assert live.facts.services["chat"].hold is None
    wait_for("no session is left", lambda: live.slot(GREEN).sessions == 0)


def test_a_reload_loses_no_request_that_waits_whatever_becomes_of_the_slots(
    live: Live, clients: ThreadPoolExecutor
) -> None:
    live.run(commands.hold("chat", HOLD))
    waiting = wait_in(live, clients, 15)
    live.configure(Service("chat", PORT), Service("embed", PORT + 3))
    try:
        waiting += wait_in(live, clients, 15)
        with live.engine("late", 9313):
            live.run(commands.point("chat", GREEN, "chat-late", [Endpoint("127.0.0.1", 9313, "chat-late")]))
            live.run(commands.switch("chat", GREEN, "chat-late"))
            answers = [answer.result() for answer in waiting]
        assert {answer.served_by for answer in answers} == {("late", "green", "chat-late")}
    finally:
        live.switch(BLUE)
        live.point(GREEN)
        live.run(commands.forget("embed"))


def test_a_client_that_leaves_waits_no_more(live: Live, clients: ThreadPoolExecutor) -> None:
    requests = int(live.ask("/v1/models/seen").json["requests"])
    live.run(commands.hold("chat", HOLD))
    with closing(live.connect()) as leaving:
        leaving.request("POST", "/v1/completions", json.dumps({"prompt": "x" * 300_000}))
        wait_for("the first waits", lambda: held(live).waiting == 1)
        waiting = wait_in(live, clients, 2)

    wait_for("its end", lambda: held(live).waiting == 2)
    live.switch(BLUE)
    assert {answer.result().served_by for answer in waiting} == {SERVED_BY[BLUE]}
    assert int(live.ask("/v1/models/seen").json["requests"]) == requests + 2


def test_a_stream_that_has_waited_comes_whole(live: Live, clients: ThreadPoolExecutor) -> None:
    live.run(commands.hold("chat", HOLD))
    waiting = [clients.submit(Stream, live) for _ in range(3)]
    wait_for("waiting", lambda: held(live).waiting == 3)
    live.switch(GREEN)

    with ExitStack() as left:
        streams = [left.enter_context(stream.result()) for stream in waiting]
        live.finish_streams(GREEN)
        assert all(stream.whole for stream in streams)


def test_beyond_the_bounds_a_request_gets_503_at_once_with_the_time_remaining(
    live: Live, clients: ThreadPoolExecutor
) -> None:
    live.run(commands.hold("chat", RequestHold("1.2", 7000.0, 540.0, 500)))
    answer = live.ask(body={"model": "chat"})
    assert is_documented_refusal(answer)
    assert 540 < int(answer.headers["retry-after"]) <= 7000

    live.run(commands.hold("chat", RequestHold("1.2+", 60.0, 540.0, 1)))
    waiting = wait_in(live, clients, 1)
    assert is_documented_refusal(live.ask(body={"model": "chat"}))
    live.run(commands.switch_down("chat"))
    assert is_documented_refusal(waiting[0].result())


def test_a_slot_that_holds_no_traffic_is_asked_while_requests_wait(live: Live, clients: ThreadPoolExecutor) -> None:
    live.run(commands.hold("chat", HOLD))
    waiting = wait_in(live, clients, 5)

    assert live.run(commands.preview("chat", GREEN)) == RELEASES[GREEN]
    assert "its requests wait" in refused(lambda: live.run(commands.forget("chat")))
    live.switch(GREEN)
    assert {answer.result().served_by for answer in waiting} == {SERVED_BY[GREEN]}


def test_prometheus_counts_what_waits(live: Live, clients: ThreadPoolExecutor) -> None:
    live.run(commands.hold("chat", HOLD))
    waiting = wait_in(live, clients, 4)
    fetch = (
        f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{METRICS}/metrics/waiting').read().decode())"
    )

    lines = live.inside("python3", "-c", fetch).splitlines()

    assert 'sparkops_gateway_waiting_requests{service="chat"} 4' in lines
    assert 'sparkops_gateway_waiting_limit_requests{service="chat"} 500' in lines
    live.switch(BLUE)
    assert all(answer.result().status == 200 for answer in waiting)


def test_the_sockets_of_the_room_are_no_way_in(live: Live) -> None:
    for name in ("in.chat", "wait.chat", "room.sock"):
        mode = live.inside("stat", "--format=%a", f"/run/gateway/{name}")
        assert int(mode, 8) & 0o077 == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((live.machine.address, METRICS), timeout=5)
