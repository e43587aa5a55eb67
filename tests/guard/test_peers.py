"""Guards that talk over real sockets, and an attacker between them."""

from __future__ import annotations

import http.client
import os
import random
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from sparkops.errors import ConnectionLost, SparkopsError
from sparkops.guard import messages
from sparkops.guard.bounded import Bounded
from sparkops.guard.follow import listener
from sparkops.guard.lead.peers import PeerLink
from sparkops.guard.messages import LINKS, Envelope, GuardReply, Message, Orders
from sparkops.swap import wire
from sparkops.swap.fleet_state import EngineReport, EngineState, Report
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer
from sparkops.swap.orders import Order
from tests.ports import free_port

FLEET = b"the key of this fleet"
KEY = messages.derive(FLEET, "spark-2")
ORDER = Order(Journal("chat", "spark-1", term=3, revision=17), "boot-2", (), None)
REPORT = Report("spark-2", "boot-2", 3, 17, 17, (EngineReport("c", EngineState.HEALTHY, "3.1", Answer.YES, "3.1"),))
PROGRESS = {"chat": {"c": "loading weights 40 %, about 3 min left"}}


@dataclass
class Guard:
    """A guard that notes its messages."""

    node: str = "spark-2"
    address: str = "127.0.0.1"
    key: bytes | None = KEY
    port: int = 0
    known: tuple[str, ...] = ()
    received: list[Message] = field(default_factory=list)
    error: Exception | None = None

    def answer(self, message: Message) -> GuardReply:
        self.received.append(message)
        if self.error:
            raise self.error
        return GuardReply(dict.fromkeys(message.orders, REPORT), PROGRESS)

    @contextmanager
    def serving(self) -> Iterator[Guard]:
        with listener.serve(
            self.address,
            self.port,
            self.node,
            lambda: {"spark-1": self.key} if self.key else {},
            self.answer,
            lambda: self.known,
        ) as self.port:
            yield self

    def link(self) -> PeerLink:
        return PeerLink(self.node, self.address, self.port, KEY, "spark-1")


@contextmanager
def added(address: str) -> Iterator[None]:
    """An address of this machine, as when an interface comes up."""
    change = ("ip", "address", "{}", f"{address}/32", "dev", "lo")
    subprocess.run([word.format("add") for word in change], check=True)
    try:
        yield
    finally:
        subprocess.run([word.format("del") for word in change], check=True)


def until_reports(link: PeerLink) -> None:
    """Exchange until the guard answers. Raises ConnectionLost if it does not within 60 s."""
    end_s = time.monotonic() + 60.0
    while True:
        try:
            assert link.exchange({"chat": ORDER}) == {"chat": REPORT}
            return
        except ConnectionLost:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.1)


@pytest.fixture
def guard() -> Iterator[Guard]:
    with Guard().serving() as guard:
        yield guard


def post(port: int, packed: bytes, path: str = "/orders", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    try:
        connection.request("POST", path, packed, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def order_of(answers: str = "", link: str = "l", key: bytes = KEY, **changes: Any) -> bytes:
    """A signed message with one order, as the leader writes it."""
    envelope = Envelope("order", "spark-1", "spark-2", 3, 17, link, answers, "nonce")
    return messages.pack(key, replace(envelope, **changes), wire.dump(Orders, Orders({"chat": ORDER})))


def reply_in(packed: bytes) -> tuple[Envelope, GuardReply]:
    envelope, body = messages.unpack(messages.verify(KEY, packed))
    return envelope, wire.load(GuardReply, body)


def challenge(guard: Guard, link: str = "l") -> str:
    """The challenge that the next message of a link must answer."""
    status, packed = post(guard.port, order_of("unknown", link))
    envelope, reply = reply_in(packed)
    assert (status, reply) == (409, GuardReply(problem=messages.STALE))
    return envelope.challenge


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_orders_arrive_and_reports_return(address: str) -> None:
    with Guard(address=address).serving() as guard:
        link = guard.link()

        for count in (1, 2, 3):
            assert link.exchange({"chat": ORDER, "embed": None}) == {"chat": REPORT, "embed": REPORT}
            assert link.progress == PROGRESS
            assert guard.received == [Message("spark-1", {"chat": ORDER, "embed": None})] * count


def test_an_empty_address_means_ipv4_and_ipv6() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Guard(address="", port=port).serving() as guard:
        for address in ("127.0.0.1", "::1"):
            assert replace(guard.link(), address=address).exchange({"chat": None}) == {"chat": REPORT}


def test_a_port_that_is_taken_is_an_error(guard: Guard) -> None:
    with pytest.raises(OSError, match="Address already in use"), Guard(port=guard.port).serving():
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root adds an address")
def test_an_address_that_comes_later_is_listened_on_then(capfd: pytest.CaptureFixture[str]) -> None:
    address = f"192.0.2.{random.randrange(1, 255)}"  # no machine has one of RFC 5737
    with Guard(address=address, port=free_port()).serving() as guard:
        with pytest.raises(ConnectionLost):
            guard.link().exchange({"chat": ORDER})
        with added(address):
            until_reports(guard.link())

    lines = capfd.readouterr().err.splitlines()
    assert [line.partition(address)[0].rpartition("Z ")[2] for line in lines] == ["not listening on ", "listening on "]


def test_only_the_first_message_of_a_link_is_sent_twice(guard: Guard) -> None:
    with relay(guard) as attacker:
        link = attacker.link(guard)
        for _ in range(3):
            link.exchange({"chat": ORDER})

    assert [status for status, _ in attacker.replies] == [409, 200, 200, 200]


def test_a_guard_that_restarted_gets_the_message_again() -> None:
    with Guard().serving() as guard:
        link = guard.link()
        link.exchange({"chat": ORDER})
    with Guard(port=guard.port).serving() as restarted:
        assert link.exchange({"chat": ORDER}) == {"chat": REPORT}

    assert len(restarted.received) == 1


def test_a_replayed_message_is_refused(guard: Guard) -> None:
    message = order_of(challenge(guard))

    statuses = [post(guard.port, message)[0] for _ in range(3)]

    assert statuses == [200, 409, 409]
    assert len(guard.received) == 1


def test_a_message_that_was_overtaken_is_refused(guard: Guard) -> None:
    """One is held back; its link sends another one, with the same challenge or with the next."""
    first = challenge(guard)
    overtaken = order_of(first, revision=17)
    status, packed = post(guard.port, order_of(first))
    second = reply_in(packed)[0].challenge

    assert status == 200
    assert post(guard.port, overtaken)[0] == 409
    assert post(guard.port, order_of(second))[0] == 200
    assert post(guard.port, overtaken)[0] == 409
    assert len(guard.received) == 2


def test_a_link_that_asks_twice_gets_one_challenge(guard: Guard) -> None:
    """So a refused replay cannot take the challenge away that the leader is about to answer."""
    assert challenge(guard) == challenge(guard)
    assert challenge(guard) != challenge(guard, "another link")


def test_a_challenge_counts_for_its_own_link_only(guard: Guard) -> None:
    first = challenge(guard, "one")
    challenge(guard, "two")

    assert post(guard.port, order_of(first, "two"))[0] == 409
    assert post(guard.port, order_of(first, "one"))[0] == 200
    assert len(guard.received) == 1


@pytest.mark.parametrize("at", [0, 63, 64, 65, 90, 150, -100, -1])
def test_a_tampered_message_is_refused_unread(guard: Guard, at: int) -> None:
    message = bytearray(order_of(challenge(guard)))
    message[at] ^= 1

    assert post(guard.port, bytes(message)) == (403, b"")
    assert guard.received == []


@pytest.mark.parametrize(
    "changes",
    [
        {"key": messages.derive(FLEET, "spark-3")},
        {"key": FLEET},
        {"key": messages.derive(FLEET, "spark-3"), "receiver": "spark-3"},
        {"receiver": "spark-3"},
        {"direction": "report"},
    ],
)
def test_a_message_for_another_node_is_refused(guard: Guard, changes: dict[str, Any]) -> None:
    assert post(guard.port, order_of(challenge(guard), **changes)) == (403, b"")
    assert guard.received == []


@pytest.mark.parametrize("changes", [{"term": 4}, {"term": 2}, {"revision": 18}])
def test_a_message_of_another_term_than_its_orders_is_refused(guard: Guard, changes: dict[str, Any]) -> None:
    status, packed = post(guard.port, order_of(challenge(guard), **changes))

    (name,) = changes
    assert status == 500
    assert reply_in(packed)[1].problem.startswith(f"message refused: {name} is ")
    assert guard.received == []


def test_a_message_of_a_newer_version_is_refused(guard: Guard) -> None:
    assert post(guard.port, order_of(challenge(guard), schema=9)) == (400, b"")
    assert guard.received == []


def test_a_node_without_a_key_answers_nobody(guard: Guard) -> None:
    guard.key = None

    with pytest.raises(ConnectionLost, match=r"^spark-2: no reply from .* port \d+: its guard has no key of this"):
        guard.link().exchange({"chat": ORDER})
    assert guard.received == []


def test_a_leader_with_another_key_is_told_so(guard: Guard) -> None:
    guard.key = messages.derive(b"another fleet", "spark-2")

    with pytest.raises(ConnectionLost, match="its guard refused the signature: it has another key"):
        guard.link().exchange({"chat": ORDER})


@pytest.mark.parametrize("error", [SparkopsError("disk is full"), OSError("disk is full")])
def test_an_error_of_a_guard_is_reported_and_the_link_lasts(guard: Guard, error: Exception) -> None:
    link, guard.error = guard.link(), error

    with pytest.raises(ConnectionLost, match=r"^spark-2: its guard sent no report: disk is full$"):
        link.exchange({"chat": ORDER})

    guard.error = None
    assert link.exchange({"chat": ORDER}) == {"chat": REPORT}
    assert len(guard.received) == 2


def test_a_defect_of_a_guard_is_logged_and_the_next_message_is_served(
    guard: Guard, capfd: pytest.CaptureFixture[str]
) -> None:
    link, guard.error = guard.link(), ZeroDivisionError("of a guard")

    with pytest.raises(ConnectionLost, match=r"no reply from 127\.0\.0\.1 port"):
        link.exchange({"chat": ORDER})

    assert "ZeroDivisionError: of a guard" in capfd.readouterr().err
    guard.error = None
    assert link.exchange({"chat": ORDER}) == {"chat": REPORT}


def reset(port: int, address: str) -> None:
    """Connect from an address, send the begin of a request, and reset the connection."""
    with socket.create_connection(("127.0.0.1", port), 5, (address, 0)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(b"POST /orders HTTP/1.1\r\n")


def test_resets_of_one_address_are_logged_in_one_line(guard: Guard, capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    for address in (*[STRANGER] * 30, LEADER_TOO):
        reset(guard.port, address)
    end_s = time.monotonic() + 60
    while not all(
        any(f"connection from {address} lost" in line for line in lines) for address in (STRANGER, LEADER_TOO)
    ):
        assert time.monotonic() < end_s
        lines += capfd.readouterr().err.splitlines()

    assert len(lines) == 2


def test_a_lost_connection_is_logged_once_per_address_and_minute_of_a_limited_number() -> None:
    now_s = 0.0
    room = listener.Connections(tuple, clock=lambda: now_s)

    def logs(number: int) -> bool:
        with socket.socket() as connection:
            return room.logs(listener.Caller(connection, f"10.0.{number // 256}.{number % 256}", known=False))

    assert [logs(7), logs(7)] == [True, False]
    assert sum(logs(number) for number in range(1000)) == listener.MOST_LOGGED - 1
    now_s = listener.QUIET_S
    assert logs(7)


def test_a_name_that_no_name_service_can_be_asked_for_is_a_lost_connection() -> None:
    with pytest.raises(ConnectionLost, match=r"^spark-2: no reply from a{64} port 1: .*label too long"):
        PeerLink("spark-2", "a" * 64, 1, KEY, "spark-1").exchange({"chat": None})


def test_a_link_resolves_the_name_of_its_guard_only_where_that_did_not_reply() -> None:
    """A name service that hangs takes longer than an exchange may."""
    with Guard().serving() as guard:
        link = replace(guard.link(), address="localhost")
        assert link.exchange({"chat": ORDER}) == {"chat": REPORT}
        link.address = "no-such-host.invalid"
        assert link.exchange({"chat": ORDER}) == {"chat": REPORT}
    with pytest.raises(ConnectionLost, match="refused"):
        link.exchange({"chat": ORDER})
    with Guard(port=guard.port).serving():
        with pytest.raises(ConnectionLost, match=r"no reply from no-such-host\.invalid"):
            link.exchange({"chat": ORDER})
        link.address = "localhost"
        assert link.exchange({"chat": ORDER}) == {"chat": REPORT}


def test_the_oldest_challenge_gives_way_and_its_link_sends_again(guard: Guard) -> None:
    link, oldest = guard.link(), challenge(guard, "oldest")
    link.exchange({"chat": ORDER})
    for number in range(LINKS - 2):
        challenge(guard, f"link {number}")
    assert challenge(guard, "oldest") == oldest, f"{LINKS} links have a challenge"

    for number in range(2):
        challenge(guard, f"newer link {number}")

    assert post(guard.port, order_of(oldest, "oldest"))[0] == 409
    assert len(guard.received) == 1
    assert link.exchange({"chat": ORDER}) == {"chat": REPORT}


def test_messages_that_are_not_signed_get_no_challenge_and_take_none(guard: Guard) -> None:
    first = challenge(guard)
    for number in range(LINKS + 3):
        assert post(guard.port, order_of("", f"link {number}", key=b"attacker")) == (403, b"")

    assert post(guard.port, order_of(first))[0] == 200


@pytest.mark.parametrize(
    ("packed", "path", "headers", "status"),
    [
        (b"x", "/orders", {"Content-Length": str(messages.MAX_BYTES + 1)}, 413),
        (b"x", "/orders", {"Content-Length": "9" * 5000}, 413),
        (b"x", "/orders", {"Content-Length": "-1"}, 404),
        (b"1\r\nx\r\n0\r\n\r\n", "/orders", {"Transfer-Encoding": "chunked", "Content-Length": ""}, 404),
        (b"x", "/", {}, 404),
        (b"", "/orders", {}, 403),
        (b"\n", "/orders", {}, 403),
    ],
)
def test_what_is_no_message_is_refused(
    guard: Guard, packed: bytes, path: str, headers: dict[str, str], status: int
) -> None:
    assert post(guard.port, packed, path, **headers) == (status, b"")
    assert guard.link().exchange({"chat": ORDER}) == {"chat": REPORT}


def test_the_largest_message_is_received(guard: Guard) -> None:
    size = messages.MAX_BYTES - 2000
    large = replace(ORDER, journal=replace(ORDER.journal, trouble="x" * size))

    assert guard.link().exchange({"chat": large}) == {"chat": REPORT}
    with pytest.raises(ConnectionLost, match="expected up to 4194304"):
        guard.link().exchange({"chat": large, "embed": ORDER, "third": replace(large, boot="x")})
    assert [message.orders["chat"] for message in guard.received] == [large]


@dataclass
class Relay:
    """An attacker between leader and guard, who sees every reply and changes it."""

    port: int = 0
    replies: list[tuple[int, bytes]] = field(default_factory=list)
    change: Callable[[tuple[int, bytes]], tuple[int, bytes]] = lambda reply: reply

    def link(self, guard: Guard) -> PeerLink:
        return replace(guard.link(), port=self.port)


@contextmanager
def relay(guard: Guard) -> Iterator[Relay]:
    attacker = Relay()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            reply = post(guard.port, self.rfile.read(int(self.headers["Content-Length"])))
            attacker.replies.append(reply)
            status, content = attacker.change(reply)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        attacker.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield attacker
        server.shutdown()


def resigned(packed: bytes, key: bytes = KEY, **changes: Any) -> bytes:
    """A reply with a changed envelope, signed again: what only the guard itself could send."""
    envelope, body = messages.unpack(messages.verify(KEY, packed))
    return messages.pack(key, replace(envelope, **changes), body)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda reply: reply.replace(b"healthy", b"stopped"), "its signature does not match"),
        (lambda reply: reply[:-1], "its signature does not match"),
        (lambda reply: resigned(reply, messages.derive(FLEET, "spark-3")), "its signature does not match"),
        (lambda reply: resigned(reply, direction="order"), "direction is 'order', expected 'report'"),
        (lambda reply: resigned(reply, sender="spark-3"), "sender is 'spark-3', expected 'spark-2'"),
        (lambda reply: resigned(reply, receiver="spark-3"), "receiver is 'spark-3', expected 'spark-1'"),
        (lambda reply: resigned(reply, answers="x"), "answers is 'x', expected "),
        (lambda reply: resigned(reply, term=4), "term is 4, expected 3"),
        (lambda reply: resigned(reply, revision=16), "revision is 16, expected 17"),
        (lambda reply: resigned(reply, link="x"), "link is 'x', expected "),
        (lambda reply: resigned(reply, schema=9), "has format 9, expected 2"),
        (lambda _: b"", "HTTP 200"),
        (lambda _: b"x" * (messages.MAX_BYTES + 1), "its signature does not match"),
    ],
)
def test_a_forged_reply_is_no_report(guard: Guard, change: Callable[[bytes], bytes], why: str) -> None:
    with relay(guard) as attacker:
        link = attacker.link(guard)
        link.exchange({"chat": ORDER})
        attacker.change = lambda reply: (reply[0], change(reply[1]))

        with pytest.raises(ConnectionLost, match=why):
            link.exchange({"chat": ORDER})

        attacker.change = lambda reply: reply
        assert link.exchange({"chat": ORDER}) == {"chat": REPORT}


def test_an_older_reply_is_no_report(guard: Guard) -> None:
    with relay(guard) as attacker:
        link = attacker.link(guard)
        link.exchange({"chat": ORDER})
        old = attacker.replies[-1]
        attacker.change = lambda _: old

        with pytest.raises(ConnectionLost, match="message refused: answers is"):
            link.exchange({"chat": ORDER})


def test_a_refusal_is_no_report_whatever_its_status(guard: Guard) -> None:
    with relay(guard) as attacker:
        attacker.change = lambda reply: (200, reply[1])

        assert attacker.link(guard).exchange({"chat": ORDER}) == {"chat": REPORT}

    assert [status for status, _ in attacker.replies] == [409, 200]


def test_a_guard_that_always_refuses_the_challenge_is_asked_twice(guard: Guard) -> None:
    with relay(guard) as attacker:
        attacker.change = lambda reply: (reply[0], resigned(reply[1], challenge="unknown"))
        with pytest.raises(ConnectionLost, match="sent no report: the challenge is not the last one"):
            attacker.link(guard).exchange({"chat": ORDER})

    assert [status for status, _ in attacker.replies] == [409, 409]
    assert guard.received == []


def test_a_guard_that_does_not_run_is_a_lost_connection(guard: Guard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    with pytest.raises(ConnectionLost, match=rf"^spark-2: no reply from 127\.0\.0\.1 port {port}: .*refused"):
        replace(guard.link(), port=port).exchange({"chat": ORDER})


def problem(link: PeerLink) -> str:
    """Return why an exchange gets no reply. Without a deadline it never ends, and its test fails after its timeout."""
    with pytest.raises(ConnectionLost) as caught:
        link.exchange({"chat": ORDER})
    return str(caught.value).removeprefix(f"spark-2: no reply from {link.address} port {link.port}: ")


def test_an_address_that_swallows_connections_is_given_up(guard: Guard) -> None:
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        waiting = stack.enter_context(socket.create_connection(full.getsockname()))
        assert waiting

        assert problem(replace(guard.link(), port=full.getsockname()[1])) == "timed out"


def test_a_guard_that_answers_byte_by_byte_is_given_up_at_the_deadline(guard: Guard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as slow:
        ended = threading.Event()

        def trickle() -> None:
            connection, _ = slow.accept()
            with connection:
                connection.sendall(b"HTTP/1.0 200 OK\r\nX: ")
                with suppress(OSError):
                    while not ended.wait(0.5):
                        connection.send(b"x")

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        given_up = problem(replace(guard.link(), port=slow.getsockname()[1]))
        ended.set()
        thread.join()

    assert given_up in ("timed out", "deadline passed")


def trickling(port: int, start: bytes, cut: list[bytes]) -> None:
    """Send a byte every half second until the guard ends the connection; record that it did."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(start)
        connection.settimeout(0.5)
        while True:
            try:
                if connection.recv(100) == b"":
                    break
            except TimeoutError:
                connection.sendall(b"x")
            except ConnectionResetError:
                break
    cut.append(start)


def test_slow_senders_are_cut_and_take_no_more_than_four_threads(guard: Guard) -> None:
    before, cut = threading.active_count(), list[bytes]()
    starts = [b"POST /or", b"POST /orders HTTP/1.1\r\nX: ", b"POST /orders HTTP/1.1\r\nContent-Length: 99\r\n\r\n", b""]
    senders = [threading.Thread(target=trickling, args=(guard.port, start, cut)) for start in starts * 3]
    for sender in senders:
        sender.start()
    most = 0
    while alive := sum(sender.is_alive() for sender in senders):
        most = max(most, threading.active_count() - before - alive)
        time.sleep(0.05)

    assert most == listener.PER_ADDRESS
    assert sorted(cut) == sorted(starts * 3)
    assert guard.received == []
    assert guard.link().exchange({"chat": ORDER}) == {"chat": REPORT}


STRANGER, LEADER, LEADER_TOO = "127.0.0.2", "127.0.0.1", "127.0.0.3"


@contextmanager
def slow(guard: Guard, *addresses: str) -> Iterator[list[socket.socket]]:
    """Connections from these addresses that send a part of a request and wait."""
    with ExitStack() as stack:
        connections = list[socket.socket]()
        for address in addresses:
            connection = socket.create_connection(("127.0.0.1", guard.port), source_address=(address, 0))
            connections.append(stack.enter_context(connection))
            connection.sendall(b"POST /orders HTTP/1.1\r\nX: ")
        yield connections


def ended(connection: socket.socket) -> bool:
    """Whether the guard has closed a connection; it need not have answered."""
    connection.settimeout(5)
    try:
        while connection.recv(1000):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "addresses",
    [
        [STRANGER] * 8,
        [STRANGER] * 100,
        [f"127.0.1.{number}" for number in range(1, 41)],
        [LEADER] * 40,
        [*[LEADER] * 20, *[LEADER_TOO] * 20, *[STRANGER] * 20],
    ],
    ids=["eight", "a hundred", "many addresses", "a user of the leader's node", "all of them"],
)
@pytest.mark.parametrize("known", [(LEADER, LEADER_TOO), ()], ids=["known", "an older membership"])
def test_slow_connections_keep_the_leader_out_at_no_time(addresses: list[str], known: tuple[str, ...]) -> None:
    with Guard(known=known).serving() as guard:
        link = guard.link()
        for count in range(3):
            with slow(guard, *addresses):
                assert link.exchange({"chat": ORDER}) == {"chat": REPORT}
                assert len(guard.received) == count + 1


def test_a_stranger_takes_the_place_of_no_connection_of_the_leader() -> None:
    with (
        Guard(known=(LEADER, LEADER_TOO)).serving() as guard,
        slow(guard, *[LEADER] * 4, *[LEADER_TOO] * 4),
        slow(guard, STRANGER) as [stranger],
    ):
        assert ended(stranger)


@pytest.mark.parametrize("others_sent", [False, True], ids=["slow others", "others being answered"])
def test_one_connection_at_most_gives_way_to_a_new_one(others_sent: bool) -> None:
    """Its own address may be at its limit, and so may all of them: the place that the first gives is enough."""
    room = listener.Connections(tuple)
    with ExitStack() as stack:

        def enter(address: str) -> Any:
            served, client = (stack.enter_context(end) for end in socket.socketpair())
            if caller := room.enter(served, address):

                def serve() -> None:
                    served.recv(1)
                    room.leave(caller)

                thread = threading.Thread(target=serve)
                thread.start()
                stack.callback(thread.join)
                stack.callback(client.close)
            return caller

        own = [enter(STRANGER) for _ in range(listener.PER_ADDRESS)]
        others = [enter(LEADER_TOO) for _ in range(listener.THREADS - listener.PER_ADDRESS)]
        for caller in others:
            caller.sent = others_sent

        assert enter(STRANGER)
        assert [caller for caller in (*own, *others) if caller.closed] == own[:1]


def test_a_former_leader_at_any_address_is_answered() -> None:
    """It must receive the newer term."""
    with Guard(known=(STRANGER,)).serving() as guard, slow(guard, STRANGER):
        assert guard.link().exchange({"chat": None}) == {"chat": REPORT}


def test_an_endless_header_is_cut(guard: Guard) -> None:
    with socket.create_connection(("127.0.0.1", guard.port)) as connection:
        connection.settimeout(5)
        with pytest.raises(ConnectionError):
            connection.sendall(b"POST /orders HTTP/1.1\r\nX: " + b"x" * 10 * messages.MAX_BYTES)

    assert guard.link().exchange({"chat": ORDER}) == {"chat": REPORT}


def test_no_more_is_received_than_the_bound() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, Bounded(ours, 5, 1000).makefile() as incoming:
        theirs.sendall(b"x" * 3000)

        assert incoming.read() == b"x" * 1000


def test_threads_share_a_link(guard: Guard) -> None:
    link, reports = guard.link(), list[object]()
    threads = [
        threading.Thread(target=lambda: reports.extend(link.exchange({"chat": ORDER}) for _ in range(5)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert reports == [{"chat": REPORT}] * 20
    assert len(guard.received) == 20
