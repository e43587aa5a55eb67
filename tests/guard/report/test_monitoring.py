"""The guard's port for Prometheus: its key, its bounds, and the figures that it serves."""

from __future__ import annotations

import errno
import hashlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from sparkops.errors import PlanRefused
from sparkops.guard.disk.state import Monitored, State
from sparkops.guard.report import monitoring
from sparkops.guard.report.exposition import EngineFigures, GuardFigures, PeerFigures, ServiceFigures, text
from sparkops.guard.report.monitoring import FiguresServer, allowed
from sparkops.swap.model import Answer, Phase
from tests.examples import HOST, container, rank
from tests.operator.deploy.states import swapping
from tests.ports import free_port

KEY, OTHER = "k" * 32, "o" * 32
FIGURES = b"sparkops_guard_leads 1.0\n"


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FiguresServer]:
    served = FiguresServer(State(tmp_path), lambda: FIGURES, lambda _: None, "127.0.0.1")
    with closing(served):
        served.change(Monitored(free_port(), digest(KEY)))
        yield served


def get(server: FiguresServer, path: str = "/metrics", **headers: str) -> requests.Response:
    return requests.get(f"http://127.0.0.1:{server.port}{path}", headers=headers, timeout=30)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.unit
@pytest.mark.parametrize(
    ("header", "right"),
    [
        (f"Bearer {KEY}", True),
        (f"bearer {KEY}", True),
        (f"Bearer {OTHER}", False),
        (f"Bearer {KEY}x", False),
        (f"Basic {KEY}", False),
        (KEY, False),
        ("Bearer ", False),
        ("", False),
        ("Bearer \u20ac", False),
    ],
)
def test_only_the_key_as_a_bearer_token_is_allowed(header: str, right: bool) -> None:
    assert allowed(header, digest(KEY)) is right


@pytest.mark.local
@pytest.mark.parametrize("headers", [{}, bearer(OTHER), {"Authorization": KEY}, bearer("")])
def test_the_figures_need_the_key(server: FiguresServer, headers: dict[str, str]) -> None:
    refused, other_path = get(server, **headers), get(server, "/orders", **headers)

    assert (refused.status_code, refused.content) == (401, b"")
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert other_path.status_code == 401


@pytest.mark.local
def test_with_the_key_there_are_figures_and_nothing_else(server: FiguresServer) -> None:
    reply = get(server, **bearer(KEY))

    assert (reply.status_code, reply.content) == (200, FIGURES)
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert get(server, "/metrics?x=1", **bearer(KEY)).content == FIGURES
    assert [get(server, path, **bearer(KEY)).status_code for path in ("/", "/orders", "/metrics/x")] == [404] * 3
    assert requests.post(f"http://127.0.0.1:{server.port}/metrics", headers=bearer(KEY), timeout=30).status_code == 501


@pytest.mark.local
def test_connections_that_send_nothing_keep_no_scrape_out(server: FiguresServer) -> None:
    with ExitStack() as stack:
        for _ in range(3 * monitoring.THREADS):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))

        assert get(server, **bearer(KEY)).content == FIGURES


@pytest.mark.local
def test_headers_above_the_bound_get_no_figures(server: FiguresServer) -> None:
    sent = f"GET /metrics HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\nLong: {'x' * monitoring.HEAD_BYTES}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(sent[: monitoring.HEAD_BYTES].encode())

        assert connection.makefile("rb").read().startswith(b"HTTP/1.0 431 ")
    assert get(server, **bearer(KEY)).content == FIGURES


@pytest.mark.local
def test_another_key_another_port_and_the_end_take_effect_at_once(server: FiguresServer) -> None:
    port = server.port
    server.change(Monitored(port, digest(OTHER)))
    assert [get(server, **bearer(key)).status_code for key in (KEY, OTHER)] == [401, 200]

    server.change(Monitored(free_port(), digest(OTHER)))
    assert server.port != port
    assert get(server, **bearer(OTHER)).status_code == 200
    assert server.state.monitored() == Monitored(server.port, digest(OTHER))

    moved = server.port
    server.change(None)
    assert server.state.monitored() is None
    for closed in (port, moved):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", closed))


@pytest.mark.local
def test_a_port_that_is_taken_is_refused_and_changes_nothing(server: FiguresServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])

        with pytest.raises(PlanRefused, match=f"monitoring.port {port}: Address already in use"):
            server.change(Monitored(port, digest(OTHER)))

    assert get(server, **bearer(KEY)).status_code == 200
    assert server.state.monitored() == Monitored(server.port, digest(KEY))


@pytest.mark.local
def test_a_guard_that_starts_again_serves_where_it_did(tmp_path: Path) -> None:
    state, port, lines = State(tmp_path), free_port(), list[str]()
    state.write_monitored(Monitored(port, digest(KEY)))
    with closing(FiguresServer(state, lambda: FIGURES, lines.append, "127.0.0.1")) as again:
        with socket.create_server(("127.0.0.1", port)):
            for _ in range(3):
                again.look()  # the guard repeats it
        again.look()

        assert get(again, **bearer(KEY)).content == FIGURES
        assert lines == [
            f"no figures served: monitoring.port {port}: Address already in use",
            f"serving figures on port {port}",
        ]


@pytest.mark.local
def test_monitoring_removed_before_the_first_look_stays_removed(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.write_monitored(Monitored(free_port(), digest(KEY)))
    with closing(FiguresServer(state, lambda: FIGURES, lambda _: None, "127.0.0.1")) as again:
        again.change(None)
        again.look()

        assert (again.port, state.monitored()) == (0, None)


@pytest.mark.local
def test_a_repeated_change_is_written_after_a_write_that_failed(
    server: FiguresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    changed = Monitored(server.port, digest(OTHER))
    with monkeypatch.context() as patched:
        patched.setattr(State, "write_monitored", full)
        with pytest.raises(OSError, match="No space"):
            server.change(changed)
    server.change(changed)

    assert server.state.monitored() == changed


@pytest.mark.local
def test_requests_of_clients_carry_it_and_those_of_earlier_clients_change_nothing(tmp_path: Path) -> None:
    asked: list[Any] = []
    with closing(FiguresServer(State(tmp_path), lambda: FIGURES, lambda _: None, "127.0.0.1")) as served:
        verbs = served.carried(dict.fromkeys(("join", "peers", "lead"), asked.append))
        sent = {"port": free_port(), "digest": digest(KEY)}

        verbs["join"]({"op": "join", "monitoring": sent})
        assert get(served, **bearer(KEY)).content == FIGURES
        verbs["peers"]({"op": "peers"})
        verbs["lead"]({"op": "lead", "monitoring": None})
        assert served.port == sent["port"]
        verbs["peers"]({"op": "peers", "monitoring": None})

        assert served.port == 0
        assert len(asked) == 4


def samples(figures: GuardFigures) -> dict[tuple[str, ...], float]:
    """Each sample by its name and the values of its labels, in the order of their names."""
    families = text_string_to_metric_families(text(figures).decode())
    return {
        (item.name, *(value for _, value in sorted(item.labels.items()))): item.value
        for family in families
        for item in family.samples
    }


BARE = GuardFigures(version="1.2.3", started_at=1000.0, leads=True, docker=True)


@pytest.mark.unit
def test_a_guard_without_anything_serves_what_it_knows() -> None:
    assert samples(BARE) == {
        ("sparkops_guard_info", "1.2.3"): 1.0,
        ("sparkops_guard_start_time_seconds",): 1000.0,
        ("sparkops_guard_leads",): 1.0,
        ("sparkops_docker_up",): 1.0,
    }


@pytest.mark.unit
def test_engines_have_common_names_and_unknown_figures_none() -> None:
    serving = container(rank())
    sums = {
        "vllm:num_requests_running": 2.0,
        "vllm:generation_tokens_total": 500.0,
        "vllm:time_to_first_token_seconds_sum": 3.0,
        "vllm:time_to_first_token_seconds_count": 12.0,
    }
    stopped = replace(serving, slot="green", state="exited", started_at=0.0)
    labels = ("0", serving.release, "chat", "blue")
    found = samples(replace(BARE, engines=(EngineFigures(serving, True, sums), EngineFigures(stopped))))

    assert found[("sparkops_engine_healthy", *labels)] == 1.0
    assert found[("sparkops_engine_requests_running", *labels)] == 2.0
    assert found[("sparkops_engine_generated_tokens_total", *labels)] == 500.0
    assert found[("sparkops_engine_first_token_seconds_sum", *labels)] == 3.0
    assert found[("sparkops_engine_first_token_seconds_count", *labels)] == 12.0
    assert ("sparkops_engine_kv_cache_used_ratio", *labels) not in found
    assert {key: value for key, value in found.items() if "green" in key} == {
        ("sparkops_engine_running", "0", serving.release, "chat", "green"): 0.0
    }


@pytest.mark.unit
def test_the_leader_serves_the_state_of_services_and_guards() -> None:
    journal = replace(swapping(Phase.LOAD).journal, hold="fair")
    peers = (PeerFigures("n2", True, 900.0), PeerFigures("n3", False, None))
    found = samples(
        replace(BARE, host=HOST, peers=peers, services=(ServiceFigures(journal, Answer.NO, needs_operator=True),))
    )
    assert journal.active
    assert journal.swap

    assert found[("sparkops_service_active", journal.active.release, "chat", journal.active.slot)] == 1.0
    assert found[("sparkops_service_answers", "chat")] == 0.0
    assert found[("sparkops_service_on_hold", "chat")] == 1.0
    assert found[("sparkops_service_needs_operator", "chat")] == 1.0
    assert found[("sparkops_service_swap", journal.swap.mode.value, journal.swap.phase.value, "false", "chat")] == 1.0
    assert found[("sparkops_peer_reachable", "n2")] == 1.0
    assert found[("sparkops_peer_reachable", "n3")] == 0.0
    assert found[("sparkops_peer_reply_time_seconds", "n2")] == 900.0
    assert ("sparkops_peer_reply_time_seconds", "n3") not in found
    assert found[("sparkops_node_memory_available_bytes",)] == 100 * 2**30
    assert found[("sparkops_node_disk_free_bytes",)] == 500 * 2**30


@pytest.mark.unit
def test_an_answer_that_is_unknown_is_not_served() -> None:
    service = ServiceFigures(swapping(Phase.LOAD).journal, Answer.UNKNOWN, needs_operator=False)

    assert ("sparkops_service_answers", "chat") not in samples(replace(BARE, services=(service,)))
