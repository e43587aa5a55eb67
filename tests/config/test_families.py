"""Recipes by service: their order, the first of a family, and what differs from its base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import recipe_file, shipped
from sparkops.config.families import Family, families
from sparkops.config.recipe import Recipe
from tests.examples import CUDA, RECIPE


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(file: str, **changes: Any) -> Recipe:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({**RECIPE, "name": path.stem, **changes}))
    return recipe_file.load(path)


def overlay(file: str, base: str, **changes: Any) -> Recipe:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    own = {"name": path.stem, "extends": base, "description": "A variant", "verified": "Nothing yet."}
    path.write_text(yaml.safe_dump({**own, **changes}))
    return recipe_file.load(path)


def cuda(version: str) -> dict[str, Any]:
    return {**RECIPE["image"], "torch": CUDA, "vllm": f"vllm=={version}"}


def test_the_newest_vllm_comes_first_and_what_needs_no_gpu_last() -> None:
    """By number, not by text: 0.9 is older than 0.23. A family counts as new as its newest recipe.

    A finished image without a version is used where no release runs the model, so it is the newest.
    """
    made = [
        read("recipes/a.yaml", service="cpu", image={**RECIPE["image"], "vllm": "vllm==0.99.0"}),
        read("recipes/b.yaml", service="old", image=cuda("0.9.0")),
        read("recipes/c.yaml", service="mixed", image=cuda("0.19.2rc1.dev154")),
        read("recipes/d.yaml", service="mixed", image=cuda("0.30.0")),
        read("recipes/h.yaml", service="mixed", image=cuda("0.9.0")),
        read("recipes/e.yaml", service="new", image=cuda("0.23.0")),
        read("recipes/f.yaml", service="alike", image=cuda("0.23.0")),
        read("recipes/g.yaml", service="unknown", image={"use": "nvcr.io/nvidia/vllm:v0.1"}),
        read("recipes/i.yaml", service="official", image={"use": "docker.io/vllm/vllm-openai:v0.24.0-ubuntu2404"}),
        read("recipes/j.yaml", service="old", image={"use": "nvcr.io/nvidia/vllm:v0.1"}),
    ]

    listed = [(family.service, family.release) for family in families(made)]

    assert listed == [
        ("unknown", ""),
        ("mixed", "0.30.0"),
        ("official", "0.24.0"),
        ("alike", "0.23.0"),
        ("new", "0.23.0"),
        ("old", "0.9.0"),
        ("cpu", "0.99.0"),
    ]


def test_of_the_shipped_families_one_on_a_build_of_others_is_first_and_another_engine_is_after_every_vllm() -> None:
    listed = [family.service for family in families(map(recipe_file.load, shipped.recipes().values()))]

    assert listed.index("glm-5.3-flash") < listed.index("mimo-v2.6-flash") < listed.index("gpt-oss-120b")
    assert listed.index("qwen3.6-27b") < listed.index("nemotron-3-nano") < listed.index("tiny")


def test_the_first_of_a_family_is_the_one_outside_the_folder() -> None:
    base = read("recipes/q.yaml")
    made = [overlay(f"recipes/chat/{name}.yaml", "q") for name in ("a", "z")]

    [family] = families([*made, base])

    assert (family.first, [one.name for one in family.recipes]) == (base, ["q", "a", "z"])


def differs(*made: Recipe, of: str) -> tuple[str | None, dict[str, Any]]:
    variants = {variant.recipe.name: variant for family in families(made) for variant in family.variants}
    return variants[of].base, dict(variants[of].differs)


def test_a_variant_differs_from_the_recipe_that_it_extends() -> None:
    args = {"max-model-len": 1024, "speculative-config": {"method": "mtp"}}
    base = read("recipes/q.yaml", serve={"args": args, "env": {"OMP_NUM_THREADS": "1"}})
    serve = {"args": {"max-model-len": 2048, "speculative-config": None}, "port": 9000, "env": None}
    middle = overlay("recipes/chat/middle.yaml", "q", serve=serve, memory={"claim_gib": 7.0, "basis": "another"})
    last = overlay("recipes/chat/last.yaml", "middle", expected={"tok_s": 3.0, "source": "log x"})

    assert differs(base, middle, last, of="q") == (None, {})
    assert differs(base, middle, last, of="last") == ("middle", {})
    assert differs(base, middle, last, of="middle") == (
        "q",
        {
            "memory.claim_gib": 7.0,
            "serve.args.max-model-len": 2048,
            "serve.args.speculative-config": None,
            "serve.env.OMP_NUM_THREADS": None,
            "serve.port": 9000,
        },
    )


def test_a_flag_that_is_a_mapping_is_shown_whole() -> None:
    draft = {"method": "mtp", "num_speculative_tokens": 2}
    base = read("recipes/q.yaml", serve={"args": {"speculative-config": {**draft, "num_speculative_tokens": 1}}})
    variant = overlay("recipes/r.yaml", "q", serve={"args": {"speculative-config": draft}})

    assert differs(base, variant, of="r") == ("q", {"serve.args.speculative-config": draft})


def test_a_recipe_of_its_own_is_compared_with_the_first_of_its_service() -> None:
    base, own = read("recipes/q.yaml"), read("recipes/r.yaml", serve={"port": 9000})

    assert differs(base, own, of="r") == ("q", {"serve.port": 9000})


def test_a_base_of_another_service_is_the_base() -> None:
    made = [read("recipes/q.yaml"), read("recipes/r.yaml", service="other")]
    variant = overlay("recipes/s.yaml", "q", service="other", serve={"port": 9000})

    assert differs(*made, variant, of="s") == ("q", {"serve.port": 9000})


def test_the_shipped_122b_is_one_family_led_by_the_recipe_outside_its_folder() -> None:
    by_service = {family.service: family for family in families(map(recipe_file.load, shipped.recipes().values()))}
    family: Family = by_service["qwen3.5-122b"]

    assert (family.first.name, len(family.variants)) == ("122b-autoround", 14)
    assert all(variant.differs for variant in family.variants[1:])
