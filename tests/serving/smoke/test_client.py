"""The client against real servers that misbehave."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from itertools import pairwise

import pytest

from sparkops.errors import Interrupted
from sparkops.exchange import Reply, Request
from sparkops.node.http import session
from sparkops.node.local import LocalNode
from sparkops.node.node import Stream
from sparkops.serving.smoke.client import Client
from tests.ports import free_port
from tests.serving.smoke.server import Play, Player, chunk, head, to, whole

HEALTH = Request("/health", timeout_s=5.0)


def send(play: Play, request: Request = HEALTH, **how: object) -> tuple[Reply, Player]:
    """Send one request to a server that plays."""
    with Player(play).up() as player:
        client = Client(to(player.port), pause_s=0.05, **how)  # type: ignore[arg-type]
        (reply,) = client.send([request])
        return reply, player


def plays(*parts: bytes, wait_s: float = 0.0) -> Play:
    """Play the parts one after the other, then close."""

    def play(connection: socket.socket, _: str) -> None:
        for part in parts:
            connection.sendall(part)
            time.sleep(wait_s)

    return play


def test_an_answer_comes_with_its_status_and_time() -> None:
    reply, player = send(plays(whole({"a": "é"}, 404)), Request("/v1/x", {"q": "ü"}))

    assert (reply.status, reply.problem, reply.tries) == (404, "", 1)
    assert reply.body == '{"a": "\\u00e9"}'
    assert 0 < reply.parts[-1][0] <= reply.took_s
    assert player.received[0].startswith("POST /v1/x HTTP/1.1\r\n")
    assert player.received[0].endswith('{"q": "\\u00fc"}')


def test_the_parts_of_a_stream_keep_their_times() -> None:
    chunked = head(200, "Transfer-Encoding: chunked")
    parts = [chunk(f"data: {number}\n\n") for number in range(3)]

    reply, _ = send(plays(chunked, *parts, b"0\r\n\r\n", wait_s=0.05))

    assert [text for _, text in reply.parts] == ["data: 0\n\n", "data: 1\n\n", "data: 2\n\n"]
    assert all(early[0] < late[0] for early, late in pairwise(reply.parts))


def test_a_letter_that_is_cut_between_two_parts_is_whole() -> None:
    cut = [b"1\r\n\xc3\r\n", b"1\r\n\xa9\r\n", b"0\r\n\r\n"]

    reply, _ = send(plays(head(200, "Transfer-Encoding: chunked"), *cut, wait_s=0.02))

    assert reply.body == "é"


def test_a_refused_connection_is_tried_twice() -> None:
    (reply,) = Client(to(free_port()), pause_s=0.01).send([HEALTH])

    assert reply == Reply(0, (), reply.took_s, "the connection broke: [Errno 111] Connection refused", 2)


def test_a_connection_that_ends_without_an_answer_is_tried_twice() -> None:
    answers = [b"", whole("fine")]

    reply, player = send(lambda connection, _: connection.sendall(answers.pop(0)))

    assert (reply.body, reply.problem, reply.tries, len(player.received)) == ("fine", "", 2, 2)


def test_an_answer_that_is_cut_is_not_asked_for_again() -> None:
    reply, player = send(plays(head(200, "Content-Length: 100") + b"the beginn"))

    assert (reply.status, len(player.received), reply.tries) == (200, 1, 1)
    assert reply.problem.startswith("the connection broke: ")


def test_a_wrong_answer_is_not_asked_for_again() -> None:
    reply, player = send(plays(whole("engine dead", 500)))

    assert (reply.status, len(player.received)) == (500, 1)


@pytest.mark.parametrize(
    ("play", "problem"),
    [
        (lambda *_: time.sleep(60), "no answer within 1 s"),
        (plays(*[head(200, "Content-Length: 1000"), *[b"x"] * 600], wait_s=0.1), "no whole answer within 1 s"),
        (plays(head(200, "Content-Length: 100") + b"x", b"x", wait_s=60), "no whole answer within 1 s"),
        (plays(b"HTTP/1.1 200 OK\r\n", *[b"x: y\r\n"] * 90, wait_s=0.1), "no answer within 1 s"),
    ],
    ids=["silence", "a body that drips", "a body that stops", "headers that drip"],
)
def test_the_deadline_holds_for_the_whole_answer(play: Play, problem: str) -> None:
    reply, player = send(play, Request("/health", timeout_s=1.0))

    assert (reply.problem, len(player.received)) == (problem, 1)


def test_what_the_connection_itself_said_is_told() -> None:
    class Tunnel(LocalNode):
        def dial(self, port: int | str) -> Stream:
            try:
                return super().dial(port)
            except OSError as error:
                raise ConnectionRefusedError(f"n1: port {port} is closed") from error

    port = free_port()
    (reply,) = Client(lambda: session(Tunnel("n1"), port), pause_s=0.01).send([HEALTH])

    assert reply.problem == f"the connection broke: n1: port {port} is closed"


def test_requests_that_belong_together_run_at_once() -> None:
    together = threading.Barrier(6, timeout=60)

    def play(connection: socket.socket, text: str) -> None:
        together.wait()
        connection.sendall(whole(text.split()[1]))

    with Player(play).up() as player:
        replies = Client(to(player.port)).send([Request(f"/{number}", timeout_s=5) for number in range(6)])

    assert [reply.body for reply in replies] == [f"/{number}" for number in range(6)]


def test_ctrl_c_does_not_wait_for_an_answer() -> None:
    cancel, over = threading.Event(), threading.Event()

    def play(*_: object) -> None:
        cancel.set()
        over.wait(60)

    with pytest.raises(Interrupted):
        send(play, Request("/health", timeout_s=60), cancel=cancel)
    over.set()


def test_a_request_may_wait_before_it_is_sent() -> None:
    class Pauses(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses_s.append(timeout)
            return super().wait(timeout)

    pauses_s: list[float | None] = []

    reply, _ = send(plays(whole("fine")), Request("/metrics", after_s=3.0, timeout_s=2.5), cancel=Pauses())

    assert (reply.body, pauses_s) == ("fine", [3.0])


def test_a_stream_without_end_is_given_up() -> None:
    def pour(connection: socket.socket, _: str) -> None:
        connection.sendall(head(200, "Transfer-Encoding: chunked"))
        with suppress(OSError):  # it has hung up, as it should
            while True:
                connection.sendall(chunk("x" * 2**20))

    reply, _ = send(pour)

    assert (reply.status, reply.tries) == (200, 1)
    assert reply.problem == "the connection broke: the answer has more than 16777216 bytes; stopped"
    assert len(reply.body) <= 16777216
