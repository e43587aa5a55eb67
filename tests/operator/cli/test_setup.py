"""init, trust, schema."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import paramiko
import pytest
import yaml

from sparkops.config import inventory
from sparkops.operator.fleet.host_keys import fingerprint_of
from tests.operator.cli.conftest import Sparkops
from tests.operator.fleet.ssh_server import SshServer, listening
from tests.places import ROOT

DOCS = ROOT / "docs"


@pytest.fixture
def refusing(docker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's Docker refuses everything, and there is no inventory yet."""
    monkeypatch.setenv("PATH", docker)
    (tmp_path / "inventory.yaml").unlink()


@pytest.mark.usefixtures("refusing")
def test_init_reads_this_machine_and_lets_doctor_look_at_it(sparkops: Sparkops) -> None:
    ran = sparkops("init")

    assert ran.code == 1  # as doctor ends
    assert "wrote inventory.yaml\nlocal: " in ran.err
    assert "GiB of memory" in ran.err
    assert "local          unreachable" in ran.out
    assert {name: node.transport for name, node in inventory.load(Path("inventory.yaml")).nodes.items()} == {
        "local": "local"
    }


@pytest.mark.usefixtures("refusing")
def test_the_gateway_that_init_suggests_for_this_machine_is_valid(sparkops: Sparkops) -> None:
    sparkops("init")
    file = Path("inventory.yaml")
    file.write_text(file.read_text().replace("# gateway:", "gateway:").replace("ADDRESS}", "192.168.1.11}"))

    gateway = inventory.load(file).gateway

    assert gateway
    assert (gateway.node, gateway.url(8000)) == ("local", "http://192.168.1.11:8000/v1")


def test_init_names_nodes_that_it_cannot_reach_and_writes_all_where_it_reaches_none(sparkops: Sparkops) -> None:
    ran = sparkops("-i", "fleet.yaml", "init", "--user", "nvidia", "127.0.0.2", "spark.invalid")

    assert ran.code == 1
    assert "spark-1: cannot connect to nvidia@127.0.0.2:22: " in ran.err
    assert "spark-2: cannot connect to nvidia@spark.invalid:22: unknown address" in ran.err
    assert "next: Correct the address of spark-2 in fleet.yaml." in ran.err
    assert ran.err.endswith(
        "not read: spark-1, spark-2; fleet.yaml lists all nodes, not checked\n"
        "  next: sparkops init --user nvidia 127.0.0.2 spark.invalid\n"
    )
    fleet = inventory.load(Path("fleet.yaml"))
    assert {name: (node.address, node.user, node.gpu) for name, node in fleet.nodes.items()} == {
        "spark-1": ("127.0.0.2", "nvidia", "runtime"),
        "spark-2": ("spark.invalid", "nvidia", "runtime"),
    }
    assert fleet.gateway
    assert fleet.gateway.url(8000) == "http://127.0.0.2:8000/v1"


def test_init_reads_a_user_before_an_address_as_ssh_does(sparkops: Sparkops) -> None:
    ran = sparkops("init", "--user", "nvidia", "ops@127.0.0.2", "127.0.0.3")

    assert "spark-1: cannot connect to ops@127.0.0.2:22: " in ran.err
    nodes = inventory.load(Path("inventory.yaml")).nodes.values()
    assert [(node.address, node.user) for node in nodes] == [("127.0.0.2", "ops"), ("127.0.0.3", "nvidia")]


def ssh_config(server: SshServer, key: paramiko.PKey) -> None:
    """Let ~/.ssh/config say how spark is reached."""
    directory = Path("~/.ssh").expanduser()
    directory.mkdir()
    key.write_private_key_file(str(directory / "key"))
    lines = ("Host spark", "HostName 127.0.0.1", f"Port {server.port}", "User ops", "IdentityFile ~/.ssh/key")
    (directory / "config").write_text("\n".join(lines))


@pytest.mark.usefixtures("refusing")
def test_init_reaches_a_node_as_the_users_own_ssh_and_leaves_out_another(sparkops: Sparkops) -> None:
    key = paramiko.ECDSAKey.generate()
    with listening(key, key) as server:
        ssh_config(server, key)
        port = server.port
        ran = sparkops("init", "127.0.0.2", "spark", "--yes")

    text = Path("inventory.yaml").read_text()
    fleet = inventory.load(Path("inventory.yaml"))
    assert ran.code == 1
    assert f"spark-2: pinned in {Path('known_hosts').absolute()}\n" in ran.err
    assert "  # spark-1: {address: 127.0.0.2" in text
    assert ran.err.endswith(
        "not read: spark-1; inventory.yaml has them as comments\n  next: sparkops init 127.0.0.2 spark\n"
    )
    assert "GiB of memory" in text
    assert list(fleet.nodes) == ["spark-2"]
    node = fleet.nodes["spark-2"]
    assert (node.address, node.port, node.user) == ("127.0.0.1", port, "ops")
    assert fleet.gateway
    assert fleet.gateway.node == "spark-2"
    assert "spark-2        unreachable" in ran.out  # doctor: the node's Docker refuses


@pytest.mark.usefixtures("refusing")
def test_init_connects_with_the_key_that_is_named_and_writes_it_down(sparkops: Sparkops) -> None:
    """~/.ssh/config names another key, and the inventory is in another directory than this one."""
    key = paramiko.ECDSAKey.generate()
    keys = Path("fleet/keys").absolute()
    keys.mkdir(parents=True)
    key.write_private_key_file(str(keys / "spark"))
    with listening(key, key) as server:
        ssh_config(server, paramiko.ECDSAKey.generate())
        ran = sparkops("-i", "fleet/inventory.yaml", "init", "spark", "--yes", "--ssh-key", "fleet/keys/spark")

    assert "GiB of memory" in ran.err
    assert "  ssh_key: keys/spark\n" in Path("fleet/inventory.yaml").read_text()
    fleet = inventory.load(Path("fleet/inventory.yaml"))
    assert fleet.resolve(fleet.nodes["spark-1"].ssh_key or "") == keys / "spark"


def private(file: Path) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(file))


def shared(file: Path) -> None:
    private(file)
    file.chmod(0o640)


def public(file: Path) -> None:
    key = paramiko.ECDSAKey.generate()
    file.write_text(f"{key.get_name()} {key.get_base64()} ops@laptop\n")


def encrypted(file: Path) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(file), password="secret")


CHOOSE = "Name a private key, such as ~/.ssh/id_ed25519."


@pytest.mark.parametrize(
    ("make", "problem", "step"),
    [
        (None, "key file not found: {file}", CHOOSE),
        (Path.mkdir, "key file not found: {file}", CHOOSE),
        (public, "{file} is a public key", "Name the private key, usually {file.parent}/id."),
        (shared, "{file} is readable by other users", "chmod 600 {file}"),
        (encrypted, "the key {file} has a passphrase", "Load it with ssh-add and name no key: those of the agent"),
        (Path.touch, "{file} cannot be read as a private key: ", CHOOSE),
    ],
    ids=["missing", "directory", "public", "shared", "passphrase", "empty"],
)
def test_a_key_that_ssh_would_not_take_is_refused_before_any_connection(
    sparkops: Sparkops, make: Callable[[Path], None] | None, problem: str, step: str
) -> None:
    file = Path("id.pub").absolute()
    if make:
        make(file)

    ran = sparkops("-i", "new.yaml", "init", "spark.invalid", "--ssh-key", "id.pub")

    assert ran.code == 2
    assert f"--ssh-key: {problem.format(file=file)}" in ran.err
    assert f"next: {step.format(file=file)}" in ran.err
    assert "spark-1" not in ran.err
    assert not Path("new.yaml").exists()


def test_a_key_without_an_address_is_refused(sparkops: Sparkops) -> None:
    private(Path("id").absolute())

    ran = sparkops("-i", "new.yaml", "init", "--ssh-key", "id")

    assert (ran.code, "--ssh-key: no node to connect to" in ran.err) == (2, True)


def test_init_pins_no_key_without_an_answer(sparkops: Sparkops) -> None:
    key = paramiko.ECDSAKey.generate()
    with listening(key, key) as server:
        ssh_config(server, key)
        ran = sparkops("init", "spark")

    assert ran.code == 1
    assert "no terminal to confirm on: spark-1: " in ran.err
    assert "  next: Pass --yes.\n" in ran.err
    assert ran.err.endswith("  next: sparkops init spark\n")
    assert not Path("known_hosts").exists()


def test_init_replaces_the_sample_that_comes_with_the_sources(sparkops: Sparkops) -> None:
    sample = ROOT / "inventory.yaml"
    Path("inventory.yaml").write_bytes(sample.read_bytes())

    assert sparkops("init", "127.0.0.2").err.endswith("next: sparkops init 127.0.0.2\n")
    assert "127.0.0.2" in Path("inventory.yaml").read_text()


def test_init_replaces_its_own_file_until_somebody_edits_it(sparkops: Sparkops) -> None:
    file = Path("inventory.yaml")
    sparkops("init", "127.0.0.2")

    assert sparkops("init", "127.0.0.3").code == 1
    assert inventory.load(file).nodes["spark-1"].address == "127.0.0.3"
    file.write_text(file.read_text().replace("127.0.0.3", "127.0.0.4"))
    assert sparkops("init", "127.0.0.2").code == 2
    assert inventory.load(file).nodes["spark-1"].address == "127.0.0.4"


def test_init_overwrites_only_with_force(sparkops: Sparkops) -> None:
    Path("inventory.yaml").write_text("mine")

    ran = sparkops("init", "127.0.0.2")

    assert (ran.code, ran.err) == (
        2,
        "sparkops: inventory.yaml exists already\n"
        "  next: Edit it, pass another with --inventory, or replace it with --force.\n",
    )
    assert Path("inventory.yaml").read_text() == "mine"
    forced = sparkops("init", "127.0.0.2", "--force")
    assert (forced.code, "inventory.yaml.old is the inventory that was there" in forced.err) == (1, True)
    assert list(inventory.load(Path("inventory.yaml")).nodes) == ["spark-1"]
    assert Path("inventory.yaml.old").read_text() == "mine"


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_init_keeps_an_inventory_that_knows_a_node_which_cannot_be_read(sparkops: Sparkops, options: list[str]) -> None:
    """Of a node that it does not read now, a new one would only guess name, user and GPU."""
    known = "nodes: {mine: {address: 127.0.0.2, gpu: none}}\n"
    Path("inventory.yaml").write_text(known)

    ran = sparkops("init", "127.0.0.2", *options)

    assert ran.code == (1 if options else 2)
    assert Path("inventory.yaml").read_text() == known
    assert "not read: spark-1; inventory.yaml stays as it was" in ran.err or not options


def test_a_gateway_is_added_to_an_inventory_that_exists_only(sparkops: Sparkops) -> None:
    missing, new = sparkops("init", "--gateway", "a"), sparkops("init", "192.0.2.1", "--gateway", "spark-1")

    assert (missing.code, new.code) == (2, 2)
    assert "inventory not found: inventory.yaml\n  next: Create one with `sparkops init`" in missing.err
    assert "--gateway: not with addresses: a new inventory has the gateway on its first node" in new.err
    assert not Path("inventory.yaml").exists()


def test_an_inventory_without_a_gateway_gets_one_line_and_the_way_to_it(sparkops: Sparkops) -> None:
    file = Path("inventory.yaml")
    file.write_text("# mine\nnodes:\n  a: {address: 127.0.0.2}\n  b: {address: 127.0.0.3}")

    refused = sparkops("deploy", "stand-in")
    assert (refused.code, refused.err.splitlines()) == (
        2,
        [
            f"sparkops: {file}: gateway: not found, expected the node of the gateway",
            "  next: sparkops init --gateway NODE, with one of: a, b",
        ],
    )
    assert sparkops("init", "--gateway", "c").code == 2
    assert sparkops("init", "--gateway", "b").code == 0
    assert file.read_text().startswith("# mine\nnodes:\n")
    assert inventory.load(file).require_gateway().node == "b"
    repeated = sparkops("init", "--gateway", "a")
    assert (repeated.code, "the inventory has one, on b" in repeated.err) == (2, True)


def test_init_refuses_an_ssh_configuration_that_it_cannot_read(sparkops: Sparkops) -> None:
    Path(".ssh").mkdir()
    Path(".ssh/config").write_text("Host spark\n  Port = = x\nMatch nonsense\n")

    ran = sparkops("init", "spark")

    assert ran.code == 2
    assert "/.ssh/config: cannot be read: " in ran.err
    assert not Path("inventory.yaml").exists()


def test_init_with_an_address_that_is_none_leaves_no_file(sparkops: Sparkops) -> None:
    ran = sparkops("init", "a b")

    assert ran.code == 2
    assert (
        "nodes.spark-1.address: expected a host name of labels up to 63 characters, or an IP address, without a port,"
        " got 'a b'" in ran.err
    )
    assert ran.err.startswith("sparkops: nodes.")  # not a file that is gone
    assert "next: Pass the host name or IP address of each node once; SSH takes a port from ~/.ssh/config.\n" in ran.err
    assert [file.name for file in Path().iterdir() if "inventory" in file.name] == []


def test_init_refuses_a_directory_before_it_connects(sparkops: Sparkops) -> None:
    Path("fleet").mkdir()

    ran = sparkops("-i", "fleet", "init", "127.0.0.2", "--force")

    assert (ran.code, ran.err) == (
        2,
        "sparkops: fleet is a directory\n  next: Pass a file with --inventory.\n",
    )


@pytest.mark.parametrize("text", ["nodes: {a: {transport: local}}\n...\n", "{nodes: {a: {transport: local}}}\n"])
def test_a_gateway_that_would_break_an_inventory_is_not_added(sparkops: Sparkops, text: str) -> None:
    Path("inventory.yaml").write_text(text)

    ran = sparkops("init", "--gateway", "a")

    assert (ran.code, ran.err) == (
        2,
        "sparkops: inventory.yaml: gateway: cannot be added at the end\n"
        "  next: Add it with an editor: gateway: {node: a}\n",
    )
    assert Path("inventory.yaml").read_text() == text
    assert not Path(".inventory.yaml.new").exists()


def test_init_says_why_it_cannot_write(sparkops: Sparkops) -> None:
    ran = sparkops("-i", "/proc/nowhere/inventory.yaml", "init")

    assert (ran.code, ran.err) == (
        2,
        "sparkops: /proc/nowhere/.inventory.yaml.new cannot be written: No such file or directory\n",
    )


@pytest.mark.parametrize("of", ["recipe", "inventory", "status"])
def test_a_schema_is_json_schema_and_its_reference_is_in_docs(sparkops: Sparkops, of: str) -> None:
    schema = sparkops("recipe", "schema", of).json

    assert (schema["title"], schema["type"]) == (of.capitalize(), "object")
    assert sparkops("recipe", "schema", of, "--markdown").out == (DOCS / f"{of}.md").read_text()


def test_a_schema_goes_to_a_file(sparkops: Sparkops) -> None:
    shown = sparkops("recipe", "schema", "recipe").out

    ran = sparkops("recipe", "schema", "recipe", "-o", "made/recipe.json")

    assert (ran.code, ran.out, Path("made/recipe.json").read_text()) == (0, "", shown)


def test_an_unknown_schema_names_those_there_are(sparkops: Sparkops) -> None:
    ran = sparkops("recipe", "schema", "model")

    assert (ran.code, ran.err) == (
        2,
        "sparkops: unknown schema model, expected one of: recipe, inventory, status\n",
    )


def write_inventory(server: SshServer) -> None:
    nodes = {"n1": {"address": "127.0.0.1", "port": server.port}, "here": {"transport": "local"}}
    Path("inventory.yaml").write_text(yaml.safe_dump({"nodes": nodes}))


def test_trust_pins_the_key_that_a_node_shows(sparkops: Sparkops) -> None:
    key = paramiko.ECDSAKey.generate()
    with listening(key, key) as server:
        write_inventory(server)
        first, second = sparkops("node", "trust", "--yes"), sparkops("node", "trust")

    assert (first.code, first.err) == (0, f"n1: pinned in {Path('known_hosts').absolute()}\n")
    assert (second.code, second.err) == (0, f"n1: {fingerprint_of(key)} is already pinned\n")
    assert Path("known_hosts").read_text() == f"n1 {key.get_name()} {key.get_base64()}\n"


def test_trust_pins_the_other_nodes_if_one_is_off(sparkops: Sparkops) -> None:
    key = paramiko.ECDSAKey.generate()
    with listening(key, key) as server:
        off, n1 = {"address": "127.0.0.2", "port": 9}, {"address": "127.0.0.1", "port": server.port}
        Path("inventory.yaml").write_text(yaml.safe_dump({"nodes": {"a-off": off, "n1": n1}}))
        ran = sparkops("node", "trust", "--yes")

    assert ran.code == 5
    assert "a-off: cannot connect to " in ran.err
    assert Path("known_hosts").read_text() == f"n1 {key.get_name()} {key.get_base64()}\n"


def test_trust_pins_nothing_if_a_name_is_unknown(sparkops: Sparkops) -> None:
    key = paramiko.ECDSAKey.generate()
    with listening(key, key) as server:
        write_inventory(server)
        ran = sparkops("node", "trust", "n1", "nope", "--yes")

    assert ran.code == 2
    assert "unknown node 'nope'" in ran.err
    assert not Path("known_hosts").exists()


def test_trust_needs_somebody_who_says_yes(sparkops: Sparkops) -> None:
    key = paramiko.ECDSAKey.generate()
    with listening(key, key) as server:
        write_inventory(server)
        ran = sparkops("node", "trust")

    question = f"n1: {key.get_name()} {fingerprint_of(key)}. Trust it?"
    assert (ran.code, ran.err) == (2, f"sparkops: no terminal to confirm on: {question}\n  next: Pass --yes.\n")
    assert not Path("known_hosts").exists()


def test_trust_replaces_a_key_only_when_told(sparkops: Sparkops) -> None:
    old, new = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
    with listening(new, new) as server:
        write_inventory(server)
        Path("known_hosts").write_text(f"n1 {old.get_name()} {old.get_base64()}\n")
        refused, replaced = (
            sparkops("node", "trust", "--yes", "n1"),
            sparkops("node", "trust", "--yes", "--replace", "n1"),
        )

    assert refused.code == 5
    assert "n1: its host key has changed to" in refused.err
    assert replaced.code == 0
    assert Path("known_hosts").read_text() == f"n1 {new.get_name()} {new.get_base64()}\n"


def test_trust_pins_a_key_of_the_given_fingerprint_without_asking(sparkops: Sparkops) -> None:
    key = paramiko.ECDSAKey.generate()
    with listening(key, key) as server:
        write_inventory(server)
        first, second = (sparkops("node", "trust", "--fingerprint", f"n1={fingerprint_of(key)}") for _ in range(2))

    assert (first.code, first.err) == (0, f"n1: pinned in {Path('known_hosts').absolute()}\n")
    assert (second.code, second.err) == (0, f"n1: {fingerprint_of(key)} is already pinned\n")
    assert Path("known_hosts").read_text() == f"n1 {key.get_name()} {key.get_base64()}\n"


@pytest.mark.parametrize("pinned", [False, True])
def test_trust_refuses_a_key_of_another_fingerprint(sparkops: Sparkops, pinned: bool) -> None:
    key, other = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
    before = f"n1 {key.get_name()} {key.get_base64()}\n" if pinned else ""
    Path("known_hosts").write_text(before)
    with listening(key, key) as server:
        write_inventory(server)
        ran = sparkops("node", "trust", "--yes", "--replace", "--fingerprint", f"n1={fingerprint_of(other)}")

    shown = f"ecdsa-sha2-nistp256 {fingerprint_of(key)}"
    assert (ran.code, ran.err) == (
        5,
        f"sparkops: n1: host key refused: got {shown}, expected {fingerprint_of(other)}\n"
        "  next: Compare on the node's own screen: ssh-keygen -lf /etc/ssh/ssh_host_ecdsa_key.pub\n",
    )
    assert Path("known_hosts").read_text() == before


def test_a_fingerprint_replaces_no_other_key_by_itself(sparkops: Sparkops) -> None:
    old, new = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
    Path("known_hosts").write_text(f"n1 {old.get_name()} {old.get_base64()}\n")
    with listening(new, new) as server:
        write_inventory(server)
        ran = sparkops("node", "trust", "--fingerprint", f"n1={fingerprint_of(new)}")

    assert (ran.code, "n1: its host key has changed to" in ran.err) == (5, True)


@pytest.mark.parametrize("given", ["n1", "n1=SHA256:short", "=SHA256:" + 43 * "A", "n1=MD5:00"])
def test_a_malformed_fingerprint_is_refused(sparkops: Sparkops, given: str) -> None:
    Path("inventory.yaml").write_text("nodes: {n1: {address: 127.0.0.1}}\n")

    ran = sparkops("node", "trust", "--fingerprint", given)

    assert (ran.code, ran.err) == (
        2,
        "sparkops: --fingerprint: expected NODE=SHA256: and 43 characters of base64, as ssh-keygen -l prints them, "
        f"got {given!r}\n",
    )


def test_a_fingerprint_of_an_unknown_node_is_refused(sparkops: Sparkops) -> None:
    Path("inventory.yaml").write_text("nodes: {n1: {address: 127.0.0.1}}\n")

    ran = sparkops("node", "trust", "--fingerprint", "n9=SHA256:" + 43 * "A")

    assert (ran.code, "unknown node 'n9'" in ran.err) == (2, True)


def test_trust_never_pins_a_revoked_key(sparkops: Sparkops) -> None:
    key = paramiko.ECDSAKey.generate()
    revoked = f"@revoked * {key.get_name()} {key.get_base64()}\n"
    Path("known_hosts").write_text(revoked)
    with listening(key, key) as server:
        write_inventory(server)
        ran = sparkops("node", "trust", "--yes", "--replace", "--fingerprint", f"n1={fingerprint_of(key)}")

    assert (ran.code, ran.err.splitlines()[0]) == (
        5,
        f"sparkops: n1: host key refused: {key.get_name()} {fingerprint_of(key)} is marked @revoked",
    )
    assert Path("known_hosts").read_text() == revoked
