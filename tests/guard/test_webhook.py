"""The sender of notices, against real receivers: right, slow, refusing and lying ones."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.guard import webhook
from sparkops.guard.state import State, WebhookTarget
from sparkops.guard.webhook import Attempt, Receiver, Webhooks, post, shown
from sparkops.nodes.waiting import Waiting
from sparkops.notices.catalogue import Code, Notice
from sparkops.notices.delivery import LONGEST_PAUSE_S, REFUSED_S, Outcome, outcome
from tests.http_server import Answer, Asked, HttpServer, answering

KEY = "k" * 32
PROMOTED = Notice(Code.PROMOTED, "q-1 serves", service="chat", subject="q-1")


def until(check: Callable[[], bool]) -> None:
    assert Waiting(0.02, 60.0).poll(check, bool)


def numbered(number: int) -> Notice:
    return replace(PROMOTED, text=f"q-{number} serves")


@contextmanager
def sending(directory: Path, *urls: str, lines: list[str] | None = None) -> Iterator[Webhooks]:
    """A guard that sends to these URLs."""
    webhooks = Webhooks(State(directory), "n1", (lines if lines is not None else []).append)
    webhooks.change(WebhookTarget(urls, KEY))
    try:
        yield webhooks
    finally:
        webhooks.close()


def url(server: HttpServer) -> str:
    return f"http://127.0.0.1:{server.port}/hook?channel=secret"


def texts(server: HttpServer) -> list[str]:
    return [asked.json["text"] for asked in server.requests]


def verified(asked: Asked, key: str = KEY) -> bool:
    """Verify a request as docs/monitoring.md says."""
    parts = dict(part.split("=", 1) for part in asked.headers["sparkops-signature"].split(","))
    expected = hmac.new(key.encode(), f"{parts['t']}.".encode() + asked.body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(parts["v1"], expected)


@pytest.mark.local
def test_notices_arrive_signed_with_their_id_and_in_order(tmp_path: Path) -> None:
    with answering(lambda _: Answer()) as server, sending(tmp_path, url(server)) as webhooks:
        for number in range(5):
            webhooks.state.outbox.add(numbered(number))
        until(lambda: len(server.requests) == 5)

    first = server.requests[0]
    assert (first.method, first.path, first.headers["content-type"]) == (
        "POST",
        "/hook?channel=secret",
        "application/json",
    )
    assert texts(server) == [f"q-{number} serves" for number in range(5)]
    assert [asked.json["n"] for asked in server.requests] == [1, 2, 3, 4, 5]
    assert (first.json["node"], first.json["code"], first.json["service"]) == ("n1", "PROMOTED", "chat")
    assert first.headers["sparkops-event-id"] == first.json["id"]
    assert all(map(verified, server.requests))
    assert not verified(first, "o" * 32)
    assert not verified(replace(first, body=first.body.replace(b"q-0", b"q-9")))


@pytest.mark.local
def test_a_receiver_that_fails_gets_each_notice_again_with_the_same_id_and_none_twice_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkops.notices.delivery.FIRST_PAUSE_S", 0.01)
    failing, lines = iter([Answer(503), None, Answer(429)]), list[str]()

    def respond(_: Asked) -> Answer | None:
        return next(failing, Answer())

    with answering(respond) as server, sending(tmp_path, url(server), lines=lines) as webhooks:
        webhooks.state.outbox.add(numbered(0))
        webhooks.state.outbox.add(numbered(1))
        until(lambda: len(server.requests) == 5)

    assert texts(server) == ["q-0 serves"] * 4 + ["q-1 serves"]
    assert len({asked.json["id"] for asked in server.requests}) == 2
    assert lines[-1] == f"webhook http://127.0.0.1:{server.port}: delivers again"
    assert not [line for line in lines if "secret" in line or KEY in line]


@pytest.mark.local
def test_what_waits_survives_a_restart_of_the_guard_and_arrives_in_order_once_the_receiver_is_back(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    target = f"http://127.0.0.1:{port}/"
    with sending(tmp_path, target) as webhooks:
        webhooks.state.outbox.add(numbered(0))
        until(lambda: bool(webhooks._receivers[0].failing))

    with answering(lambda _: Answer()) as server:
        again = Webhooks(State(tmp_path), "n1", lambda _: None, to(server))
        again.start()
        again.state.outbox.add(numbered(1))
        until(lambda: len(server.requests) == 2)
        again.close()

    assert texts(server) == ["q-0 serves", "q-1 serves"]


def to(server: HttpServer) -> webhook.Post:
    """A post that reaches the server of the test, whatever the URL is."""
    return lambda _, key, body, notice_id, now: post(url(server), key, body, notice_id, now)


def receive(connection: socket.socket) -> None:
    """Read a request with its body, which comes after the head: an answer is lost if a body is left unread."""
    received = b""
    while not received.endswith(b"{}") and (piece := connection.recv(65536)):
        received += piece


@contextmanager
def talking(reply: Callable[[socket.socket], None], *, reads: bool = True) -> Iterator[str]:
    """A receiver that `reads` a request and then does as it likes; yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):
                        if reads:
                            receive(connection)
                        reply(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def endless(head: bytes) -> Callable[[socket.socket], None]:
    def reply(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(b"x" * 65536)

    return reply


def silent(connection: socket.socket) -> None:
    connection.settimeout(60.0)
    connection.recv(1)


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.local
@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (lambda connection: connection.sendall(HEAD + b"\r\n"), Outcome.DELIVERED),
        (lambda connection: connection.sendall(HEAD + b"Content-Length: 9\r\n\r\n"), Outcome.DELIVERED),
        (lambda connection: connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz"), Outcome.DELIVERED),
        (endless(HEAD + b"\r\n"), Outcome.DELIVERED),
        (endless(HEAD + b"Long: "), Outcome.DELIVERED),
        (endless(b""), Outcome.UNANSWERED),
        (lambda connection: connection.sendall(b"\x00\xff garbage\r\n\r\n"), Outcome.UNANSWERED),
        (lambda _: None, Outcome.UNANSWERED),
        (silent, Outcome.UNANSWERED),
        (lambda connection: connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n"), Outcome.REFUSED),
    ],
    ids=[
        *("200 then closes", "a body that is cut", "broken chunks", "endless body", "endless head", "endless line"),
        *("garbage", "closes", "silent", "redirect"),
    ],
)
def test_a_receiver_that_lies_or_is_silent_takes_bounded_time_and_memory(
    reply: Callable[[socket.socket], None], expected: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "TOTAL_S", 1.0)
    with talking(reply) as receiver:
        attempt = post(receiver, KEY, b"{}", "id", 1.0)

    assert attempt.outcome is expected
    assert bool(attempt.why) is (expected is not Outcome.DELIVERED)


@pytest.mark.local
def test_a_redirect_is_not_followed() -> None:
    with answering(lambda _: Answer()) as elsewhere:
        moved = Answer(307, headers={"Location": f"http://127.0.0.1:{elsewhere.port}/"})
        with answering(lambda _: moved) as server:
            attempt = post(url(server), KEY, b"{}", "id", 1.0)

    assert attempt == Attempt(Outcome.REFUSED, "HTTP 307")
    assert elsewhere.requests == []


@contextmanager
def encrypted(directory: Path) -> Iterator[tuple[str, Path]]:
    """A receiver with TLS whose certificate nobody has signed; yields its URL and the certificate."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    names = ("-subj", "/CN=receiver", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(key), "-out", str(certificate))
    request = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files)
    subprocess.run(request, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def reply(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            receive(secured)
            secured.sendall(HEAD + b"Content-Length: 0\r\n\r\n")

    with talking(reply, reads=False) as receiver:
        yield receiver.replace("http:", "https:"), certificate


@pytest.mark.local
def test_https_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with encrypted(tmp_path) as (receiver, certificate):
        refused = post(receiver, KEY, b"{}", "id", 1.0)
        elsewhere = post(receiver.replace("127.0.0.1", "localhost"), KEY, b"{}", "id", 1.0)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        trusted = post(receiver, KEY, b"{}", "id", 1.0)
        another = post(receiver.replace("127.0.0.1", "localhost"), KEY, b"{}", "id", 1.0)

    assert "certificate verify failed: self-signed certificate" in refused.why
    assert "certificate verify failed" in elsewhere.why
    assert trusted == Attempt(Outcome.DELIVERED)
    assert "Hostname mismatch" in another.why
    assert {refused.outcome, elsewhere.outcome, another.outcome} == {Outcome.UNANSWERED}


@pytest.mark.local
def test_a_receiver_without_tls_gets_nothing_by_https() -> None:
    def reply(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"no TLS")

    with talking(reply, reads=False) as receiver:
        attempt = post(receiver.replace("http:", "https:"), KEY, b"{}", "id", 1.0)

    assert attempt.outcome is Outcome.UNANSWERED


@pytest.mark.local
def test_a_silent_receiver_blocks_neither_the_guard_nor_another_receiver(tmp_path: Path) -> None:
    with (
        talking(silent) as deaf,
        answering(lambda _: Answer()) as server,
        sending(tmp_path, deaf, url(server)) as webhooks,
    ):
        for number in range(3):
            webhooks.state.outbox.add(numbered(number))  # would wait for the silent one
        until(lambda: len(server.requests) == 3)
        reply: Any = webhooks.verbs()["notices"]({"op": "notices"})

    assert texts(server) == ["q-0 serves", "q-1 serves", "q-2 serves"]
    assert [item["receiver"] for item in reply["receivers"]] == [deaf.rstrip("/"), shown(url(server))]


def receiver(directory: Path, *attempts: Attempt) -> tuple[Receiver, list[bytes], list[float]]:
    """A receiver whose attempts have these results, what was sent, and the time that passes."""
    sent, now_s, results = list[bytes](), [0.0], iter(attempts)
    state = State(directory)
    state.outbox.receivers(["a"])

    def scripted(_: str, __: str, body: bytes, ___: str, ____: float) -> Attempt:
        sent.append(body)
        return next(results)

    made = Receiver("a", "http://10.0.0.1/", KEY, "n1", state.outbox, lambda _: None, scripted, lambda: now_s[0])
    return made, sent, now_s


REFUSED, DELIVERED = Attempt(Outcome.REFUSED, "HTTP 400"), Attempt(Outcome.DELIVERED)


@pytest.mark.unit
def test_a_notice_that_is_refused_for_hours_is_given_up_and_told_as_lost(tmp_path: Path) -> None:
    made, sent, now_s = receiver(tmp_path, REFUSED, REFUSED, DELIVERED)
    made.outbox.add(numbered(0))
    made.outbox.add(numbered(1))

    made.step()
    assert made.left_s() > 0
    now_s[0] += REFUSED_S
    made.step()
    assert made.left_s() == 0.0
    made.step()
    assert [(json.loads(body)["n"], json.loads(body)["lost"]) for body in sent] == [(1, 0), (1, 0), (2, 1)]


@pytest.mark.unit
def test_a_receiver_that_does_not_answer_gets_the_notice_however_long_that_lasts(tmp_path: Path) -> None:
    failed = Attempt(Outcome.UNANSWERED, "timed out")
    made, sent, now_s = receiver(tmp_path, *[failed] * 50, DELIVERED)
    made.outbox.add(numbered(0))
    for _ in range(50):
        made.step()
        pause_s = made.left_s()
        assert 0 < pause_s <= LONGEST_PAUSE_S
        now_s[0] += 10 * pause_s
    made.step()

    assert made.outbox.due("a") is None
    assert len({json.loads(body)["id"] for body in sent}) == 1


def delivering(made: Receiver, now_s: list[float], until_s: float) -> None:
    """Make all attempts that are due until then."""
    while now_s[0] + made.left_s() < until_s:
        now_s[0] += made.left_s()
        made.step()


@pytest.mark.unit
@pytest.mark.parametrize("status", [500, 429, 400])
def test_a_notice_that_a_receiver_answers_but_does_not_take_is_overtaken(tmp_path: Path, status: int) -> None:
    made, _, now_s = receiver(tmp_path)
    taken: list[tuple[int, int]] = []

    def picky(_: str, __: str, body: bytes, ___: str, ____: float) -> Attempt:
        message = json.loads(body)
        if message["n"] == 1:
            return Attempt(outcome(status), f"HTTP {status}")
        taken.append((message["n"], message["lost"]))
        return DELIVERED

    made.post = picky
    for number in range(3):
        made.outbox.add(numbered(number))
    delivering(made, now_s, 60.0)
    assert taken == [(2, 0), (3, 0)]
    assert [*State(tmp_path).outbox.aside("a")] == [1], "a restarted guard sends it again"

    delivering(made, now_s, REFUSED_S + 2 * LONGEST_PAUSE_S)
    made.outbox.add(numbered(3))
    made.step()
    refused = outcome(status) is Outcome.REFUSED
    assert taken[2:] == [(4, 1 if refused else 0)]
    assert [*made.outbox.aside("a")] == ([] if refused else [1])


@pytest.mark.unit
def test_once_a_receiver_takes_notices_again_it_gets_all_that_were_set_aside(tmp_path: Path) -> None:
    made, sent, now_s = receiver(tmp_path, *[Attempt(Outcome.FAILED, "HTTP 503")] * 12, *[DELIVERED] * 4)
    for number in range(4):
        made.outbox.add(numbered(number))
    delivering(made, now_s, 10 * LONGEST_PAUSE_S)

    assert sorted(json.loads(body)["n"] for body in sent[-4:]) == [1, 2, 3, 4]
    assert (made.outbox.due("a"), made.outbox.aside("a")) == (None, {})


@pytest.mark.unit
def test_nothing_overtakes_a_notice_while_the_receiver_does_not_answer(tmp_path: Path) -> None:
    unanswered = Attempt(Outcome.UNANSWERED, "timed out")
    made, sent, now_s = receiver(tmp_path, *[unanswered] * 8, DELIVERED, DELIVERED)
    made.outbox.add(numbered(0))
    made.outbox.add(numbered(1))
    delivering(made, now_s, 10 * LONGEST_PAUSE_S)

    assert [json.loads(body)["n"] for body in sent] == [1] * 9 + [2]


@pytest.mark.unit
def test_the_receivers_and_their_key_are_kept_for_the_owner_only_and_shown_nowhere(tmp_path: Path) -> None:
    state, target = State(tmp_path), WebhookTarget(("https://hooks.example.org/services/T0K3N",), KEY)
    state.write_webhook(target)
    file = tmp_path / "webhook.json"

    assert state.webhook() == target
    assert file.stat().st_mode & 0o777 == 0o600
    assert KEY not in repr(target)
    assert "T0K3N" not in repr(target)
    assert shown(target.urls[0]) == "https://hooks.example.org"
    state.write_webhook(None)
    assert (state.webhook(), file.exists()) == (None, False)


@pytest.mark.local
def test_requests_of_clients_carry_it_and_those_of_earlier_clients_change_nothing(tmp_path: Path) -> None:
    asked: list[object] = []
    with answering(lambda _: Answer()) as server, sending(tmp_path) as webhooks:
        verbs = webhooks.carried(dict.fromkeys(("join", "peers", "lead"), asked.append))
        verbs["join"]({"op": "join", "webhook": {"urls": [url(server)], "key": KEY}})
        verbs["peers"]({"op": "peers"})
        verbs["lead"]({"op": "lead", "webhook": None})
        webhooks.state.outbox.add(numbered(0))
        until(lambda: len(server.requests) == 1)
        verbs["peers"]({"op": "peers", "webhook": None})
        webhooks.state.outbox.add(numbered(1))

        assert (webhooks.state.webhook(), webhooks._receivers) == (None, ())
    assert (len(asked), texts(server)) == (4, ["q-0 serves"])


@pytest.mark.local
def test_a_test_is_sent_at_once_past_a_queue_that_waits(tmp_path: Path) -> None:
    with (
        answering(lambda asked: Answer(200 if asked.json["code"] == "TEST" else 500)) as server,
        sending(tmp_path, url(server), "http://127.0.0.1:1/") as webhooks,
    ):
        webhooks.state.outbox.add(numbered(0))
        until(lambda: bool(server.requests))
        right, refused = webhooks.test()

    assert right == {"receiver": f"http://127.0.0.1:{server.port}", "problem": ""}
    assert refused == {"receiver": "http://127.0.0.1:1", "problem": "[Errno 111] Connection refused"}
    assert [asked.json["code"] for asked in server.requests].count("TEST") == 1
    assert all(map(verified, server.requests))
