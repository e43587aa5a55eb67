"""init, trust, schema."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest
import yaml

from sparkops.config import inventory
from sparkops.nodes.host_keys import fingerprint
from tests.cli.conftest import Sparkops
from tests.nodes.ssh_server import SshServer, listening

DOCS = Path(__file__).parents[2] / "docs"


def test_init_writes_an_inventory_of_this_machine(sparkops: Sparkops) -> None:
    ran = sparkops("init")

    assert (ran.code, ran.out, ran.err) == (0, "", "wrote inventory.yaml\n  next: sparkops status\n")
    assert {name: node.transport for name, node in inventory.load(Path("inventory.yaml")).nodes.items()} == {
        "here": "local"
    }


def test_init_writes_an_inventory_of_the_given_addresses(sparkops: Sparkops) -> None:
    ran = sparkops("-i", "fleet.yaml", "init", "--user", "nvidia", "192.168.1.11", "spark.lan")

    assert (ran.code, ran.err) == (0, "wrote fleet.yaml\n  next: sparkops trust\n")
    fleet = inventory.load(Path("fleet.yaml"))
    assert {name: (node.address, node.user, node.gpu) for name, node in fleet.nodes.items()} == {
        "spark-1": ("192.168.1.11", "nvidia", "runtime"),
        "spark-2": ("spark.lan", "nvidia", "runtime"),
    }


def test_init_never_overwrites(sparkops: Sparkops) -> None:
    Path("inventory.yaml").write_text("mine")

    ran = sparkops("init")

    assert (ran.code, ran.err) == (
        2,
        "sparkops: inventory.yaml is there already\n  next: Edit it, or name another with --inventory.\n",
    )
    assert Path("inventory.yaml").read_text() == "mine"


def test_init_with_an_address_that_is_none_leaves_no_file(sparkops: Sparkops) -> None:
    ran = sparkops("init", "a b")

    assert ran.code == 2
    assert "nodes.spark-1.address: expected a host name or an IP address, got 'a b'" in ran.err
    assert not Path("inventory.yaml").exists()


def test_init_says_why_it_cannot_write(sparkops: Sparkops) -> None:
    ran = sparkops("-i", "/proc/nowhere/inventory.yaml", "init")

    assert (ran.code, ran.err) == (
        2,
        "sparkops: /proc/nowhere/inventory.yaml cannot be written: No such file or directory\n",
    )


@pytest.mark.parametrize("of", ["recipe", "inventory", "status"])
def test_a_schema_is_json_schema_and_its_reference_is_in_docs(sparkops: Sparkops, of: str) -> None:
    schema = sparkops("schema", of).json

    assert (schema["title"], schema["type"]) == (of.capitalize(), "object")
    assert sparkops("schema", of, "--markdown").out == (DOCS / f"{of}.md").read_text()


def test_a_schema_goes_to_a_file(sparkops: Sparkops) -> None:
    shown = sparkops("schema", "recipe").out

    ran = sparkops("schema", "recipe", "-o", "made/recipe.json")

    assert (ran.code, ran.out, Path("made/recipe.json").read_text()) == (0, "", shown)


def test_an_unknown_schema_names_those_there_are(sparkops: Sparkops) -> None:
    ran = sparkops("schema", "model")

    assert (ran.code, ran.err) == (
        2,
        "sparkops: there is no schema of model\n  next: One of: recipe, inventory, status\n",
    )


def write_inventory(server: SshServer) -> None:
    nodes = {"n1": {"address": "127.0.0.1", "port": server.port}, "here": {"transport": "local"}}
    Path("inventory.yaml").write_text(yaml.safe_dump({"nodes": nodes}))


def test_trust_pins_the_key_that_a_node_shows(sparkops: Sparkops) -> None:
    key = paramiko.ECDSAKey.generate()
    with listening(key, key) as server:
        write_inventory(server)
        first, second = sparkops("trust", "--yes"), sparkops("trust")

    assert (first.code, first.err) == (0, f"n1: pinned in {Path('known_hosts').absolute()}\n")
    assert (second.code, second.err) == (0, f"n1: {fingerprint(key)} is trusted already\n")
    assert Path("known_hosts").read_text() == f"n1 {key.get_name()} {key.get_base64()}\n"


def test_trust_needs_somebody_who_says_yes(sparkops: Sparkops) -> None:
    key = paramiko.ECDSAKey.generate()
    with listening(key, key) as server:
        write_inventory(server)
        ran = sparkops("trust")

    question = f"n1: {key.get_name()} {fingerprint(key)}. Trust it?"
    assert (ran.code, ran.err) == (2, f"{question} Nobody is there to answer: give --yes.\n")
    assert not Path("known_hosts").exists()


def test_trust_replaces_a_key_only_when_told(sparkops: Sparkops) -> None:
    old, new = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
    with listening(new, new) as server:
        write_inventory(server)
        Path("known_hosts").write_text(f"n1 {old.get_name()} {old.get_base64()}\n")
        refused, replaced = sparkops("trust", "--yes", "n1"), sparkops("trust", "--yes", "--replace", "n1")

    assert refused.code == 5
    assert "n1: its host key has changed to" in refused.err
    assert replaced.code == 0
    assert Path("known_hosts").read_text() == f"n1 {new.get_name()} {new.get_base64()}\n"


def test_trust_pins_a_key_of_the_given_fingerprint_without_asking(sparkops: Sparkops) -> None:
    key = paramiko.ECDSAKey.generate()
    with listening(key, key) as server:
        write_inventory(server)
        first, second = (sparkops("trust", "--fingerprint", f"n1={fingerprint(key)}") for _ in range(2))

    assert (first.code, first.err) == (0, f"n1: pinned in {Path('known_hosts').absolute()}\n")
    assert (second.code, second.err) == (0, f"n1: {fingerprint(key)} is trusted already\n")
    assert Path("known_hosts").read_text() == f"n1 {key.get_name()} {key.get_base64()}\n"


@pytest.mark.parametrize("pinned", [False, True])
def test_trust_refuses_a_key_of_another_fingerprint(sparkops: Sparkops, pinned: bool) -> None:
    key, other = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
    before = f"n1 {key.get_name()} {key.get_base64()}\n" if pinned else ""
    Path("known_hosts").write_text(before)
    with listening(key, key) as server:
        write_inventory(server)
        ran = sparkops("trust", "--yes", "--replace", "--fingerprint", f"n1={fingerprint(other)}")

    shown = f"ecdsa-sha2-nistp256 {fingerprint(key)}"
    assert (ran.code, ran.err) == (
        5,
        f"sparkops: n1: host key refused: it shows {shown}, expected {fingerprint(other)}\n"
        "  next: Compare on the node's own screen: ssh-keygen -lf /etc/ssh/ssh_host_ecdsa_key.pub\n",
    )
    assert Path("known_hosts").read_text() == before


def test_a_fingerprint_replaces_no_other_key_by_itself(sparkops: Sparkops) -> None:
    old, new = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
    Path("known_hosts").write_text(f"n1 {old.get_name()} {old.get_base64()}\n")
    with listening(new, new) as server:
        write_inventory(server)
        ran = sparkops("trust", "--fingerprint", f"n1={fingerprint(new)}")

    assert (ran.code, "n1: its host key has changed to" in ran.err) == (5, True)


@pytest.mark.parametrize("given", ["n1", "n1=SHA256:short", "=SHA256:" + 43 * "A", "n1=MD5:00"])
def test_a_malformed_fingerprint_is_refused(sparkops: Sparkops, given: str) -> None:
    Path("inventory.yaml").write_text("nodes: {n1: {address: 127.0.0.1}}\n")

    ran = sparkops("trust", "--fingerprint", given)

    assert (ran.code, ran.err) == (
        2,
        "sparkops: --fingerprint: expected NODE=SHA256: and 43 characters of base64, as ssh-keygen -l prints them, "
        f"got {given!r}\n",
    )


def test_a_fingerprint_of_an_unknown_node_is_refused(sparkops: Sparkops) -> None:
    Path("inventory.yaml").write_text("nodes: {n1: {address: 127.0.0.1}}\n")

    ran = sparkops("trust", "--fingerprint", "n9=SHA256:" + 43 * "A")

    assert (ran.code, "there is no node 'n9'" in ran.err) == (2, True)


def test_trust_never_pins_a_revoked_key(sparkops: Sparkops) -> None:
    key = paramiko.ECDSAKey.generate()
    revoked = f"@revoked * {key.get_name()} {key.get_base64()}\n"
    Path("known_hosts").write_text(revoked)
    with listening(key, key) as server:
        write_inventory(server)
        ran = sparkops("trust", "--yes", "--replace", "--fingerprint", f"n1={fingerprint(key)}")

    assert (ran.code, ran.err.splitlines()[0]) == (
        5,
        f"sparkops: n1: host key refused: {key.get_name()} {fingerprint(key)} is marked @revoked",
    )
    assert Path("known_hosts").read_text() == revoked
