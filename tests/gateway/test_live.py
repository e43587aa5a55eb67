"""A real gateway on a real node: what clients see, and what survives."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from sparkops.commands import gateway as commands
from sparkops.config.gateway import Secrets
from sparkops.config.inventory import Gateway
from sparkops.errors import CommandFailed
from sparkops.release import Slot
from sparkops.render.gateway import Service
from tests.gateway.live import ENGINES, METRICS, PORT, RELEASES, Answer, Live, wait_for

pytestmark = pytest.mark.fleet

BLUE, GREEN = Slot
SERVED_BY = {slot: (slot.value, slot.value, RELEASES[slot]) for slot in Slot}
CANARY = "sk-canary-0123456789abcdef"


def is_documented_refusal(answer: Answer) -> bool:
    error = answer.json["error"]
    shaped = answer.headers["content-type"] == "application/json" and set(error) == {"message", "type", "param", "code"}
    return answer.status == 503 and int(answer.headers["retry-after"]) > 0 and shaped and error["code"] == "unavailable"


def refused(run: Callable[[], object]) -> str:
    """What the gateway says when it refuses."""
    with pytest.raises(CommandFailed) as caught:
        run()
    return caught.value.completed.stderr


class Stream:
    """An open stream, read in a thread."""

    def __init__(self, live: Live, parts: int) -> None:
        self.connection = live.connect()
        self.connection.request("POST", "/", json.dumps({"stream": True, "max_tokens": parts}))
        self.response = self.connection.getresponse()
        self.lines: list[bytes] = []
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        while line := self.response.readline():  # a stream that is cut just ends here
            self.lines.append(line.strip())

    def leave(self) -> None:
        """Go without waiting for the end."""
        assert self.connection.sock
        self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(30)
        self.response.close()
        self.connection.close()

    @property
    def whole(self) -> bool:
        """Whether it came to its end; waits for it."""
        self.thread.join(30)
        self.response.close()
        self.connection.close()
        return b"data: [DONE]" in self.lines


def test_a_service_that_nobody_serves_answers_with_the_documented_503(live: Live) -> None:
    live.run(commands.switch_down("chat"))

    for _ in range(3):
        assert is_documented_refusal(live.ask(body={"model": "chat"}))
    assert live.facts.services["chat"].active is None


def test_an_engine_that_is_not_there_answers_with_the_same_503(live: Live) -> None:
    with live.engine("late", 9313):
        live.run(commands.switch_down("chat"))
        live.run(commands.point("chat", GREEN, "chat-late", [("127.0.0.1", 9313)]))
        live.run(commands.switch("chat", GREEN, "chat-late"))
        assert live.ask().served_by == ("late", "green", "chat-late")
    try:
        wait_for("the engine's end", lambda: live.ask().status != 200)
        assert is_documented_refusal(live.ask())
        assert live.slot(GREEN).errors > 0
    finally:
        live.switch(BLUE)
        live.point(GREEN)


def test_an_answer_names_the_slot_and_the_release_that_gave_it(live: Live) -> None:
    assert live.ask().served_by == SERVED_BY[BLUE]
    live.switch(GREEN)
    assert live.ask().served_by == SERVED_BY[GREEN]


def test_a_stream_that_is_open_during_a_switch_ends_well_and_is_counted(live: Live) -> None:
    stream = Stream(live, 30)
    live.switch(GREEN)

    assert live.ask().served_by == SERVED_BY[GREEN]
    assert live.slot(BLUE).sessions == 1
    assert stream.response.headers["x-sparkops-release"] == RELEASES[BLUE]
    assert stream.whole
    wait_for("drained", lambda: live.slot(BLUE).sessions == 0)


def test_a_kept_connection_follows_the_switch_and_does_not_count_as_a_session(live: Live) -> None:
    connection = live.connect()
    try:
        for slot in (BLUE, GREEN, BLUE):
            live.switch(slot)
            connection.request("GET", "/")
            assert Answer.of(connection.getresponse()).served_by == SERVED_BY[slot]
            assert live.slot(slot).sessions == 0
    finally:
        connection.close()


def test_a_client_that_leaves_ends_its_request_at_the_engine(live: Live) -> None:
    def left() -> int:
        return int(live.ask("/seen").json["left"])

    before, connection = left(), live.connect()
    connection.request("POST", "/", json.dumps({"wait_s": 20}))
    wait_for("under way", lambda: live.slot(BLUE).sessions == 1)
    connection.close()

    assert wait_for("noticed", lambda: left() == before + 1) < 2


def test_a_preview_goes_to_the_slot_that_it_names_and_only_with_the_token(live: Live) -> None:
    token = live.run(commands.TOKEN)

    assert live.ask(x_sparkops_preview=token, x_sparkops_slot="green").served_by == SERVED_BY[GREEN]
    assert live.ask(x_sparkops_preview=token).served_by == SERVED_BY[BLUE]
    assert live.ask(x_sparkops_preview="x" * 48, x_sparkops_slot="green").served_by == SERVED_BY[BLUE]
    assert live.ask(x_sparkops_slot="green").served_by == SERVED_BY[BLUE]
    seen = live.ask("/seen", x_sparkops_preview=token, x_sparkops_slot="green").json["headers"]
    assert not [name for name in seen if name.startswith("x-sparkops")]


def test_the_gateway_can_tell_whether_a_server_answers(live: Live) -> None:
    assert live.run(commands.alive(f"http://127.0.0.1:{ENGINES[BLUE]}/health")) == "alive"
    assert "Connection refused" in refused(lambda: live.run(commands.alive("http://127.0.0.1:9398/health")))
    assert "it answered HTTP/1.1 404" in refused(lambda: live.run(commands.alive(f"http://127.0.0.1:{METRICS}/")))


def test_an_engine_that_dies_is_an_error_and_a_client_that_leaves_is_none(live: Live) -> None:
    before = live.slot(BLUE)
    for _ in range(3):
        stream = Stream(live, 400)
        wait_for("a part", lambda lines=stream.lines: lines)
        stream.leave()
    wait_for("gone", lambda: live.slot(BLUE).sessions == 0)
    assert live.slot(BLUE).errors == before.errors

    live.ask(body={"fail": True})
    assert live.slot(BLUE).answers_5xx == before.answers_5xx + 1
    answer = live.ask(body={"die": True})
    assert answer.status == 502
    assert answer.json["error"]["code"] == "unavailable"
    assert live.slot(BLUE).errors == before.errors + 1


def test_requests_are_counted_for_each_slot_and_for_prometheus(live: Live) -> None:
    before = live.slot(BLUE).requests, live.slot(GREEN).requests
    for _ in range(5):
        live.ask()

    assert (live.slot(BLUE).requests, live.slot(GREEN).requests) == (before[0] + 5, before[1])
    fetch = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{METRICS}/metrics').read().decode())"
    line = f'haproxy_backend_sessions_total{{proxy="be_chat_blue"}} {before[0] + 5}'
    assert line in live.inside("python3", "-c", fetch).splitlines()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((live.machine.address, METRICS), timeout=5)


def test_a_switch_needs_the_release_that_the_slot_was_pointed_at(live: Live) -> None:
    said = refused(lambda: live.run(commands.switch("chat", GREEN, "chat-other")))

    assert said == f"gateway: chat green holds {RELEASES[GREEN]} and not chat-other\n"
    assert live.ask().served_by == SERVED_BY[BLUE]


def test_a_slot_with_traffic_cannot_be_pointed_elsewhere(live: Live) -> None:
    said = refused(lambda: live.run(commands.point("chat", BLUE, "chat-x", [("127.0.0.1", 9399)])))

    assert said == "gateway: chat blue has the traffic: it cannot be pointed elsewhere\n"
    assert live.point(BLUE)  # as it is: nothing to do
    assert list(live.facts.drift) == []


def test_a_gateway_that_is_killed_comes_back_with_the_slot_of_its_file(live: Live) -> None:
    live.switch(GREEN)
    began = time.monotonic()
    live.machine.exec("sh", "-c", "kill -9 $(docker inspect --format '{{.State.Pid}}' sparkops-gateway)")
    wait_for("killed", lambda: live.facts.workers == 1)

    assert live.ask().served_by == SERVED_BY[GREEN]
    assert list(live.facts.drift) == []
    print(f"back after {time.monotonic() - began:.2f} s")


def test_after_a_crash_between_file_and_haproxy_the_file_wins_and_the_drift_has_a_name(live: Live) -> None:
    live.inside("sh", "-c", "echo chat be_chat_green > /var/lib/gateway/active.map")

    assert list(live.facts.drift) == [("MAP_RUNTIME_DIFF", "chat: the file says be_chat_green, HAProxy be_chat_blue")]
    assert live.ask().served_by == SERVED_BY[BLUE]
    live.switch(GREEN)  # running it again repairs it
    assert list(live.facts.drift) == []


def test_what_somebody_else_changed_in_haproxy_has_a_name_and_stops_a_switch(live: Live) -> None:
    change = "import sys; sys.path[0] = '/opt/sparkops/gateway'; import haproxy; haproxy.ask(sys.argv[1])"
    live.inside("python3", "-c", change, "set server be_chat_green/s1 state maint")

    wanted = f"127.0.0.1:{ENGINES[GREEN]}"
    assert list(live.facts.drift) == [("SERVERS_DIFF", f"chat green: pointed at {wanted}, HAProxy has none")]
    assert "point it again" in refused(lambda: live.switch(GREEN))
    live.point(GREEN)
    live.switch(GREEN)


def test_adding_a_service_cuts_no_stream_and_old_workers_are_counted(live: Live) -> None:
    stream = Stream(live, 60)
    assert live.configure(Service("chat", PORT), Service("embed", PORT + 3)) == "configured"
    try:
        assert is_documented_refusal(live.ask(port=PORT + 3))
        live.switch(GREEN)
        blue = live.slot(BLUE)
        assert (blue.sessions, blue.old_sessions, live.facts.workers) == (1, 1, 2)
        assert stream.whole
        wait_for("the old worker's end", lambda: live.facts.workers == 1)
        assert live.slot(BLUE).sessions == 0
    finally:
        live.run(commands.forget("embed"))
    with pytest.raises(ConnectionRefusedError):
        live.ask(port=PORT + 3)
    assert list(live.facts.services) == ["chat"]


def test_cut_ends_the_sessions_of_a_slot_in_old_workers_too(live: Live) -> None:
    streams = [Stream(live, 400)]
    live.configure(Service("chat", PORT), Service("embed", PORT + 3))
    streams.append(Stream(live, 400))
    live.switch(GREEN)
    untouched = Stream(live, 20)

    assert live.run(commands.cut("chat", BLUE)) == "2"
    assert untouched.whole
    assert [stream.whole for stream in streams] == [False, False]
    wait_for("cut", lambda: live.slot(BLUE).sessions == 0)
    live.run(commands.forget("embed"))


def test_the_same_files_again_change_nothing(live: Live) -> None:
    before = live.facts

    assert live.configure() == "unchanged"
    assert live.facts.files == before.files


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("services/bad.cfg", "frontend fe_bad\n  nonsense here\n", "unknown keyword 'nonsense'"),
        ("services/twin.cfg", f"frontend fe_twin\n  bind :{PORT}\n", f"port {PORT} is of chat.cfg and of twin.cfg"),
        ("services/ssh.cfg", "frontend fe_ssh\n  bind :22\n", "port 22 of ssh.cfg is taken on this node"),
        ("../escape.cfg", "x", "there is no file of that name: '../escape.cfg'"),
    ],
)
def test_files_that_cannot_be_loaded_are_not_kept(live: Live, name: str, text: str, said: str) -> None:
    before = live.facts.files

    assert said in refused(lambda: live.run(commands.configure({name: text})))
    assert live.facts.files == before
    assert list(live.facts.drift) == []
    assert live.ask().served_by == SERVED_BY[BLUE]


def test_without_a_key_nobody_is_served_and_no_key_is_seen_anywhere(live: Live) -> None:
    live.gateway = Gateway(node="n", metrics_port=METRICS, api_keys=["key"])
    live.secrets = Secrets((CANARY, "another-key-0123456789"))
    live.configure()

    for answer in (live.ask(), live.ask(authorization="Bearer wrong"), live.ask(authorization=CANARY)):
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json["error"]["code"] == "invalid_api_key"
    for key in (CANARY, "another-key-0123456789"):
        assert live.ask(authorization=f"Bearer {key}").served_by == SERVED_BY[BLUE]
    assert "authorization" not in live.ask("/seen", authorization=f"bearer {CANARY}").json["headers"]
    assert live.ask(x_sparkops_preview=live.run(commands.TOKEN), x_sparkops_slot="green").served_by == SERVED_BY[GREEN]
    assert_unseen(live, CANARY)


def assert_unseen(live: Live, secret: str) -> None:
    state = live.inside("sh", "-c", "cat $(find /var/lib/gateway /run/gateway -type f) /proc/*/cmdline")
    outside = ("docker logs sparkops-gateway 2>&1", "docker inspect sparkops-gateway", "docker history --no-trunc $1")
    image = live.machine.exec("docker", "inspect", "--format", "{{.Image}}", commands.CONTAINER)
    for text in (state, *(live.machine.exec("sh", "-c", script, "sh", image) for script in outside)):
        assert text
        assert secret not in text


def test_with_a_certificate_a_service_speaks_https(live: Live, tmp_path: Path) -> None:
    names = ("-subj", "/CN=gateway", "-addext", f"subjectAltName=IP:{live.machine.address}")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    out = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, *out], check=True)
    live.gateway = Gateway(node="n", metrics_port=METRICS, tls_certificate="tls.pem")
    live.secrets = Secrets(certificate=certificate.read_text() + key.read_text())
    live.configure()

    trust = ssl.create_default_context(cafile=str(certificate))
    connection = HTTPSConnection(live.machine.address, PORT, timeout=30, context=trust)
    connection.request("GET", "/")
    assert Answer.of(connection.getresponse()).served_by == SERVED_BY[BLUE]
    connection.close()
    assert "PRIVATE KEY" not in json.dumps(live.facts.files)


def test_the_container_has_no_rights_and_its_sockets_are_its_own(live: Live) -> None:
    status = live.inside("cat", "/proc/1/status").split("\n")
    rights = {name: value.split() for name, _, value in (line.partition(":") for line in status)}

    assert rights["Uid"] == [str(commands.USER)] * 4
    assert {*rights["CapPrm"], *rights["CapEff"], *rights["CapBnd"]} == {"0" * 16}
    assert rights["NoNewPrivs"] == ["1"]
    modes = live.inside("sh", "-c", "stat -c '%a %n' /run/gateway/*.sock /run/gateway /var/lib/gateway/*").split("\n")
    assert "660 /run/gateway/admin.sock" in modes
    assert "600 /run/gateway/master.sock" in modes
    assert "700 /run/gateway" in modes
    assert "600 /var/lib/gateway/active.map" in modes
    assert live.machine.exec("docker", "exec", commands.CONTAINER, "sh", "-c", "touch /x 2>&1 || true").endswith(
        "Read-only file system"
    )
