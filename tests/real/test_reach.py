"""Nodes that cannot be reached, or are not what they were: each gives one clear error and stays as it was."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import RECIPE, Cli

pytestmark = pytest.mark.fleet

ED25519_OF_ANOTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJa3Q1RHRBpzb3HCnHrtMcnSFQSOBwPbBEXFzHYqiVDG"


def only_node_1(data: dict[str, Any]) -> None:
    data["nodes"] = {"node-1": data["nodes"]["node-1"]}


def test_an_unknown_host_key_is_refused_until_it_is_trusted(with_inventory: Callable[..., Cli], tmp_path: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        only_node_1(data)
        data["known_hosts"] = "known_hosts"

    sparkops = with_inventory(change)
    refused = sparkops("build", RECIPE)
    assert (refused.code, refused.out) == (5, "")
    assert "node-1: its host key is not pinned (ssh-ed25519 SHA256:" in refused.err
    assert "next: Compare the fingerprint on the node's own screen, then: sparkops node trust node-1" in refused.err
    assert not (tmp_path / "known_hosts").exists()
    assert sparkops("node", "trust").code == 2  # nobody is there to answer
    assert sparkops("node", "trust", "--yes").code == 0
    assert sparkops("status").code == 0


def test_a_changed_host_key_is_refused(with_inventory: Callable[..., Cli], tmp_path: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        only_node_1(data)
        data["known_hosts"] = "known_hosts"

    (tmp_path / "known_hosts").write_text(f"node-1 {ED25519_OF_ANOTHER}\n")
    sparkops = with_inventory(change)
    refused = sparkops("build", RECIPE)
    assert refused.code == 5
    assert "node-1: its host key has changed to ssh-ed25519 SHA256:" in refused.err
    assert "next: If the node was reinstalled: sparkops node trust --replace node-1" in refused.err
    assert sparkops("node", "trust", "--yes").code == 5
    assert sparkops("node", "trust", "--yes", "--replace").code == 0
    assert sparkops("status").code == 0


def test_a_wrong_ssh_key_is_named(with_inventory: Callable[..., Cli], tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)

    def change(data: dict[str, Any]) -> None:
        data["defaults"]["ssh_key"] = str(tmp_path / "other")

    refused = with_inventory(change)("build", RECIPE)
    assert refused.code == 5
    for name in ("node-1", "node-2"):
        assert f"{name}: cannot connect to ops@10." in refused.err
    assert refused.err.count("the node refused the key") == 2


def test_a_missing_key_file_is_named(with_inventory: Callable[..., Cli]) -> None:
    refused = with_inventory(lambda data: data["defaults"].update(ssh_key="/nowhere/key"))("status")
    assert refused.code == 1
    assert "key file not found: /nowhere/key" in refused.out


def test_a_recipe_that_asks_for_an_absent_node_is_bad_input(sparkops: Cli, variant: Callable[..., Path]) -> None:
    file = variant({"image:\n": "nodes: [node-9]\nimage:\n"})
    refused = sparkops("deploy", file)
    assert refused.code == 2
    assert "tiny-qwen3-cpu.yaml:5: nodes[0]: unknown node 'node-9', expected one of: node-1, node-2" in refused.err


def test_an_absent_node_on_the_command_line_is_bad_input(sparkops: Cli) -> None:
    refused = sparkops("build", RECIPE, "--node", "node-9")
    assert refused.code == 2
    assert "unknown node 'node-9'" in refused.err


def test_a_node_that_is_cut_off_is_a_row_without_figures(nodes: RealFleet, sparkops: Cli) -> None:
    nodes.node("node-2").cut()
    try:
        ran = sparkops("status", "--json")
    finally:
        nodes.node("node-2").heal()
    assert ran.code == 1
    rows = {row["name"]: row for row in ran.json["nodes"]}
    assert rows["node-1"]["reachable"] is True
    assert rows["node-2"]["reachable"] is False
    assert rows["node-2"]["memory"] is None
    assert rows["node-2"]["error"].endswith("no answer")
    assert f"node-2: {rows['node-2']['error']}" in ran.err


def test_a_dead_engine_is_a_row_with_the_reason(nodes: RealFleet, sparkops: Cli) -> None:
    nodes.node("node-2").kill_engine()
    try:
        ran = sparkops("status", "--json")
        build = sparkops("build", RECIPE, "--node", "node-2")
    finally:
        nodes.node("node-2").start_engine()
    assert ran.code == 1
    assert "Docker does not answer: " in ran.json["nodes"][1]["error"]
    assert build.code == 5
    assert "next: Start it: sudo systemctl start docker" in build.err


def test_a_node_without_docker_is_refused(nodes: RealFleet, tmp_path: Path) -> None:
    bare = nodes.add("bare", docker=False)
    try:
        sparkops = Cli(nodes.write_inventory(tmp_path / "inventory.yaml", [bare]), tmp_path)
        build, status = sparkops("build", RECIPE), sparkops("status", "--json")
    finally:
        nodes.remove("bare")
    assert build.code == 5
    assert "bare: Docker is not installed" in build.err
    assert status.code == 1
    assert status.json["nodes"][0]["error"] == "Docker is not installed"


def test_a_user_who_may_not_use_docker_is_told_so(nodes: RealFleet, with_inventory: Callable[..., Cli]) -> None:
    node = nodes.node("node-1")
    key = nodes.ssh_key.with_suffix(".pub").read_bytes()
    user = "id guest || useradd -m -p '*' guest"
    script = f"{user}; install -d -m 700 -o guest ~guest/.ssh; cat > ~guest/.ssh/authorized_keys"
    node.exec("sh", "-c", script, stdin=key)

    def change(data: dict[str, Any]) -> None:
        only_node_1(data)
        data["defaults"]["user"] = "guest"

    refused = with_inventory(change)("build", RECIPE)
    assert refused.code == 5
    assert "node-1: the user has no access to Docker" in refused.err
    assert "group `docker`" in refused.err


def test_a_node_is_reached_through_another_with_both_keys_checked(
    nodes: RealFleet, with_inventory: Callable[..., Cli]
) -> None:
    hidden = nodes.node("node-2")
    gateway = os.environ.get("FLEET_GATEWAY") or hidden.address.rsplit(".", 1)[0] + ".1"
    hidden.exec("iptables", "-w", "-I", "INPUT", "-s", gateway, "-j", "DROP")
    try:
        assert with_inventory(lambda _: None)("status").code == 1
        through = with_inventory(lambda data: data["nodes"]["node-2"].update(jump="node-1"))("status", "--json")
    finally:
        hidden.exec("iptables", "-w", "-D", "INPUT", "-s", gateway, "-j", "DROP")
    assert through.code == 0, through.err
    assert [row["reachable"] for row in through.json["nodes"]] == [True, True]
