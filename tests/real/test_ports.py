"""Who reaches the port of an engine behind the gateway: the gateway, and nobody else on the network."""

from __future__ import annotations

import socket

import pytest
import requests

from tests.real.service import GATEWAY, Service, wait_for

pytestmark = pytest.mark.fleet

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)"


def reached_from_here(service: Service, node: str, port: int) -> bool:
    try:
        socket.create_connection((service.nodes.node(node).address, port), timeout=60).close()
    except OSError:
        return False
    return True


def reached_from(service: Service, source: str, node: str, port: int) -> bool:
    """Whether a program on one node connects to a port of another."""
    script = f"python3 -c '{CONNECT}' {service.nodes.node(node).address} {port} 2>&1 && echo open || true"
    return service.nodes.node(source).exec("sh", "-c", script).endswith("open")


def test_only_the_gateway_reaches_an_engine_on_another_node(service: Service) -> None:
    (engine,) = service.running()

    assert engine.node == "node-2"
    assert requests.get(f"{service.url}/v1/models", timeout=60).status_code == 200
    assert not reached_from_here(service, "node-2", engine.port)
    assert reached_from(service, GATEWAY, "node-2", engine.port)


def test_an_engine_beside_the_gateway_listens_on_loopback_only(service: Service) -> None:
    assert service.deploy("--node", GATEWAY, name="second").code == 0
    engine = next(container for container in service.running() if container.node == GATEWAY)

    assert requests.get(f"{service.url}/v1/models", timeout=60).status_code == 200
    assert not reached_from_here(service, GATEWAY, engine.port)
    assert not reached_from(service, "node-2", GATEWAY, engine.port)


@pytest.mark.matrix
def test_rules_that_were_removed_return_and_leave_with_their_containers(service: Service) -> None:
    (engine,) = service.running()
    node = service.nodes.node("node-2")
    nft = ("docker", "exec", "sparkops-guard", "nft")

    def opened() -> bool:
        """Whether the port is reached without the rules, which the guard may bring back first."""
        node.exec(*nft, "add table inet sparkops; delete table inet sparkops")
        return reached_from_here(service, "node-2", engine.port)

    wait_for(opened)
    wait_for(lambda: not reached_from_here(service, "node-2", engine.port))
    service.sweep()
    wait_for(lambda: f"dport {engine.port} " not in node.exec(*nft, "list", "ruleset"))
