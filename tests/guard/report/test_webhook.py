"""The sender of notices, against real receivers: right, slow, refusing and lying ones."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.guard.disk.state import State, WebhookTarget
from sparkops.guard.report import webhook
from sparkops.guard.report.webhook import MOST, PAUSES_S, Receiver, Webhooks, post, shown
from sparkops.node.waiting import Waiting
from sparkops.swap.catalogue import Code, Notice, noted
from tests.http_server import Answer, Asked, HttpServer, answering

PROMOTED = Notice(Code.PROMOTED, "q-1 serves", service="chat", subject="q-1")


def until(check: Callable[[], bool]) -> None:
    assert Waiting(0.02, 60.0).poll(check, bool)


def numbered(number: int) -> Notice:
    return replace(PROMOTED, text=f"q-{number} serves")


@contextmanager
def sending(directory: Path, *urls: str, lines: list[str] | None = None) -> Iterator[Webhooks]:
    """A guard that sends to these URLs."""
    state = State(directory)
    state.write_webhook(WebhookTarget(urls))
    webhooks = Webhooks(state, "n1", (lines if lines is not None else []).append)
    webhooks.start()
    try:
        yield webhooks
    finally:
        webhooks.close()


def url(server: HttpServer) -> str:
    return f"http://127.0.0.1:{server.port}/hook?channel=secret"


def texts(server: HttpServer) -> list[str]:
    return [asked.json["text"] for asked in server.requests]


@pytest.mark.local
def test_each_notice_of_the_guard_is_one_post_in_order(tmp_path: Path) -> None:
    with answering(lambda _: Answer()) as server, sending(tmp_path, url(server)) as webhooks:
        for number in range(4):
            webhooks.state.tell(numbered(number))
        event = {"kind": "end", "text": "q-4 serves", **noted(Code.PROMOTED, "q-4")}
        webhooks.state.add_event("chat", event)
        webhooks.state.add_event("chat", {"kind": "phase", "text": "q-5: load"})
        until(lambda: len(server.requests) == 5)

    first = server.requests[0]
    assert (first.method, first.path, first.headers["content-type"]) == (
        "POST",
        "/hook?channel=secret",
        "application/json",
    )
    assert texts(server) == [f"q-{number} serves" for number in range(5)]
    assert len({asked.json["id"] for asked in server.requests}) == 5
    assert (first.json["node"], first.json["code"], first.json["service"]) == ("n1", "PROMOTED", "chat")


@pytest.mark.local
def test_a_receiver_that_fails_gets_a_notice_a_few_times_with_the_same_id_and_then_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "PAUSES_S", (0.0, 0.01, 0.01))
    failing, lines = iter([Answer(503), None, Answer(404), Answer(429)]), list[str]()

    def respond(_: Asked) -> Answer | None:
        return next(failing, Answer())

    with answering(respond) as server, sending(tmp_path, url(server), lines=lines) as webhooks:
        webhooks.state.tell(numbered(0))
        webhooks.state.tell(numbered(1))
        until(lambda: len(server.requests) == 5)

    assert texts(server) == ["q-0 serves"] * 3 + ["q-1 serves"] * 2
    assert len({asked.json["id"] for asked in server.requests}) == 2
    assert lines == [f"webhook http://127.0.0.1:{server.port}: HTTP 404; not sent: PROMOTED: q-0 serves"]


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
    ("reply", "delivered"),
    [
        (lambda connection: connection.sendall(HEAD + b"\r\n"), True),
        (lambda connection: connection.sendall(HEAD + b"Content-Length: 9\r\n\r\n"), True),
        (lambda connection: connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz"), True),
        (endless(HEAD + b"\r\n"), True),
        (endless(HEAD + b"Long: "), True),
        (endless(b""), False),
        (lambda connection: connection.sendall(b"\x00\xff garbage\r\n\r\n"), False),
        (lambda _: None, False),
        (silent, False),
        (lambda connection: connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n"), False),
    ],
    ids=[
        *("200 then closes", "a body that is cut", "broken chunks", "endless body", "endless head", "endless line"),
        *("garbage", "closes", "silent", "redirect"),
    ],
)
def test_a_receiver_that_lies_or_is_silent_takes_bounded_time_and_memory(
    reply: Callable[[socket.socket], None], delivered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "TOTAL_S", 1.0)
    with talking(reply) as receiver:
        why = post(receiver, b"{}")

    assert (why == "") is delivered


@pytest.mark.local
def test_a_redirect_is_not_followed() -> None:
    with answering(lambda _: Answer()) as elsewhere:
        moved = Answer(307, headers={"Location": f"http://127.0.0.1:{elsewhere.port}/"})
        with answering(lambda _: moved) as server:
            why = post(url(server), b"{}")

    assert why == "HTTP 307"
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
        refused = post(receiver, b"{}")
        elsewhere = post(receiver.replace("127.0.0.1", "localhost"), b"{}")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        trusted = post(receiver, b"{}")
        another = post(receiver.replace("127.0.0.1", "localhost"), b"{}")

    assert "certificate verify failed: self-signed certificate" in refused
    assert "certificate verify failed" in elsewhere
    assert trusted == ""
    assert "Hostname mismatch" in another


@pytest.mark.local
def test_a_receiver_without_tls_gets_nothing_by_https() -> None:
    def reply(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"no TLS")

    with talking(reply, reads=False) as receiver:
        why = post(receiver.replace("http:", "https:"), b"{}")

    assert why


@pytest.mark.local
def test_a_silent_receiver_blocks_neither_the_guard_nor_another_receiver(tmp_path: Path) -> None:
    with (
        talking(silent) as deaf,
        answering(lambda _: Answer()) as server,
        sending(tmp_path, deaf, url(server)) as webhooks,
    ):
        for number in range(3):
            webhooks.state.tell(numbered(number))  # would wait for the silent one
        until(lambda: len(server.requests) == 3)

    assert texts(server) == ["q-0 serves", "q-1 serves", "q-2 serves"]


@pytest.mark.unit
def test_the_oldest_of_too_many_notices_are_lost() -> None:
    lines: list[str] = []
    receiver = Receiver("http://10.0.0.1/T0K3N", lines.append)
    for number in range(MOST + 2):
        receiver.add({"code": "PROMOTED", "text": f"q-{number} serves"})

    assert [notice["text"] for notice in receiver.waiting] == [f"q-{number} serves" for number in range(2, MOST + 2)]
    assert lines == [
        f"webhook http://10.0.0.1: more than {MOST} notices wait; not sent: PROMOTED: q-{number} serves"
        for number in range(2)
    ]


@pytest.mark.unit
def test_a_receiver_that_is_closed_gets_nothing_more() -> None:
    sent: list[str] = []

    def failing(target: str, _: bytes) -> str:
        sent.append(target)
        receiver.close()
        return "HTTP 503"

    receiver = Receiver("http://10.0.0.1/", lambda _: None, failing)
    receiver.add({"code": "PROMOTED", "text": "q-0 serves"})
    receiver.add({"code": "PROMOTED", "text": "q-1 serves"})
    receiver.run()

    assert len(sent) == 1 < len(PAUSES_S)


@pytest.mark.unit
def test_an_event_that_the_disk_does_not_take_is_sent_nevertheless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, notices, lines = State(tmp_path), list[Notice](), list[str]()
    state.listeners.append(notices.append)
    monkeypatch.setattr("sparkops.guard.disk.durable._append", lambda *_: (_ for _ in ()).throw(OSError("full")))
    state.note_event("chat", {"kind": "end", "text": "q-1 serves", **noted(Code.PROMOTED, "q-1")}, lines.append)

    assert notices == [PROMOTED]
    assert lines == ["chat: event not saved: q-1 serves: full"]


@pytest.mark.unit
def test_the_receivers_are_kept_for_the_owner_only_and_shown_nowhere(tmp_path: Path) -> None:
    state, target = State(tmp_path), WebhookTarget(("https://hooks.example.org/services/T0K3N",))
    state.write_webhook(target)
    file = tmp_path / "webhook.json"

    assert state.webhook() == target
    assert file.stat().st_mode & 0o777 == 0o600
    assert "T0K3N" not in repr(target)
    assert "T0K3N" not in repr(Receiver(target.urls[0], lambda _: None))
    assert shown(target.urls[0]) == "https://hooks.example.org"
    state.write_webhook(None)
    assert (state.webhook(), file.exists()) == (None, False)


@pytest.mark.local
def test_requests_of_clients_carry_it_and_those_of_earlier_clients_change_nothing(tmp_path: Path) -> None:
    asked: list[object] = []
    with answering(lambda _: Answer()) as server, sending(tmp_path) as webhooks:
        verbs = webhooks.carried(dict.fromkeys(("join", "peers", "lead"), asked.append))
        verbs["join"]({"op": "join", "webhook": {"urls": [url(server)]}})
        verbs["peers"]({"op": "peers"})
        verbs["lead"]({"op": "lead", "webhook": None})
        webhooks.state.tell(numbered(0))
        until(lambda: len(server.requests) == 1)
        verbs["peers"]({"op": "peers", "webhook": None})
        webhooks.state.tell(numbered(1))

        assert (webhooks.state.webhook(), webhooks._receivers) == (None, ())
    assert (len(asked), texts(server)) == (4, ["q-0 serves"])
