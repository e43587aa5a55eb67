"""`fit` as a user meets it, on this machine as the only node: what it prints, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import lock
from sparkops.config.lock import Described, Lock, Parent
from tests.cli.here import Here, install
from tests.examples import RECIPE, recipe
from tests.memory.configs import TINY
from tests.safetensors import checkpoint, tensor

pytestmark = pytest.mark.local
SERVE = {"args": {"max-model-len": 1024}, "env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}


@pytest.fixture
def here(tmp_path: Path) -> Here:
    """This machine with the recipe q, whose model it does not have."""
    made = install(tmp_path)
    inventory = f"nodes:\n  here: {{transport: local, model_dir: {tmp_path}/models}}\n"
    (tmp_path / "inventory.yaml").write_text(inventory)
    (tmp_path / "q.yaml").write_text(yaml.safe_dump({**RECIPE, "serve": SERVE}))
    (tmp_path / "models").mkdir()
    return made


def give_model(here: Here, config: dict[str, Any] = TINY) -> None:
    shards = {"model.safetensors": {"model.layers.0.mlp.up_proj.weight": tensor("BF16", [512, 1024])}}
    checkpoint(here.directory / "models/q", shards, config)


def test_a_recipe_that_fits(here: Here) -> None:
    give_model(here)

    ran = here("fit", "q.yaml")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("here: fits\n  model         2 full attention (here: ")
    assert "KV cache      1.0 GiB = 2,097,152 tokens" in ran.out
    assert "2048.00 requests of 1,024 tokens" in ran.out
    assert "old and new   two releases of this size, 15 GiB reserve: " in ran.out


def test_json_and_a_value_for_this_time(here: Here) -> None:
    give_model(here)

    ran = here("fit", "q.yaml", "--json", "--set", "args.max-model-len=2048")

    assert ran.code == 0
    assert ran.json["recipe"] == "q"
    [node] = ran.json["nodes"]
    assert (node["node"], node["fits"], node["kv_cache"]["requests"]) == ("here", True, 1024.0)


def test_a_recipe_that_does_not_fit_ends_with_1_and_a_next_step(here: Here) -> None:
    give_model(here)

    ran = here("fit", "q.yaml", "--set", "env.VLLM_CPU_KVCACHE_SPACE=900")

    assert ran.code == 1
    assert "GiB in total: " in ran.out.splitlines()[0]
    assert ran.err == "  next: Lower kv-cache-memory-bytes or max-model-len of q, or use a smaller model.\n"


def test_without_a_model_and_without_a_lock_it_refuses(here: Here) -> None:
    ran = here("fit", "q.yaml")

    where = f"{here.directory}/models/q"
    assert (ran.code, ran.out) == (5, "")
    assert f"here: memory unknown: no config.json in {where}, no description of org/q in a lock\n" in ran.err
    assert "next: sparkops models pull q --node here" in ran.err
    assert "next: or, where a node has it: sparkops lock q --node NODE" in ran.err


def test_a_lock_stands_in_for_the_model(here: Here) -> None:
    described = Described(model="org/q", config=TINY, tensors={"w": 1 << 30}, largest_bytes=1 << 30)
    whole = Lock(
        made_for=lock.fingerprint(recipe().image),
        machine="x86_64",
        parent=Parent(name=recipe().image.base),
        whole=True,
        checkpoint=described,
    )
    (here.directory / "q.lock").write_text(lock.text("q", whole))

    ran = here("fit", "q.yaml")

    assert ran.code == 0
    assert "2 full attention (q.lock)" in ran.out
    assert "weights       1.0 GiB per rank" in ran.out


def test_a_model_without_a_rule_is_refused_with_its_field(here: Here) -> None:
    give_model(here, {**TINY, "compress_ratios": [4]})

    ran = here("fit", "q.yaml")

    assert ran.code == 5
    assert "here: memory unknown: config.json: compress_ratios: not supported" in ran.err


def test_an_engine_without_rules_is_refused(here: Here) -> None:
    ran = here("fit", "122b-heretic-atlas")

    assert ran.code == 5
    assert "122b-heretic-atlas: memory unknown: no rules for the engine atlas, only for vllm" in ran.err
