"""The inventory's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.config import inventory
from sparkops.config.fabric import FabricRules, Port
from sparkops.config.fields import PUBLIC
from sparkops.config.inventory import Fleet, Inventory, Monitoring
from sparkops.errors import ConfigError, UsageError


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(text: str) -> Fleet:
    file = Path("inventory.yaml")
    file.write_text(text)
    return inventory.load(file)


def test_the_smallest_inventory() -> None:
    fleet = load("nodes:\n  a: {address: 10.0.0.1}\n")

    assert fleet.nodes["a"].model_dump(exclude_unset=True) == {"address": "10.0.0.1"}
    assert fleet.known_hosts == Path.cwd() / "known_hosts"


def test_the_image_of_an_agent_is_named_by_its_digest() -> None:
    image = f"r.lan/guard@sha256:{'a' * 64}"
    build = load(f"nodes: {{a: {{address: h}}}}\nbuild: {{agent_images: {{guard: {image}}}}}").build

    assert (build.finished("guard"), build.finished("gateway")) == (image, "")
    with pytest.raises(ConfigError, match=r"build\.agent_images\.guard: expected an image by its digest"):
        load("nodes: {a: {address: h}}\nbuild: {agent_images: {guard: 'r.lan/guard:1'}}")


def test_a_local_node_needs_no_address() -> None:
    assert load("nodes: {here: {transport: local}}").nodes["here"].address == "127.0.0.1"


def test_defaults_apply_to_what_a_node_does_not_say() -> None:
    fleet = load(
        "defaults: {user: ops, port: 2222, gpu: runtime}\n"
        "nodes:\n"
        "  a: {address: h}\n"
        "  b: {address: h2, port: 22, gpu: none}\n"
        "  c: {address: h3, user: null}\n"
    )

    settings = {name: (node.user, node.port, node.gpu) for name, node in fleet.nodes.items()}
    assert settings == {"a": ("ops", 2222, "runtime"), "b": ("ops", 22, "none"), "c": ("ops", 2222, "runtime")}


def test_a_node_with_another_gpu_mode_leaves_the_default_devices() -> None:
    fleet = load(
        "defaults: {gpu: devices, gpu_devices: [/dev/nvidia0], gpu_mounts: [/usr/lib/x]}\n"
        "nodes:\n"
        "  a: {address: h}\n"
        "  b: {address: h2, gpu: none}\n"
    )

    given = {name: (node.gpu, node.gpu_devices, node.gpu_mounts) for name, node in fleet.nodes.items()}
    assert given == {"a": ("devices", ["/dev/nvidia0"], ["/usr/lib/x"]), "b": ("none", None, None)}


def test_devices_of_a_node_complete_the_gpu_mode_of_the_defaults() -> None:
    own = "{address: h, gpu_devices: [/dev/x], gpu_mounts: [/usr/lib/x]}"
    node = load(f"defaults: {{gpu: devices}}\nnodes: {{a: {own}}}\n").nodes["a"]

    assert (node.gpu, node.gpu_devices, node.gpu_mounts) == ("devices", ["/dev/x"], ["/usr/lib/x"])


def test_ports_and_environment_of_a_node_replace_those_of_the_defaults() -> None:
    fleet = load(
        "defaults: {fabric: [{device: rocep1s0f0}], env: {NCCL_DEBUG: INFO}}\n"
        "nodes:\n"
        "  a: {address: h}\n"
        "  b: {address: h2, fabric: auto, env: {}}\n"
        "  c: {address: h3, fabric: [{device: rocep1s0f1, address: 10.0.0.3, gid_index: 5}, {interface: enP7s7}]}\n"
    )

    settings = {name: (node.fabric, node.env) for name, node in fleet.nodes.items()}
    assert settings == {
        "a": ([Port(device="rocep1s0f0")], {"NCCL_DEBUG": "INFO"}),
        "b": ("auto", {}),
        "c": (
            [Port(device="rocep1s0f1", address="10.0.0.3", gid_index=5), Port(interface="enP7s7")],
            {"NCCL_DEBUG": "INFO"},
        ),
    }


@pytest.mark.parametrize(
    ("text", "fabric"),
    [
        ("", FabricRules(allow_tcp=False, mtu=9000)),
        ("fabric: {allow_tcp: true, mtu: 4200}\n", FabricRules(allow_tcp=True, mtu=4200)),
    ],
)
def test_roce_with_large_packets_is_wanted_unless_said_otherwise(text: str, fabric: FabricRules) -> None:
    assert load(text + "nodes: {a: {address: h}}\n").fabric == fabric


def test_the_default_jump_is_not_reached_through_itself() -> None:
    fleet = load("defaults: {jump: a}\nnodes:\n  a: {address: h}\n  b: {address: h2}\n")

    assert {name: node.jump for name, node in fleet.nodes.items()} == {"a": None, "b": "a"}


def test_paths_are_seen_from_the_inventory(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    file = Path("far/inventory.yaml")
    file.write_text("known_hosts: keys\nnodes: {a: {address: h}}\n")

    fleet = inventory.load(file)

    assert fleet.known_hosts == tmp_path / "far/keys"
    assert fleet.resolve("id") == tmp_path / "far/id"
    assert fleet.resolve("/etc/id") == Path("/etc/id")


def test_a_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ops")

    fleet = load("known_hosts: ~/keys\nnodes: {a: {address: h}}\n")

    assert (fleet.known_hosts, fleet.resolve("~/id")) == (Path("/home/ops/keys"), Path("/home/ops/id"))


@pytest.mark.parametrize(
    ("gateway", "url"),
    [
        ("{node: a}", "http://10.0.0.1:8000/v1"),
        ("{node: a, address: llm.lan}", "http://llm.lan:8000/v1"),
        ("{node: a, address: 'fd00::1'}", "http://[fd00::1]:8000/v1"),
        ("{node: a, tls_certificate: llm.pem}", "https://10.0.0.1:8000/v1"),
    ],
)
def test_clients_call_the_gateway_at_its_own_address_or_its_node_s(gateway: str, url: str) -> None:
    config = load(f"nodes: {{a: {{address: 10.0.0.1}}}}\ngateway: {gateway}\n").gateway

    assert config is not None
    assert config.url(8000) == url


@pytest.mark.parametrize(
    "index",
    ["https://user:secret@mirror.lan/simple", "http://[fd00::1]:8080/x", "http://mirror.lan:8080/x", "file:///srv/x"],
)
def test_an_index_is_a_url(index: str) -> None:
    assert load(f"nodes: {{a: {{address: h}}}}\nbuild: {{package_index: '{index}'}}").build.package_index == index


def test_a_node_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"^inventory\.yaml: unknown node 'c', expected one of: a, b$"):
        load("nodes: {a: {address: h}, b: {address: h2}}").node("c")


HOST = "a host name of labels up to 63 characters, or an IP address, without a port"
NODE = "nodes:\n  a:\n    address: h\n    "
PLAIN = "expected a plain value: no shell expands $NAME, $(...), ${...} or backticks"
LOCAL = "expected a path that does not begin with a dash"
URL = "expected a URL that begins with https://, http:// or file://"
NO_DEVICES = "expected gpu_devices for node a, such as [/dev/nvidia0]: without them containers get no GPU"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("- a\n", "1: expected a mapping of keys to values (required: nodes), got a list"),
        ("spark-1\n", "1: expected a mapping of keys to values (required: nodes), got 'spark-1'"),
        ("defaults: {}\n", "1: nodes: missing, but required"),
        ("nodes: {}\n", "1: nodes: expected at least 1 item"),
        ("nodes: [a]\n", "1: nodes: expected a mapping of keys to values"),
        ("nodes:\n  a: h\n", "2: nodes.a: expected a mapping of keys to values, got 'h'"),
        ("nodes:\n  a: {}\n", "2: nodes.a: expected an `address`, or `transport: local`"),
        ("node: {}\n", "1: node: unknown key, did you mean 'nodes'?"),
        (
            "x: 1\n",
            f"1: x: unknown key, expected one of: {', '.join(Inventory.model_fields)}\n"
            "inventory.yaml:1: nodes: missing, but required",
        ),
        (NODE + "adress: h\n", "4: nodes.a.adress: unknown key, did you mean 'address'?"),
        (
            "nodes:\n  A: {address: h}\n",
            "2: nodes.A: expected a name of at most 63 lower-case letters, digits, dots and dashes, got 'A'",
        ),
        (NODE + "port: '22'\n", "4: nodes.a.port: expected a whole number, got '22'"),
        (NODE + "port: true\n", "4: nodes.a.port: expected a whole number, got True"),
        (NODE + "port: 70000\n", "4: nodes.a.port: expected at most 65535, got 70000"),
        (NODE + "transport: SSH\n", "4: nodes.a.transport: expected 'ssh' or 'local', got 'SSH'"),
        (NODE + "gpu: all\n", "4: nodes.a.gpu: expected 'none', 'runtime', 'cdi' or 'devices', got 'all'"),
        (NODE + "user: a b\n", "4: nodes.a.user: expected a user's name, got 'a b'"),
        (NODE + "user: -oProxyCommand=x\n", "4: nodes.a.user: expected a user's name, got '-oProxyCommand=x'"),
        (NODE + "ssh_key: ''\n", "4: nodes.a.ssh_key: expected at least 1 character, got ''"),
        (
            NODE + 'ssh_key: "a\\nb"\n',
            "4: nodes.a.ssh_key: expected one line of visible text, got character '\\n'",
        ),
        (
            NODE + "model_dir: models\n",
            "4: nodes.a.model_dir: expected an absolute path without colon or comma, got 'models'",
        ),
        (
            NODE + "model_dir: /a:/b\n",
            "4: nodes.a.model_dir: expected an absolute path without colon or comma, got '/a:/b'",
        ),
        *(
            (f"nodes: {{a: {{address: {host}}}}}\n", f"1: nodes.a.address: expected {HOST}, got '{host}'")
            for host in ("a" * 64, f"spark.{'a' * 64}.lan", "spark..lan", ".lan", "-x")
        ),
        (NODE + "gpu_devices: [/dev/x]\n", "4: nodes.a.gpu_devices: expected `gpu: devices` for node a, got no `gpu`"),
        (
            NODE + "gpu: cdi\n    gpu_mounts: [/x]\n",
            "5: nodes.a.gpu_mounts: expected `gpu: devices` for node a, got `gpu: cdi`",
        ),
        (
            "nodes:\n  a: {address: h}\ndefaults: {gpu_devices: [/dev/x]}\n",
            "3: defaults.gpu_devices: expected `gpu: devices` for node a, got no `gpu`",
        ),
        (NODE + "gpu: devices\n", f"4: nodes.a.gpu: {NO_DEVICES}"),
        (NODE + "gpu: devices\n    gpu_devices: []\n", f"4: nodes.a.gpu: {NO_DEVICES}"),
        (NODE + "gpu: devices\n    gpu_mounts: [/usr/lib/nv]\n", f"4: nodes.a.gpu: {NO_DEVICES}"),
        ("nodes:\n  a: {address: h}\ndefaults: {gpu: devices}\n", f"3: defaults.gpu: {NO_DEVICES}"),
        (
            NODE + "gpu: devices\n    gpu_devices: [/dev/x:/dev/y]\n",
            "5: nodes.a.gpu_devices[0]: expected an absolute path without colon or comma, got '/dev/x:/dev/y'",
        ),
        (NODE + "env: {WANDB_API_KEY: x}\n", f"4: nodes.a.env.WANDB_API_KEY: {PUBLIC}, got 'WANDB_API_KEY'"),
        (NODE + "env: {A: $HOME}\n", f"4: nodes.a.env.A: {PLAIN}, got '$HOME'"),
        (NODE + "ssh_key: -i\n", f"4: nodes.a.ssh_key: {LOCAL}, got '-i'"),
        ("known_hosts: -x\n" + NODE, f"1: known_hosts: {LOCAL}, got '-x'"),
        ("build: {wheels: -w}\n" + NODE, f"1: build.wheels: {LOCAL}, got '-w'"),
        ("build: {ca_certificates: ['-x.crt']}\n" + NODE, f"1: build.ca_certificates[0]: {LOCAL}, got '-x.crt'"),
        ("gateway: {node: a, api_keys: [-k]}\n" + NODE, f"1: gateway.api_keys[0]: {LOCAL}, got '-k'"),
        ("gateway: {node: a, tls_certificate: -a}\n" + NODE, f"1: gateway.tls_certificate: {LOCAL}, got '-a'"),
        (NODE + "jump: b\n", "4: nodes.a.jump: unknown node 'b', expected one of: a"),
        ("defaults: {jump: b}\n" + NODE, "3: nodes.a.jump: unknown node 'b', expected one of: a"),
        (NODE + "jump: a\n", "4: nodes.a.jump: circular: a -> a"),
        (
            "nodes:\n  a: {address: h, jump: b}\n  b: {address: h2, jump: a}\n",
            "3: nodes.b.jump: circular: a -> b -> a",
        ),
        (NODE + "fabric: enp1\n", "4: nodes.a.fabric: expected `auto` or a list of ports, got 'enp1'"),
        (NODE + "fabric: []\n", "4: nodes.a.fabric: expected at least 1 item"),
        (
            NODE + "fabric: [{gid_index: 3}]\n",
            "4: nodes.a.fabric[0]: expected a `device`, or an `interface` for plain TCP",
        ),
        (
            NODE + "fabric:\n    - device: rocep1s0f0\n      adress: 1.2.3.4\n",
            "6: nodes.a.fabric[0].adress: unknown key, did you mean 'address'?",
        ),
        (
            NODE + "fabric: [{device: '=rocep1s0f0'}]\n",
            "4: nodes.a.fabric[0].device: expected an RDMA device, such as rocep1s0f0, got '=rocep1s0f0'",
        ),
        (
            NODE + "fabric: [{interface: enp1s0f0np0.veryverylong}]\n",
            "4: nodes.a.fabric[0].interface: expected a network interface, such as enp1s0f0np0, "
            "got 'enp1s0f0np0.veryverylong'",
        ),
        (
            NODE + "fabric: [{device: d, address: 10.0.0.256}]\n",
            "4: nodes.a.fabric[0].address: expected an IPv4 address, got '10.0.0.256'",
        ),
        (NODE + "env: {NCCL_IB_GID_INDEX: 3}\n", "4: nodes.a.env.NCCL_IB_GID_INDEX: expected text, got 3"),
        ("fabric: {mtu: 100}\n" + NODE, "1: fabric.mtu: expected at least 1280, got 100"),
        (
            "build: {package_index: 'user:s3cret@mirror/x'}\n" + NODE,
            f"1: build.package_index: {URL}, got '***@mirror/x'",
        ),
        ("build: {torch_index: 'http://u:s3 cret@h'}\n" + NODE, f"1: build.torch_index: {URL}, got '***@h'"),
        ("build: {torch_index: 'http://u:s3@cr et@h'}\n" + NODE, f"1: build.torch_index: {URL}, got '***@h'"),
        ("build: {torch_index: 'https://u:p@[h/x'}\n" + NODE, f"1: build.torch_index: {URL}, got '***@[h/x'"),
        ("build: {torch_index: 'https://h:port/x'}\n" + NODE, f"1: build.torch_index: {URL}, got 'https://h:port/x'"),
        ("build: {torch_index: 'http://u@/x'}\n" + NODE, f"1: build.torch_index: {URL}, got '***@/x'"),
        ("gateway: {node: b}\n" + NODE, "1: gateway.node: unknown node 'b', expected one of: a"),
        (
            "build: {torch_index: 'https://x\"; y'}\n" + NODE,
            "1: build.torch_index: expected a URL that begins with https://, http:// or file://, got 'https://x\"; y'",
        ),
        (
            "build: {package_index: ftp://x}\n" + NODE,
            "1: build.package_index: expected a URL that begins with https://, http:// or file://, got 'ftp://x'",
        ),
    ],
)
def test_a_mistake_names_its_line_and_field(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)

    assert str(caught.value) == f"inventory.yaml:{error}"


def test_a_file_of_another_kind_has_a_next_step() -> None:
    with pytest.raises(ConfigError) as caught:
        load("- spark-1\n")

    assert caught.value.next_step == "All keys: sparkops recipe schema inventory --markdown"


def test_a_gateway_that_moves_has_the_address_of_its_node_unless_it_has_one_of_its_own() -> None:
    nodes = "nodes:\n  a: {address: 10.0.0.1}\n  b: {address: 10.0.0.2}\n"
    own, named = (load(f"{nodes}gateway: {{node: a{more}}}\n") for more in ("", ", address: ai.lan"))

    assert own.moved("b").require_gateway().url(9000) == "http://10.0.0.2:9000/v1"
    assert named.moved("b").require_gateway().url(9000) == "http://ai.lan:9000/v1"
    assert [own.moved("b").engine_address(name) for name in "ab"] == ["10.0.0.1", "127.0.0.1"]
    with pytest.raises(UsageError, match="unknown node 'c'"):
        own.moved("c")


def test_the_gateway_calls_engines_of_its_own_node_on_loopback() -> None:
    fleet = load("nodes:\n  a: {address: 10.0.0.1}\n  b: {address: 10.0.0.2}\ngateway: {node: a}\n")

    assert [fleet.engine_address(name) for name in ("a", "b")] == ["127.0.0.1", "10.0.0.2"]
    without = load("nodes:\n  a: {address: 10.0.0.1}\n")
    assert without.engine_address("a") == "10.0.0.1"


@pytest.mark.parametrize(("key", "port"), [("port", 8000), ("metrics_port", 8405)])
def test_guards_take_no_port_of_the_gateway(key: str, port: int) -> None:
    text = "nodes: {a: {address: 10.0.0.1}}\ngateway: {node: a, port: 8000}\n"

    with pytest.raises(ConfigError, match=rf"inventory.yaml:3: monitoring.port: {port} is gateway.{key}, expected"):
        load(f"{text}monitoring: {{key: m.key, port: {port}}}\n")
    assert load(f"{text}monitoring: {{key: m.key}}\n").monitoring == Monitoring(key="m.key")
