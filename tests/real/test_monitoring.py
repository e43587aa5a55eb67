"""Figures for Prometheus, and the configuration of a client, from real nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml

from sparkops.config import inventory
from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.operator.status.monitoring.test_prometheus import firing, health, prometheus, until
from tests.real.program import Cli
from tests.real.service import GATEWAY, Service, wait_for, write_inventory

pytestmark = pytest.mark.fleet

KEY, API_KEY = "figures-5f0d3c1b9a7e24680", "sk-clients-5f0d3c1b9a7e24680"
PORT, METRICS = 10845, 8405


def secret(directory: Path, name: str, text: str) -> str:
    file = directory / name
    file.touch(mode=0o600)
    file.write_text(f"{text}\n")
    return str(file)


def cli(nodes: RealFleet, directory: Path, *, monitored: bool) -> Cli:
    gateway = {"node": GATEWAY, "api_keys": [secret(directory, "client.key", API_KEY)]}
    changes = {"gateway": gateway, **({"monitoring": {"key": secret(directory, "m.key", KEY)}} if monitored else {})}
    file = write_inventory(nodes, directory, lambda data: data.update(changes))
    return Cli(file, directory / "state", env={"PYTHONPATH": str(CHECKOUT)})


@pytest.fixture
def monitored(front: Cli, nodes: RealFleet, tmp_path: Path) -> Iterator[Service]:
    """The stand-in on node-2, behind a gateway that wants a key, in a fleet with `monitoring`."""
    service = Service(cli(nodes, tmp_path, monitored=True), nodes)
    service.sweep()
    built = service.cli("build", "stand-in")
    assert built.code == 0, built.err
    yield service
    service.sweep()
    assert Service(front, nodes).deploy("--node", "node-2", name="first").code == 0  # takes the key away


def scraped(address: str, port: int, key: str = KEY, path: str = "/metrics") -> tuple[int, str]:
    with requests.Session() as client:
        client.trust_env = False
        reply = client.get(f"http://{address}:{port}{path}", headers={"Authorization": f"Bearer {key}"}, timeout=30)
        return reply.status_code, reply.text


@pytest.mark.matrix
def test_guards_and_gateway_serve_figures_with_the_key_until_it_is_removed(
    monitored: Service, nodes: RealFleet, tmp_path: Path
) -> None:
    addresses = {node.name: node.address for node in nodes.nodes}
    ran = monitored.deploy("--node", "node-2", name="first")
    assert ran.code == 0, ran.err
    assert "clients: sparkops status --client NAME" in ran.err

    labels = f'rank="0",release="{ran.json["release"]}",service="stand-in",slot="blue"'
    healthy = f"sparkops_engine_healthy{{{labels}}} 1.0"
    wait_for(lambda: healthy in scraped(addresses["node-2"], PORT)[1], pause_s=1.0)  # a guard samples every 15 s
    (leader, of_leader), (follower, of_follower) = (scraped(address, PORT) for address in addresses.values())
    assert (leader, follower) == (200, 200)
    assert "sparkops_guard_leads 1.0" in of_leader
    assert 'sparkops_service_answers{service="stand-in"} 1.0' in of_leader
    assert 'sparkops_peer_reachable{peer="node-2"} 1.0' in of_leader
    assert "sparkops_guard_leads 0.0" in of_follower
    assert f"sparkops_engine_generated_tokens_total{{{labels}}}" in of_follower
    for path, name in (("/metrics", "haproxy_backend_http_responses_total"), ("/metrics/waiting", "sparkops_gateway_")):
        status, page = scraped(addresses[GATEWAY], METRICS, path=path)
        assert (status, name in page) == (200, True)
    for address, port in [*((address, PORT) for address in addresses.values()), (addresses[GATEWAY], METRICS)]:
        assert scraped(address, port, API_KEY)[0] == 401
    local = (
        "python3",
        "-c",
        f"from urllib.request import urlopen as o; print(o('http://127.0.0.1:{METRICS}/metrics').status)",
    )
    assert nodes.node(GATEWAY).exec(*local) == "200"

    assert_a_client_gets_an_answer(monitored, tmp_path)
    written = tmp_path / "written"
    assert monitored.cli("monitoring", "-o", written).code == 0
    jobs = yaml.safe_load((written / "prometheus.yml").read_text())["scrape_configs"]
    targets = [target for job in jobs for entry in job["static_configs"] for target in entry["targets"]]
    assert {scraped(*target.rsplit(":", 1))[0] for target in targets} == {200}

    a_real_prometheus_sees_the_end_of_a_guard(monitored, nodes, tmp_path)
    Service(cli(nodes, tmp_path, monitored=False), nodes).deploy("--node", "node-2", name="first")
    for address, port in [*((address, PORT) for address in addresses.values()), (addresses[GATEWAY], METRICS)]:
        with pytest.raises(requests.ConnectionError):
            scraped(address, port)


def a_real_prometheus_sees_the_end_of_a_guard(service: Service, nodes: RealFleet, directory: Path) -> None:
    """Every target is up; a guard that is stopped fires its alerts, and serves again once it has started."""
    guard, away = ("docker", "stop", "sparkops-guard"), {"SparkopsGuardDown", "SparkopsGuardNotReached"}
    up = {("sparkops-guard", node.name, "up") for node in nodes.nodes}
    up |= {(job, GATEWAY, "up") for job in ("sparkops-gateway", "sparkops-gateway-waiting")}
    with prometheus(inventory.load(service.cli.inventory), directory / "written", directory / "debian") as api:
        until(lambda: health(api), up)
        until(lambda: firing(api) & away, set())
        nodes.node("node-2").exec(*guard)
        until(lambda: firing(api) & away, away)
        nodes.node("node-2").exec("docker", "start", "sparkops-guard")
        until(lambda: firing(api) & away, set())
        until(lambda: health(api), up)


def assert_a_client_gets_an_answer(service: Service, directory: Path) -> None:
    """curl with the printed configuration, through the gateway with its key."""
    printed = service.cli("status", "--client", "curl")
    facts = service.cli("status", "--client", "curl", "--json").json
    file = directory / "client.sh"
    file.write_text(printed.out)
    environment = {"PATH": "/usr/bin:/bin", "SPARKOPS_API_KEY": Path(facts["api_key_file"]).read_text().strip()}

    answer = subprocess.run(["sh", "-e", str(file)], env=environment, check=True, capture_output=True, text=True)

    assert API_KEY not in printed.out + json.dumps(facts)
    [row] = facts["services"]
    assert (row["model"], row["url"]) == ("stand-in", f"{service.url}/v1")
    assert row["context_tokens"] > 0
    assert "Paris" in answer.stdout
