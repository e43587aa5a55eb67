"""The guard's requests through a real HAProxy: clients at their limits say nothing about a release."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from sparkops.config.inventory import Gateway
from sparkops.errors import PlanRefused
from sparkops.gateway import commands
from sparkops.gateway.commands import Endpoint
from sparkops.gateway.facts import GatewayFacts, parse_gateway
from sparkops.gateway.front import endpoints
from sparkops.guard.lead.completion import COMPLETIONS, FAILURES, Completion, CompletionEnd
from sparkops.guard.lead.gateway_front import GatewayContainer, GatewayFront
from sparkops.names import Slot
from sparkops.operator.build.gateway.files import Secrets, load_templates
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.deploy.agents.gateway_agent import GatewaySpec
from sparkops.serving.engine_spec import EngineSpec, rank_spec
from sparkops.swap.effects import CutRequests
from sparkops.swap.fleet_state import GatewayView
from sparkops.swap.model import Answer, Deployment, Replica
from tests.examples import IMAGE_ID, INPUTS, recipe
from tests.executors import AtOnce
from tests.gateway.here import WITHIN_S, HereNode, Program, configured, moved
from tests.http_server import Answer as HttpAnswer
from tests.http_server import Asked, answering
from tests.ports import free_port

pytestmark = pytest.mark.local
BLUE, GREEN = Slot
OLD, NEW = "q-1", "q-2"
LIMIT = 256  # connections of one address to one port: the default of `gateway.client_connections`


@dataclass
class Here:
    """A gateway whose slot blue has an engine of this test, and the traffic."""

    program: Program
    node: HereNode
    port: int
    """The service's."""
    blue: Deployment

    @property
    def facts(self) -> GatewayFacts:
        return parse_gateway(self.node.run(commands.SHOW).stdout)

    def view(self, looks: int = FAILURES + 2) -> GatewayView:
        """What the leader sees after some looks, each with the result of the completion before."""
        with self.container() as container:
            clock = iter(range(0, 10_000_000, 60))
            front = GatewayFront("chat", container, clock=lambda: float(next(clock)), executor=AtOnce())
            for _ in range(looks):
                view = front.look((self.blue,), swapping=True, fresh=True)
        assert view
        return view

    def tell(self, command: str) -> None:
        """Give HAProxy a command of its own."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self.program.run / "admin.sock"))
            admin.sendall(f"{command}\n".encode())
            admin.shutdown(socket.SHUT_WR)
            assert admin.recv(1000).strip() == b"", command

    @contextmanager
    def container(self) -> Iterator[GatewayContainer]:
        container = GatewayContainer(self.node)
        try:
            yield container
        finally:
            container.stream.close()
            container.probes.close()

    def open(self) -> int | None:
        return self.facts.services["chat"].slots[BLUE].sessions


def released(port: int, release: str = OLD, slot: Slot = BLUE) -> Deployment:
    """A release with an engine on this machine behind the gateway; `port` is the engine's."""
    service = {"service": "chat", "serve": {"port": port - 1 - (slot is GREEN)}}
    data = recipe(**service).model_dump(mode="json", exclude_defaults=True)
    given = {"recipe": data, "inputs": INPUTS, "image": IMAGE_ID, "slot": slot, "index": 0, "jobs": 1}
    spec = EngineSpec.model_validate({**given, "address": "127.0.0.1", "node": {"transport": "local"}})
    rank = replace(rank_spec(spec, "n1"), container=f"{release}-{slot}-r0")
    deployment = Deployment(release, slot, (Replica((rank,)),))
    assert endpoints(deployment) == (Endpoint("127.0.0.1", port, release),)
    return deployment


@contextmanager
def gateway(tmp_path: Path, engine: int, change: Callable[[str], str] = str, **settings: Any) -> Iterator[Here]:
    """A gateway with the settings of its inventory. `change` edits the shared file of its configuration."""
    (tmp_path / "state").mkdir()
    program = Program(tmp_path / "state", tmp_path / "run")
    given = configured(program.state, program.run, **settings)
    program.give({**given, "gateway.cfg": change(given["gateway.cfg"])})
    blue = released(engine)
    with program.started():
        here = Here(program, HereNode("n1", program=program), program.shown()["ports"]["chat"], blue)
        here.node.run(commands.point("chat", BLUE, OLD, endpoints(blue)))
        here.node.run(commands.switch("chat", BLUE, OLD))
        yield here


def right(_: Asked) -> HttpAnswer:
    return HttpAnswer(200, b"{}")


def asking(port: int) -> socket.socket:
    """A client that has sent a request."""
    client = socket.create_connection(("127.0.0.1", port), WITHIN_S)
    client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
    return client


@contextmanager
def connections(port: int, number: int) -> Iterator[Callable[[], None]]:
    """Hold half a request on each of so many connections of this machine. Yields what adds another one."""
    with ExitStack() as held:

        def add() -> None:
            with suppress(ConnectionError):  # closed above the limit
                client = held.enter_context(socket.create_connection(("127.0.0.1", port)))
                client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n")

        for _ in range(number):
            add()
        yield add


def is_closed_at_once(port: int) -> bool:
    """Whether a client's connection is closed without a byte."""
    try:
        with socket.create_connection(("127.0.0.1", port), WITHIN_S) as client:
            client.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n")
            return client.recv(1) == b""
    except ConnectionError:
        return True


def wait_for(holds: Callable[[], object]) -> None:
    end = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def slow_headers(text: str) -> str:
    """Half requests stay open for longer than any machine needs here."""
    for setting in ("http-request 5s", "client 60s"):  # the shorter one closes a half request
        assert f"  timeout {setting}\n" in text
        text = text.replace(f"  timeout {setting}\n", f"  timeout {setting.split()[0]} 300s\n")
    return text


def test_local_clients_at_their_limit_do_not_make_a_serving_release_fail(tmp_path: Path) -> None:
    with (
        answering(right) as engine,
        gateway(tmp_path, engine.port, slow_headers) as here,
        connections(here.port, LIMIT) as add,
    ):
        wait_for(lambda: add() or is_closed_at_once(here.port))
        view = here.view()
        assert is_closed_at_once(here.port)
        preview = here.node.run(commands.preview("chat", BLUE)).stdout.strip()

    assert (view.active, view.answers, view.failures) == (BLUE, {BLUE: Answer.YES}, {})
    assert preview == OLD
    completion = next(request for request in engine.requests if request.method == "POST")
    assert (completion.path, completion.json["max_tokens"]) == (COMPLETIONS, 1)
    assert not [name for name in completion.headers if name.startswith("x-sparkops")]


def test_a_rate_limit_of_local_clients_does_not_make_a_serving_release_fail(tmp_path: Path) -> None:
    def status() -> int:
        with closing(HTTPConnection("127.0.0.1", here.port, timeout=WITHIN_S)) as client:
            client.request("GET", "/v1/models")
            return client.getresponse().status

    with answering(right) as engine, gateway(tmp_path, engine.port, client_requests=10) as here:
        wait_for(lambda: status() == 429)
        view = here.view(2 * FAILURES)
        assert status() == 429

    assert view.answers == {BLUE: Answer.YES}


def test_clients_that_fill_all_of_haproxy_show_nothing_about_a_release(tmp_path: Path) -> None:
    def small(text: str) -> str:
        assert "  maxconn 5500\n" in text
        return slow_headers(text.replace("  maxconn 5500\n", "  maxconn 20\n"))

    with answering(right) as engine, gateway(tmp_path, engine.port, small) as here, connections(here.port, 30):
        probe = {"service": "chat", "slot": "blue", "path": COMPLETIONS, "body": "{}", "answer_s": 0.5, "most": 100}
        with_id = json.dumps({**probe, "id": 1}) + "\n"
        reply = json.loads(here.program.call("probe-each", stdin=with_id).stdout)

    assert (reply["failed"], reply["id"]) == ("unreached", 1)


def test_an_engine_that_is_gone_or_another_release_is_a_failure(tmp_path: Path) -> None:
    with answering(right) as engine, gateway(tmp_path, engine.port) as here, here.container() as container:
        assert container.probe("chat", here.blue) == CompletionEnd(Completion.RIGHT)
        other = container.probe("chat", released(engine.port, NEW))
        unknown = container.probe("other", here.blue)
        here.node.run(commands.switch_down("chat"))
        here.node.run(commands.point("chat", BLUE, OLD, [Endpoint("127.0.0.1", 1, OLD)]))
        gone = container.probe("chat", here.blue)

    assert other == CompletionEnd(Completion.WRONG, f"{COMPLETIONS}: HTTP 200, of release {OLD}: '{{}}'")
    assert (unknown.result, gone.result) == (Completion.WRONG, Completion.WRONG)
    assert "HTTP 503, of no release" in gone.got


def test_a_refusal_before_the_body_is_read_is_a_reply(tmp_path: Path) -> None:
    """HAProxy closes after its own 503: the rest of the body finds a broken pipe."""
    large = {"service": "other", "slot": "blue", "path": COMPLETIONS, "body": "x" * 2**22, "answer_s": WITHIN_S}
    with answering(right) as engine, gateway(tmp_path, engine.port) as here:
        reply = json.loads(here.program.call("probe-each", stdin=json.dumps({**large, "most": 100, "id": 1})).stdout)

    assert (reply["failed"], reply["status"]) == ("", 503)


def scripted(run: Path, send: Callable[[socket.socket], None], answer_s: float) -> Any:
    """What a probe prints of a response that `send` sends."""
    program = Program(run.parent / "state", run)
    with socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor(1) as pool:
        listening.bind(str(run / "probe.sock"))
        listening.listen()

        def serve() -> None:
            client, _ = listening.accept()
            with client, suppress(ConnectionError):
                while not client.recv(2**16).endswith(b"{}"):
                    pass
                send(client)

        served = pool.submit(serve)
        probe = {"service": "chat", "slot": "blue", "path": COMPLETIONS, "body": "{}", "answer_s": answer_s}
        printed = program.call("probe-each", stdin=json.dumps({**probe, "most": 100, "id": 1})).stdout
        served.result()
    return json.loads(printed)


def test_a_whole_response_after_which_haproxy_closes_is_one(tmp_path: Path) -> None:
    """Python 3.13, newer than the image's 3.11, closes the socket with the last byte. HAProxy's own 503 ends so."""
    head = b"HTTP/1.1 200 OK\r\nx-sparkops-release: q-1\r\nConnection: close\r\nContent-Length: 2\r\n\r\n"

    reply = scripted(tmp_path, lambda client: client.sendall(head + b"{}"), WITHIN_S)

    assert (reply["failed"], reply["status"], reply["release"], reply["text"]) == ("", 200, OLD, "{}")


def test_late_headers_leave_the_body_the_rest_of_the_time(tmp_path: Path) -> None:
    """Otherwise the guard gives the gateway up before this reply, and a hung release shows nothing."""

    def slow(client: socket.socket) -> None:
        time.sleep(1.5)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        time.sleep(1.5)
        client.sendall(b"{}")

    assert scripted(tmp_path, slow, 2.5)["failed"] == "late"


def test_a_slow_release_keeps_no_other_one_waiting(tmp_path: Path) -> None:
    arrived, end = threading.Event(), threading.Event()

    def slow_first(request: Asked) -> HttpAnswer:
        if not arrived.is_set():
            arrived.set()
            end.wait(WITHIN_S)
        return right(request)

    with (
        answering(slow_first) as engine,
        gateway(tmp_path, engine.port) as here,
        here.container() as container,
        ThreadPoolExecutor(1) as pool,
    ):
        slow = pool.submit(container.probe, "chat", here.blue)
        assert arrived.wait(WITHIN_S)
        assert container.probe("chat", here.blue).result is Completion.RIGHT
        assert not slow.done()
        end.set()
        assert slow.result().result is Completion.RIGHT


def test_a_cut_ends_requests_that_no_server_has_and_counts_what_has_ended(tmp_path: Path) -> None:
    """A request in the queue of a backend is in the backend, and at no server."""
    end = threading.Event()

    def never(_: Asked) -> None:
        end.wait(10 * WITHIN_S)

    def patient(text: str) -> str:
        return text.replace("  timeout connect 3s\n", "  timeout connect 3s\n  timeout queue 300s\n")

    with (
        answering(never) as engine,
        gateway(tmp_path, engine.port, patient) as here,
        ExitStack() as clients,
    ):
        here.tell("set maxconn server be_chat_blue/s1 1")
        for _ in range(3):
            clients.enter_context(asking(here.port))
        wait_for(lambda: here.open() == 3)
        assert len(engine.requests) <= 1, "the others wait for a server"
        lines: list[str] = []
        front = GatewayFront("chat", GatewayContainer(here.node), log=lines.append, executor=AtOnce())
        printed = front.execute(CutRequests(here.blue))
        left = here.open()
        end.set()

    assert (printed, left, lines) == ("3", 0, [])


def test_a_cut_lets_requests_that_no_engine_has_get_their_reply(tmp_path: Path) -> None:
    """An engine that has ended refuses connections."""
    end = threading.Event()

    def never(_: Asked) -> None:
        end.wait(10 * WITHIN_S)

    with ExitStack() as listens, ExitStack() as clients:
        engine = listens.enter_context(answering(never))
        here = clients.enter_context(gateway(tmp_path, engine.port))
        sent = [clients.enter_context(asking(here.port))]
        wait_for(lambda: engine.requests)
        listens.close()
        sent += [clients.enter_context(asking(here.port)) for _ in range(3)]
        wait_for(lambda: here.open() == 4)
        here.node.run(commands.cut("chat", BLUE))
        replies, left = [client.recv(4096) for client in sent], here.open()
        end.set()

    assert [reply[9:12] for reply in replies] == [b"502", b"503", b"503", b"503"]
    assert left == 0
    assert all(b"\r\nretry-after: 30\r\n" in reply for reply in replies)


def test_a_cut_lets_requests_to_a_lost_node_get_their_reply(tmp_path: Path) -> None:
    """A node that is off answers no packet, nor does this machine for a socket whose queue is full."""
    with socket.socket() as lost, ExitStack() as clients:
        lost.bind(("127.0.0.1", 0))
        lost.listen(0)
        clients.enter_context(socket.create_connection(lost.getsockname()))
        here = clients.enter_context(gateway(tmp_path, lost.getsockname()[1]))
        client = clients.enter_context(asking(here.port))
        wait_for(lambda: here.open() == 1)
        here.node.run(commands.cut("chat", BLUE))
        reply, left = client.recv(4096), here.open()

    assert (reply[9:12], left) == (b"503", 0)


def test_a_forgotten_service_leaves_its_names_and_its_port_to_another_one(tmp_path: Path) -> None:
    with gateway(tmp_path, free_port()) as here:
        embed = Service("embed", here.port, ("chat",))
        order: Any = None
        spec = GatewaySpec(order, (embed,), Gateway(node="n"), Secrets(), load_templates())
        here.node.run(commands.switch_down("chat"))
        with pytest.raises(PlanRefused, match="belongs to chat already"):
            spec.contents(here.facts)

        with here.container() as container:
            GatewayFront("chat", container).forget()
        wanted = spec.contents(here.facts)
        text = moved(wanted.files["services/embed.cfg"] or "", here.program.state, here.program.run)
        here.node.run(commands.configure({"services/embed.cfg": text}))

        services = here.facts.services
    assert wanted.services == {"embed": embed}
    assert {name: (known.port, known.aliases) for name, known in services.items()} == {"embed": (embed.port, ("chat",))}
