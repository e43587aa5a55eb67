"""A container on a third node attacks a pair: nothing between the ranks answers to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.shell import FleetError
from tests.real import pairs
from tests.real.program import Cli
from tests.real.service import Service, write_inventory

pytestmark = [pytest.mark.vllm, pytest.mark.matrix]  # it needs a third node

HTTP_PORT, MEETING_PORT = pairs.PORT + 1, pairs.PORT + 3
ATTACK_S = 90
LISTENING = (
    'awk \'$4 == "0A" && $2 !~ /0100007F:/ {print substr($2, index($2, ":") + 1)}\' /proc/net/tcp /proc/net/tcp6'
)
CONNECT = """import socket, sys
for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), 2).close()
    except OSError:
        continue
    print(port)
"""
RAY_CLIENT = """import ray, sys
ray.init(sys.argv[1])
print(ray.get(ray.remote(lambda: __import__("os").popen("id").read()).remote()))
"""


@pytest.fixture(scope="module", params=["ray", "mp"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A pair on node-1 and node-2, whose image node-3 has as well."""
    nodes = Fleet.up(3)
    home = tmp_path_factory.mktemp("doors")
    cli = Cli(write_inventory(nodes, home, pairs.fabric), home)
    pairs.prepare(cli, nodes)
    service = pairs.service(cli, nodes, **{"serve.executor": request.param})
    deployed = service.deploy(*pairs.on(pairs.ONE))
    assert deployed.code == 0, deployed.err
    yield service
    service.sweep()


def image(service: Service) -> str:
    return service.nodes.node("node-3").exec("docker", "images", "--quiet", f"sparkops/{pairs.RECIPE}").split()[0]


def attack(service: Service, *argv: str) -> str:
    """Run Python with `argv` in a container of the pair's image on node-3, at most ATTACK_S seconds.

    A Ray client that reaches nothing tries for many minutes.
    """
    options = ("--rm", "--network=host", "--env=RAY_AUTH_MODE=disabled", "--entrypoint=timeout")
    words = (f"{ATTACK_S}", "python", *argv)
    return service.nodes.node("node-3").exec("docker", "run", *options, image(service), *words)


@pytest.mark.parametrize("name", pairs.ONE)
def test_no_port_between_ranks_answers_to_another_node(pair: Service, name: str) -> None:
    node = pair.nodes.node(name)
    low, high = map(int, node.exec("cat", "/proc/sys/net/ipv4/ip_local_port_range").split())
    ports = {int(port, 16) for port in node.exec("sh", "-c", LISTENING).split()}
    between = sorted(port for port in ports if low <= port <= high or port == MEETING_PORT)
    assert between, ports

    reached = attack(pair, "-c", CONNECT, node.address, *map(str, between))

    assert reached.split() == []


def test_the_ray_client_server_does_not_listen(pair: Service) -> None:
    listening = pair.nodes.node("node-1").exec("sh", "-c", LISTENING).split()

    assert f"{10001:04X}" not in listening


@pytest.mark.parametrize("address", ["ray://{}:10001", "{}:" + str(MEETING_PORT)])
def test_ray_runs_nothing_for_a_client_without_the_token(pair: Service, address: str) -> None:
    with pytest.raises(FleetError):
        attack(pair, "-c", RAY_CLIENT, address.format(pair.nodes.node("node-1").address))


def test_ray_refuses_a_client_on_a_rank_s_own_node_without_the_token(pair: Service) -> None:
    """The firewall lets it pass: Ray's own authentication is tried."""
    if pair.settings["serve.executor"] != "ray":
        pytest.skip("vLLM's own executor has no Ray")
    [container] = [each.name for each in pair.running() if each.rank == 0]
    environment = ("--env=RAY_AUTH_MODE=disabled", "--env=RAY_AUTH_TOKEN_PATH=")
    status = ("ray", "status", f"--address={pair.nodes.node('node-1').address}:{MEETING_PORT}")

    with pytest.raises(FleetError, match="InvalidAuthToken"):
        pair.nodes.node("node-1").exec("docker", "exec", *environment, container, *status)
