"""The hub's verdict on a token, asked of a real server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sparkops.node.network.finding import Severity
from sparkops.operator.build.weights.checkpoint import ModelDirectory
from sparkops.operator.status.doctor.run import HubLogin
from tests.examples import CHECKPOINT, HALF_A_CHECKPOINT
from tests.operator.status.doctor.test_rules import examined
from tests.sparks import spark

pytestmark = pytest.mark.local
TOKEN = "hf_" + "a" * 34


class _Hub(BaseHTTPRequestHandler):
    """/api/whoami-v2 of a hub that knows one token; with `elsewhere` it redirects."""

    known = f"Bearer {TOKEN}"
    elsewhere = ""

    def do_GET(self) -> None:
        right = self.path == "/api/whoami-v2" and self.headers["Authorization"] == self.known
        self.send_response(302 if self.elsewhere else 200 if right else 401)
        if self.elsewhere:
            self.send_header("Location", self.elsewhere)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def hub(elsewhere: str = "") -> Iterator[str]:
    kind = type("Hub", (_Hub,), {"elsewhere": elsewhere})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_token_that_the_hub_accepts_is_no_finding() -> None:
    with hub() as url:
        assert [*HubLogin(TOKEN, url).findings([])] == []


def test_a_token_that_the_hub_refuses_is_a_problem_and_not_shown() -> None:
    with hub() as url:
        [finding] = HubLogin("hf_wrong", url).findings([])

    assert (finding.code, finding.severity) == ("HUB_LOGIN", Severity.PROBLEM)
    assert finding.problem == f"the hub refused the token: {url}/api/whoami-v2 answered 401, expected 200"
    assert "hf_wrong" not in finding.model_dump_json()


def test_a_redirect_gets_no_token() -> None:
    with hub() as target, hub(elsewhere=f"{target}/api/whoami-v2") as url:
        [finding] = HubLogin(TOKEN, url).findings([])

    assert (finding.severity, "answered 302" in finding.problem) == (Severity.WARNING, True)


def test_a_hub_that_cannot_be_reached_leaves_the_token_unverified() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    [finding] = HubLogin(TOKEN, f"http://127.0.0.1:{port}").findings([])

    assert (finding.severity, "could not be verified" in finding.problem) == (Severity.WARNING, True)


@pytest.mark.parametrize(("checkpoint", "codes"), [(CHECKPOINT, []), (HALF_A_CHECKPOINT, ["HUB_LOGIN"])])
def test_without_a_token_only_a_fleet_without_models_is_a_finding(
    tmp_path: Path, checkpoint: object, codes: list[str]
) -> None:
    held = ModelDirectory(True, True, 10**12, 1000, 1000, {"q": checkpoint})  # type: ignore[dict-item]
    node = replace(examined(tmp_path, "a", spark(1)), weights=held)

    assert [finding.code for finding in HubLogin().findings([node])] == codes
