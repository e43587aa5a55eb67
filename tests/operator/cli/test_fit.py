"""`fit` as a user meets it, on this machine as the only node: what it prints, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import lock, recipe_file
from sparkops.config.lock import Described, Lock, Parent
from tests.examples import RECIPE, recipe
from tests.hub_server import COMMIT, hub
from tests.operator.cli.conftest import Sparkops
from tests.operator.deploy.memory.configs import TINY
from tests.safetensors import checkpoint, tensor

pytestmark = pytest.mark.local
SERVE = {"args": {"max-model-len": 1024}, "env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}


@pytest.fixture
def root(tmp_path: Path, idle_docker: None, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: ARG001 - its Docker
    """This machine with the recipe q, whose model it does not have, and no hub."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    inventory = f"nodes:\n  here: {{transport: local, model_dir: {tmp_path}/models}}\n"
    (tmp_path / "inventory.yaml").write_text(inventory)
    (tmp_path / "q.yaml").write_text(yaml.safe_dump({**RECIPE, "serve": SERVE}))
    (tmp_path / "models").mkdir()
    return tmp_path


def give_model(root: Path, config: dict[str, Any] = TINY) -> None:
    shards = {"model.safetensors": {"model.layers.0.mlp.up_proj.weight": tensor("BF16", [512, 1024])}}
    checkpoint(root / "models/q", shards, config)


def test_a_recipe_that_fits(sparkops: Sparkops, root: Path) -> None:
    give_model(root)

    ran = sparkops("fit", "q.yaml")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("here: fits an empty node\n  model         2 full attention (here: ")
    assert "KV cache      1.0 GiB = 2,097,152 tokens" in ran.out
    assert "2048.00 requests of 1,024 tokens" in ran.out
    assert "old and new   two releases of this size, 15 GiB reserve, nothing else: " in ran.out


def test_json_and_a_value_for_this_time(sparkops: Sparkops, root: Path) -> None:
    give_model(root)

    ran = sparkops("fit", "q.yaml", "--json", "--set", "args.max-model-len=2048")

    assert ran.code == 0
    assert ran.json["recipe"] == "q"
    [node] = ran.json["nodes"]
    assert (node["node"], node["fits"], node["kv_cache"]["requests"]) == ("here", True, 1024.0)


def test_a_recipe_that_does_not_fit_ends_with_1_and_a_next_step(sparkops: Sparkops, root: Path) -> None:
    give_model(root)

    ran = sparkops("fit", "q.yaml", "--set", "env.VLLM_CPU_KVCACHE_SPACE=900")

    assert ran.code == 1
    assert "GiB in total: " in ran.out.splitlines()[0]
    assert ran.err == "  next: Lower kv-cache-memory-bytes or max-model-len of q.yaml, or use a smaller model.\n"


def test_without_a_model_and_without_a_lock_it_refuses(sparkops: Sparkops, root: Path) -> None:
    ran = sparkops("fit", "q.yaml")

    where = f"{root}/models/q"
    assert (ran.code, ran.out) == (5, "")
    assert (
        f"here: memory unknown: no config.json in {where}, no description of org/q in a lock; org/q: the hub" in ran.err
    )
    assert "next: Use a node with internet (--node), or a mirror (--endpoint).\n" in ran.err
    assert "next: sparkops models pull q.yaml --node here" in ran.err
    assert "next: or, if a node has it: sparkops recipe lock q.yaml --node NODE" in ran.err


def lock_model(root: Path) -> None:
    described = Described(model="org/q", config=TINY, tensors={"w": 1 << 30}, largest_bytes=1 << 30)
    whole = Lock(
        made_for=lock.fingerprint(recipe().image),
        machine="x86_64",
        parent=Parent(name=recipe().image.parent),
        whole=True,
        checkpoint=described,
    )
    (root / "q.lock").write_text(recipe_file.lock_text("q", whole))


def test_a_lock_stands_in_for_the_model(sparkops: Sparkops, root: Path) -> None:
    lock_model(root)

    ran = sparkops("fit", "q.yaml")

    assert ran.code == 0
    assert "2 full attention (q.lock)" in ran.out
    assert "weights       1.0 GiB per rank" in ran.out


def test_a_model_is_described_by_its_hub_before_it_is_downloaded(sparkops: Sparkops, root: Path) -> None:
    give_model(root)
    (root / "models/q").rename(root / "at-hub")

    with hub({"org/q": root / "at-hub"}) as served:
        ran = sparkops("fit", "q.yaml", "--endpoint", served.url)

    assert (ran.code, ran.err) == (0, "")
    assert f"2 full attention (org/q at the hub, {COMMIT[:12]})" in ran.out
    assert list((root / "models").iterdir()) == []
