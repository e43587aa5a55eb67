"""A user of the node, without rights, binds the port of an engine: no client's request is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import requests
import yaml

from tests.fleet.node import FleetNode
from tests.operator.fleet.network import simultaneous
from tests.real.service import GATEWAY, Service, unused, wait_for

pytestmark = pytest.mark.fleet

USER = 4242
TRIES = 20
PROXY = """import http.server, sys
class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    do_POST = do_GET
    def log_message(self, *_):
        with open("/tmp/taken-requests", "a") as file:
            file.write(self.requestline + "\\n")
http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Proxy).serve_forever()
"""
"""Answers everything, and notes what it was asked."""


@contextmanager
def taken(node: FleetNode, port: int) -> Iterator[None]:
    """A program of a user of the node that keeps trying to have a port."""
    node.exec("sh", "-c", "cat >/tmp/taken.py && rm -f /tmp/taken-requests", stdin=PROXY.encode())
    user = f"setpriv --reuid={USER} --regid={USER} --clear-groups --no-new-privs"
    retried = f"while true; do {user} python3 /tmp/taken.py {port}; sleep 0.1; done"
    node.exec("sh", "-c", f"setsid sh -c '{retried}' >/dev/null 2>&1 & echo $! >/tmp/taken.pid")
    try:
        yield
    finally:
        node.exec("sh", "-c", "pkill --signal KILL --session $(cat /tmp/taken.pid)")


def requests_taken(node: FleetNode) -> str:
    """The requests that the user's program has received."""
    return node.exec("sh", "-c", "cat /tmp/taken-requests 2>/dev/null || true")


def test_whoever_binds_the_port_of_an_engine_first_gets_no_request_and_no_traffic(service: Service) -> None:
    """Before the plan, which refuses; then during the bake, once the engine has ended."""
    serving = service.status()["live"]["release"]
    [old] = service.running()
    port = old.port + (1 if old.slot == "blue" else -1)
    node = service.nodes.node("node-1" if old.node == "node-2" else "node-2")

    with taken(node, port):
        wait_for(lambda: f":{port} " in node.exec("ss", "-ltn"))
        refused = service.deploy("--node", node.name, name=unused())
        assert (refused.code, f"port {port} is taken by a program" in refused.err) == (5, True), refused.err

    waits = service.deploy("--node", node.name, "--no-promote", name=unused())
    assert waits.code == 0, waits.err
    new = next(container for container in service.running() if container.release == waits.json["release"])
    with taken(service.nodes.node(new.node), new.port):
        service.nodes.node(new.node).exec("docker", "kill", new.name)
        wait_for(lambda: service.journal().swap is None)
        assert requests.get(f"{service.url}/v1/models", timeout=60).status_code == 200
        assert requests_taken(service.nodes.node(new.node)) == ""

    assert service.status()["live"]["release"] == serving


@pytest.mark.matrix
def test_without_the_rules_of_the_kernel_the_guard_notices_whose_the_port_is(service: Service) -> None:
    """Another program has flushed them, and the guard has not renewed them yet."""
    [old] = service.running()
    serving = service.status()["live"]["release"]
    waits = service.deploy("--node", service.away, "--no-promote", name=unused())
    assert waits.code == 0, waits.err
    new = next(container for container in service.running() if container.release == waits.json["release"])
    node = service.nodes.node(new.node)
    with taken(node, new.port):
        node.exec("docker", "exec", "sparkops-guard", "nft", "delete", "table", "inet", "sparkops")
        node.exec("docker", "kill", new.name)
        wait_for(lambda: service.journal().swap is None)

    assert service.status()["live"]["release"] == serving
    assert old.name in {container.name for container in service.running()}
    events = service.cli("history", service.name).out
    assert f"{new.name} ended" in events


@contextmanager
def connecting_back(node: FleetNode) -> Iterator[None]:
    """A user of the node that has the port of the engine once it is free, and connects from it to who waits for it."""
    node.exec("sh", "-c", "cat >/tmp/attack.py && rm -f /tmp/tried", stdin=Path(simultaneous.__file__).read_bytes())
    retried = "while true; do python3 /tmp/attack.py attack >>/tmp/tried 2>/dev/null; sleep 0.1; done"
    node.exec("sh", "-c", f"setsid sh -c '{retried}' >/dev/null 2>&1 & echo $! >/tmp/attack.pid")
    try:
        yield
    finally:
        node.exec("sh", "-c", "pkill --signal KILL --session $(cat /tmp/attack.pid)")


def tried(node: FleetNode) -> int:
    """How often the attacker has called a client that waited."""
    return node.exec("sh", "-c", "cat /tmp/tried 2>/dev/null || true").split().count("tried")


@pytest.mark.matrix
def test_who_connects_back_to_the_gateway_from_the_port_of_an_engine_gets_no_request(
    stand_in: Service, tmp_path: Path
) -> None:
    """The engine is down, so that requests of the gateway wait for its port (RFC 9293 section 3.5)."""
    recipe = tmp_path / "attacked.yaml"
    words = {"description": "An engine that is down", "verified": "nothing"}
    own = {"name": "attacked", "extends": "stand-in", "service": "attacked", "serve": {"port": simultaneous.PORT - 1}}
    recipe.write_text(yaml.safe_dump({**own, **words}))
    service = replace(stand_in, recipe=str(recipe), name="attacked", port=simultaneous.PORT - 1)
    assert service.cli("build", service.recipe, "--node", GATEWAY).code == 0
    node = service.nodes.node(GATEWAY)
    try:
        engine = service.anew("--node", GATEWAY, name="down")
        assert engine.port == simultaneous.PORT
        with service.load(rate=10, streams=1) as load, connecting_back(node):
            load.wait_for(20)
            node.exec("docker", "kill", engine.name)
            wait_for(lambda: tried(node) >= TRIES)
        report, count = load.report(), tried(node)
        print(f"\nsimultaneous open: {count} calls of the attacker; {report}")
        assert {reason for reason in report.failures if "wrong" in reason} == set(), report.examples
        assert set(report.releases) <= {engine.release}
    finally:
        service.sweep()
