"""Weights on real nodes: copied from node to node, verified, and refused by a deploy where they are damaged.

The directories of these tests are their own; everything else on the nodes is left alone.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import safetensors
from tests.checkpoints import copy as scp
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.program import Cli
from tests.real.weights import OURS, digest, list_ours, sent, soon, sweep

pytestmark = pytest.mark.fleet

SHARD = "model-2-of-4.safetensors"
INDEX = "model.safetensors.index.json"
MIB = 1024 * 1024


@pytest.fixture
def clean(nodes: RealFleet) -> Iterator[None]:
    """Nothing of ours is there before or after."""
    sweep(nodes)
    yield
    sweep(nodes)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of 50 MiB in four shards, each with bytes of its own."""
    directory = tmp_path_factory.mktemp("made") / OURS
    shards = {
        f"model-{number}-of-4.safetensors": {
            f"layers.{number}.weight": ("BF16", [1600, 4096], os.urandom(1600 * 4096 * 2))
        }
        for number in range(1, 5)
    }
    return safetensors.checkpoint(directory, shards)


@pytest.fixture
def recipe(variant: Callable[..., Path]) -> Path:
    return variant({"path: tiny-qwen3": f"path: {OURS}"})


@pytest.fixture
def on_node_1(clean: None, fleet: Any, checkpoint: Path) -> None:  # noqa: ARG001
    scp(fleet, "node-1", checkpoint, OURS)


def programs(node: FleetNode) -> str:
    """The transfers that run on a node now."""
    output = node.exec("sh", "-c", "pgrep -af '[p]ython3 -c import json, sys; .exec' || true")
    return output.strip()


@pytest.mark.usefixtures("on_node_1")
def test_a_copy_sends_all_once_and_then_nothing(sparkops: Cli, nodes: RealFleet, recipe: Path) -> None:
    size = sent(sparkops("models", "copy", recipe, "--from", "node-1", "--json"))

    assert size > 50 * MIB
    assert digest(nodes.node("node-1")) == digest(nodes.node("node-2"))
    assert sent(sparkops("models", "copy", recipe, "--from", "node-1", "--json")) == 0
    assert sent(sparkops("models", "copy", recipe, "--from", "node-1", "--checksum", "--json")) == 0
    listed = sparkops("models", "list", "--json").json["nodes"]
    for name in ("node-1", "node-2"):
        [entry] = [row for row in listed[name]["models"] if row["path"] == OURS]
        assert (entry["complete"], entry["problems"], entry["bytes"]) == (True, [], size)
    assert sparkops("models", "verify", recipe).code == 0


def large(node: FleetNode) -> int:
    """A checkpoint of 512 MiB on a node, for which no byte is written: only its header and its length."""
    size = 512 * MIB
    table = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    table += " " * (-len(table) % 8)
    header = len(table).to_bytes(8, "little") + table.encode()
    path = f"/srv/models/{OURS}"
    node.exec(
        "sh", "-c", f"mkdir -p {path} && echo '{{}}' > {path}/config.json && cat > {path}/w.safetensors", stdin=header
    )
    node.exec("sh", "-c", f"truncate -s {size + len(header)} {path}/w.safetensors && chown -R ops {path}")
    return size


def begun(node: FleetNode) -> int:
    """Bytes that have arrived so far."""
    return int(node.exec("sh", "-c", f"stat -c %s /srv/models/{OURS}.partial/w.safetensors 2>/dev/null || echo 0"))


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, id="ctrl-c"), pytest.param(signal.SIGKILL, id="killed", marks=pytest.mark.matrix)],
)
def test_an_interrupted_copy_leaves_nothing_running_and_goes_on(
    sparkops: Cli, nodes: RealFleet, recipe: Path, number: signal.Signals
) -> None:
    source, target = nodes.node("node-1"), nodes.node("node-2")
    size = large(source)
    with sparkops.start("models", "copy", recipe, "--from", "node-1") as running:
        assert soon(lambda: begun(target) > 0)
        running.send_signal(number)
        running.communicate(timeout=300)
    assert running.returncode == {signal.SIGINT: 130, signal.SIGKILL: -9}[number]
    assert soon(lambda: not programs(source) + programs(target)), programs(source) + programs(target)
    assert list_ours(target) == [f"{OURS}.partial"]
    assert 0 < begun(target) < size

    new = sent(sparkops("models", "copy", recipe, "--from", "node-1", "--json"))
    assert 0 < new < size
    assert list_ours(target) == [OURS]
    assert digest(source) == digest(target)


@contextmanager
def beside(nodes: RealFleet, tmp_path: Path) -> Iterator[tuple[FleetNode, Path]]:
    """A node of our own beside node-1, and an inventory of the two."""
    far = nodes.add("models-far")
    try:
        yield far, nodes.write_inventory(tmp_path / "inventory.yaml", [nodes.node("node-1"), far])
    finally:
        nodes.remove("models-far")


@pytest.mark.matrix
@pytest.mark.usefixtures("on_node_1")
def test_nodes_that_do_not_reach_each_other_send_through_this_machine(
    sparkops: Cli, nodes: RealFleet, recipe: Path, tmp_path: Path
) -> None:
    with beside(nodes, tmp_path) as (far, inventory):
        far.cut(nodes.node("node-1"))
        ran = Cli(inventory, sparkops.state)("models", "copy", recipe, "--from", "node-1", "--json")

        assert sent(ran, "models-far") > 50 * MIB
        assert "no direct route from node-1 to models-far; relaying through this machine" in ran.err
        assert digest(nodes.node("node-1")) == digest(far)


@pytest.mark.usefixtures("on_node_1")
def test_a_node_that_cannot_be_reached_does_not_hide_the_others(with_inventory: Callable[..., Cli]) -> None:
    sparkops = with_inventory(lambda data: data["nodes"]["node-2"].update(address="127.0.0.1", port=9))
    listed = sparkops("models", "list")

    assert listed.code == 5
    assert OURS in listed.out
    assert "node-2: cannot connect to ops@127.0.0.1:9" in listed.err
    assert "cannot connect" in sparkops("models", "list", "--json").json["nodes"]["node-2"]["error"]


DAMAGE = {
    f"{SHARD} is truncated: ": f"truncate -s -1000 {SHARD}",
    f"{SHARD} has ": f"echo more >> {SHARD}",
    f"{SHARD} is missing, but listed in {INDEX}": f"rm {SHARD}",
    f"{INDEX} lacks all tensors of {SHARD}": f'sed -i \'s/, "layers.2.weight": "{SHARD}"//\' {INDEX}',
    "no config.json": "rm config.json",
}


@pytest.mark.matrix
@pytest.mark.usefixtures("on_node_1")
def test_what_is_damaged_is_named_and_no_deploy_counts_on_it(sparkops: Cli, nodes: RealFleet, recipe: Path) -> None:
    node = nodes.node("node-1")
    for reason, damage in DAMAGE.items():
        node.exec("sh", "-c", f"cd /srv/models && cp -a {OURS} {OURS}-kept && cd {OURS} && {damage}")
        refused = sparkops("models", "verify", recipe)
        assert (refused.code, refused.out) == (1, ""), reason
        assert f"node-1: {OURS}: {reason}" in refused.err
        planned = sparkops("deploy", recipe, "--node", "node-1")
        assert planned.code == 5
        assert f"node-1: the weights in /srv/models/{OURS}: {reason}" in planned.err
        assert "next: sparkops up tiny-qwen3-cpu --node node-1" in planned.err
        node.exec("sh", "-c", f"cd /srv/models && rm -r {OURS} && mv {OURS}-kept {OURS}")
    assert sparkops("models", "verify", recipe).code == 0


@pytest.mark.matrix
@pytest.mark.usefixtures("on_node_1")
def test_a_damaged_copy_is_mended_from_a_good_one(sparkops: Cli, nodes: RealFleet, recipe: Path) -> None:
    target = nodes.node("node-2")
    sent(sparkops("models", "copy", recipe, "--from", "node-1", "--json"))
    target.exec("truncate", "-s", "1000", f"/srv/models/{OURS}/{SHARD}")
    target.exec("sh", "-c", f"printf x | dd of=/srv/models/{OURS}/tokenizer.json conv=notrunc status=none")

    new = sent(sparkops("models", "copy", recipe, "--from", "node-1", "--json"))
    assert 12 * MIB < new < 14 * MIB  # one shard of four
    assert sent(sparkops("models", "copy", recipe, "--from", "node-1", "--checksum", "--json")) == len('{"a": 1}')
    assert digest(nodes.node("node-1")) == digest(target)
