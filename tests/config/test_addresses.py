"""The light reading of an inventory gives the same ways to the nodes as the whole one, or leaves them to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.config import addresses, inventory
from sparkops.config.addresses import KINDS
from sparkops.errors import UsageError
from tests.places import ROOT

FILES = [
    "nodes:\n  n1: {address: 10.0.0.1}\n",
    "nodes:\n  n1: {transport: local}\nknown_hosts: ~/pins\n",
    """defaults: {user: ops, port: 2222, ssh_key: keys/id}
nodes:
  n1: {address: 10.0.0.1, user: ann, gpu: none}
  n2: {address: spark-2.lan, port: null, env: {RACK: a}}
gateway: {node: n2, address: 10.0.0.9}
""",
    "nodes: {n1: {address: a}}\ngateway: {node: n1, address: 'fd00::1', port: 8000, tls_certificate: tls.pem}\n",
    (ROOT / "inventory.yaml").read_text(),
]


@pytest.mark.parametrize("text", FILES)
def test_both_readings_name_the_same_ways(tmp_path: Path, text: str) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(text)

    light, whole = addresses.read(file), inventory.load(file)

    assert light is not None
    assert list(light.nodes) == list(whole.nodes)
    for name in whole.nodes:
        for key in (*KINDS, "jump"):
            assert getattr(light.node(name), key) == getattr(whole.node(name), key)
    assert (light.file, light.known_hosts) == (whole.file, whole.known_hosts)
    assert (light.gateway is None) == (whole.gateway is None)
    if light.gateway and whole.gateway:
        for key in ("node", "address", "port"):
            assert getattr(light.gateway, key) == getattr(whole.gateway, key)
        assert light.gateway.url(9000) == whole.gateway.url(9000)
    assert light.resolve("keys/id") == whole.resolve("keys/id")
    with pytest.raises(UsageError, match="unknown node 'n9'"):
        light.node("n9")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nodes: []\n",
        "nodes:\n  n1: {user: ops}\n",
        "nodes:\n  n1: {address: 10.0.0.1, port: '22'}\n",
        "nodes:\n  n1: {address: 10.0.0.1, port: true}\n",
        "nodes:\n  n1: {address: 10.0.0.1, jump: n1}\n",
        "defaults: {jump: n2}\nnodes:\n  n1: {address: 10.0.0.1}\n  n2: {address: 10.0.0.2}\n",
        "nodes:\n  n1: !!python/object:os.system {}\n",
        "nodes: {n1: [\n",
    ],
)
def test_what_only_the_whole_reading_can_judge_is_left_to_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(text)

    assert addresses.read(file) is None
    assert addresses.read(tmp_path / "nowhere.yaml") is None
