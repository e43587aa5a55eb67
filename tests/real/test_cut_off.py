"""A client that does not reach a node which the fleet reaches, or whose inventory contradicts the fleet."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkops.config import inventory
from sparkops.operator.fleet.host_keys import rename
from tests.real.program import Cli
from tests.real.service import GATEWAY, Service, unused, write_inventory

pytestmark = pytest.mark.fleet

AWAY = "node-2"
OTHER_NAMES = {GATEWAY: "spark-2", AWAY: "spark-1"}
Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def laptop(service: Service, tmp_path: Path) -> Callable[[Change], Cli]:
    """sparkops with another inventory than the fleet's, while a release serves on node-2."""

    def make(change: Change) -> Cli:
        def with_gateway(data: dict[str, Any]) -> None:
            data["gateway"] = {"node": GATEWAY}
            change(data)

        return Cli(write_inventory(service.nodes, tmp_path, with_gateway), tmp_path / "state")

    return make


def cut(*names: str) -> Change:
    """The inventory has a wrong port of SSH for these nodes; guards still reach them."""

    def change(data: dict[str, Any]) -> None:
        for name in names:
            data["nodes"][name]["port"] = 9

    return change


def row(client: Cli, service: Service) -> Any:
    """The row of the service, as this client sees it."""
    (shown,) = client("status", service.name, "--json").json["services"]
    return shown


def settings(service: Service, name: str) -> list[str]:
    return [word for word in service.argv(name=name)[2:] if word not in ("--apply-gateway", "--json")]


def test_a_client_without_the_engines_node_shows_what_the_leader_reports(
    laptop: Callable[[Change], Cli], service: Service
) -> None:
    client = laptop(cut(AWAY))
    with service.untouched():
        status, text, doctor = client("status", "--json"), client("status", service.name), client("doctor")
        plan = client("plan", "stand-in", "--json", *settings(service, unused()))
        same = client(*service.argv(name="first"))

    assert status.code == 1
    assert [drift for drift in status.json["drift"] if drift["service"] == service.name] == []
    shown = row(client, service)
    assert (shown["state"], shown["replicas"][0]["ranks"][0]["source"]) == ("healthy", "reported")
    assert "node-2 cannot be read from here; node-1 reports: it answers through the gateway" in text.out
    assert "stopped" not in text.out
    assert "rollback" not in text.out
    assert "unknown of node-2: services and guards" in doctor.out
    assert (plan.code, plan.json["mode"]) == (0, "across"), plan.err
    assert (same.code, same.json["result"]) == (0, "nothing"), same.err


def test_a_client_without_the_gateways_node_shows_the_engine_and_changes_nothing(
    laptop: Callable[[Change], Cli], service: Service
) -> None:
    client = laptop(cut(GATEWAY))
    with service.untouched():
        status, text, doctor = client("status", "--json"), client("status", service.name), client("doctor")
        verbs = [
            client("plan", "stand-in", *settings(service, unused())),
            client(*service.argv(name=unused())),
            client("rollback", service.name),
        ]

    assert (status.code, status.json["gateway"]["state"]) == (1, "unreachable")
    assert (row(client, service)["state"], status.json["drift"]) == ("healthy", [])
    assert "stopped" not in text.out
    assert "unknown of node-1: services and guards" in doctor.out
    assert [ran.code for ran in verbs] == [5, 5, 5]
    assert all("node-1: cannot connect to" in ran.err for ran in verbs)


def test_a_rollback_to_a_node_that_this_client_does_not_reach_changes_nothing(
    laptop: Callable[[Change], Cli], service: Service
) -> None:
    client = laptop(cut(AWAY))
    moved = service.deploy("--node", GATEWAY, name=unused())
    assert moved.code == 0, moved.err

    with service.untouched():
        ran = client("rollback", service.name)

    assert ran.code in (1, 5)
    assert AWAY in ran.err
    assert "stopped" not in ran.err


def test_a_wrong_node_of_the_gateway_is_said_first_and_nothing_that_serves_is_to_be_stopped(
    laptop: Callable[[Change], Cli], service: Service
) -> None:
    client = laptop(lambda data: data.update(gateway={"node": AWAY}))
    wrong = "gateway.node is node-2, expected node-1"
    with service.untouched():
        status, doctor = client("status"), client("doctor")
        verbs = [
            client("plan", "stand-in", *settings(service, unused())),
            client(*service.argv(name=unused())),
            client("rollback", service.name),
            client("node", "drain", AWAY, "--dry-run"),
        ]

    first, step, *_ = status.out.splitlines()
    assert status.code == doctor.code == 1
    assert first.startswith("drift GATEWAY_NODE: node-1 leads ")
    assert first.endswith(wrong)
    assert step.startswith("  next: Set `gateway.node: node-1` in the inventory")
    assert f"{service.name}  healthy" in status.out
    assert "problem GATEWAY_NODE: " in doctor.out
    assert [ran.code for ran in verbs] == [5, 5, 5, 5]
    assert all(wrong in ran.err for ran in verbs)
    assert "docker stop" not in "".join(ran.out + ran.err for ran in (status, doctor, *verbs))


def test_names_that_are_not_the_fleets_are_the_finding_and_no_container_is_an_orphan(
    laptop: Callable[[Change], Cli], service: Service, tmp_path: Path
) -> None:
    pins = tmp_path / "known_hosts"
    shutil.copy(service.nodes.home / "known_hosts", pins)
    rename(pins, OTHER_NAMES)

    def change(data: dict[str, Any]) -> None:
        data["nodes"] = {OTHER_NAMES[name]: config for name, config in data["nodes"].items()}
        data.update(known_hosts=str(pins), gateway={"node": OTHER_NAMES[GATEWAY]})

    client = laptop(change)
    with service.untouched():
        status, plan = client("status", "--json"), client("plan", "stand-in", *settings(service, unused()))

    codes = {(drift["code"], drift["node"], drift["detail"]) for drift in status.json["drift"]}
    names = {("NODE_NAME", name, f"the fleet calls this node {node}") for node, name in OTHER_NAMES.items()}
    assert (status.code, codes & names) == (1, names)
    assert "ORPHAN" not in {code for code, *_ in codes}
    assert row(client, service)["state"] == "healthy"
    assert plan.code == 5
    assert "the fleet calls this node" in plan.err


def test_init_takes_names_and_gateway_from_the_guards(service: Service, tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(f"Host *\n  IdentityFile {service.nodes.ssh_key}\n")
    client = Cli(tmp_path / "inventory.yaml", tmp_path)
    addresses = {name: service.nodes.node(name).address for name in (AWAY, GATEWAY)}

    ran = client("init", *(f"ops@{address}" for address in addresses.values()), "--yes")

    fleet = inventory.load(client.inventory)
    assert {name: node.address for name, node in fleet.nodes.items()} == addresses, ran.err
    assert fleet.gateway
    assert fleet.gateway.node == GATEWAY
    assert row(client, service)["state"] == "healthy"
    assert client("status").code == 0
