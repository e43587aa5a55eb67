"""The shipped recipes together: every system of the sources is there, and each is held to what is known of a Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import assets, overlay, recipe_file, shipped
from sparkops.config.assets import BuildInputs
from sparkops.config.recipe import Recipe
from sparkops.engines import ENGINES
from sparkops.operator.build.render.context import build_context
from sparkops.serving.memory import bound

FILES = shipped.recipes()
RECIPES = {name: recipe_file.load(file) for name, file in FILES.items()}
SPARKS = {name: shipped_recipe for name, shipped_recipe in RECIPES.items() if shipped_recipe.backend != "cpu"}
EVERY = pytest.mark.parametrize("shipped_recipe", RECIPES.values(), ids=RECIPES)
SPARK = pytest.mark.parametrize("shipped_recipe", SPARKS.values(), ids=SPARKS)

SHOWN_GIB = 121.7
"""What a Spark shows of its 128 GB: facts/spark.md, 2.1."""
HOST_GIB = 5.0
"""What an engine takes beside the part that vLLM counts: 5 to 5.6, ibid."""
FROZE_GB = 78
"""Weights of this size and fastsafetensors froze a whole Spark at 0.84; 67 at 0.85 and 71 at 0.88 went well."""

SYSTEMS = {
    "NVFP4": "122b-nvfp4-sehyo 122b-nvfp4-sehyo-32k 122b-nvfp4-txn545 122b-nvfp4-redhat 122b-nvfp4-bjk110",
    "INT4": "122b-autoround 122b-autoround-mtp1 122b-autoround-hybrid 122b-autoround-hybrid-mtp1 122b-autoround-v2",
    "INT4 with a small KV cache": "122b-autoround-v2-tq",
    "heretic": "122b-heretic-vllm 122b-heretic-atlas",
    "pairs of 122B": "122b-autoround-tp2 122b-autoround-tp2-mp 122b-fp8-tp2",
    "larger pairs": "qwen3-235b-gptq-tp2 397b-nvfp4-tp2 397b-int4-tp2 deepseek-v4-flash-tp2",
    "others": "qwen3.6-35b-fp8 qwen3.6-27b-fp8 qwen3-30b-a3b gpt-oss-120b gemma4-31b-it",
    "of autumn 2026": "qwen3.6-35b-nvfp4 qwen3.8-27b-fp8 qwen3.8-flash-next-nvfp4-tp2 nemotron-3.5-lightning-nvfp4",
    "on images of others": "qwen3.8-27b-nvfp4 qwen3.8-flash-next-nvfp4",
    "a pair of autumn 2026": "mimo-v2.6-flash-tp2",
    "pairs on images of others": "deepseek-v4-flash-0731-tp2 glm-5.3-flash-nvfp4-tp2",
    "three, four and eight": ("mimo-v2.6-flash-pp3 nemotron-3-ultra-nvfp4-tp4 qwen3.8-flash-next-tp4 glm-5-fp8-tp8"),
    "of SGLang": "qwen3.8-27b-nvfp4-sglang deepseek-v4-flash-0731-sglang-tp2",
    "on vLLM's own image": "nemotron-3-super-nvfp4",
    "retrieval": "qwen3-vl-embedding-8b qwen3-vl-reranker-8b",
    "llama.cpp": "nemotron-3-nano-30b-gguf",
    "without a GPU": "tiny-llama-cpp-cpu tiny-qwen3-cpu tiny-qwen3-cpu-tp2 tiny-qwen3-cpu-tp2-mp stand-in",
}
DRAFTING = (
    *("Sehyo", "AutoRound", "hybrid", "Qwen3.6", "Qwen3.8", "V4-Flash-0731", "GLM-5.3-Flash-NVFP4-Spark"),
    *("Nemotron-3-Super", "Nemotron-3-Ultra"),
)
"""Parts of the paths of checkpoints that have a draft head."""
# Arguments of Atlas's `serve` that the recipes may use, from its own help (Avarok-Cybersecurity/atlas, serve_args.rs).
ATLAS = {"max-seq-len", "max-prefill-tokens", "max-batch-size", "gpu-memory-utilization", "tool-call-parser"}
ATLAS |= {
    "max-num-seqs",
    "kv-cache-dtype",
    "kv-high-precision-layers",
    "scheduling-policy",
    "speculative",
    "num-drafts",
}


def test_every_system_of_the_sources_has_a_recipe_and_no_recipe_is_beside_them() -> None:
    assert set(" ".join(SYSTEMS.values()).split()) == set(RECIPES)


@EVERY
def test_everything_that_a_build_needs_is_there(shipped_recipe: Recipe) -> None:
    context = build_context(shipped_recipe, assets.load_templates(), assets.load_mods(), BuildInputs())

    assert "Dockerfile" in dict(context.files)


@SPARK
def test_a_claim_covers_what_the_engine_is_told_to_take(shipped_recipe: Recipe) -> None:
    assert shipped_recipe.memory.claim_gib < SHOWN_GIB
    if not ENGINES[shipped_recipe.engine].share_flag:
        return
    share = float(shipped_recipe.serve.args[ENGINES[shipped_recipe.engine].share_flag])
    assert share * SHOWN_GIB + HOST_GIB <= shipped_recipe.memory.claim_gib
    if "kv-cache-memory-bytes" not in shipped_recipe.serve.args:  # with it vLLM ignores the share
        beside_gib = 15 if shipped_recipe.engine == "sglang" else 9  # graphs and activations are not in its share
        assert shipped_recipe.memory.claim_gib < share * SHOWN_GIB + beside_gib
    assert not [*bound.refusals(shipped_recipe, "n1", SHOWN_GIB)]


@SPARK
def test_a_spark_with_64_gb_is_refused_with_the_arithmetic(shipped_recipe: Recipe) -> None:
    """Such a node shows about 60.8 GiB, half of what a Spark with 128 GB shows."""
    claim = shipped_recipe.memory.claim_gib
    if claim < 60.8 - 4:  # 4 GiB stay free
        assert not [*bound.refusals(shipped_recipe, "n1", 60.8)]
        return
    [error] = bound.refusals(shipped_recipe, "n1", 60.8)

    assert str(error) == f"n1: {claim:g} GiB claimed, 60.8 GiB in total: {claim - 60.8:.1f} GiB short"


@SPARK
def test_weights_fit_into_the_claim_of_each_node(shipped_recipe: Recipe) -> None:
    gib = (shipped_recipe.model.size_gb or 0) * 1e9 / 2**30

    assert gib / shipped_recipe.serve.ranks < shipped_recipe.memory.claim_gib


@SPARK
def test_large_weights_are_not_staged_through_the_gpu(shipped_recipe: Recipe) -> None:
    if shipped_recipe.serve.args.get("load-format") == "fastsafetensors":
        share = shipped_recipe.serve.args["gpu-memory-utilization"]

        assert (shipped_recipe.model.size_gb or 0) / shipped_recipe.serve.ranks < FROZE_GB
        assert share <= 0.85


@SPARK
def test_a_figure_has_its_source_and_a_recipe_without_figures_says_so(shipped_recipe: Recipe) -> None:
    """Nobody here has a Spark: what a figure is from must be somebody else's words."""
    source = shipped_recipe.expected.source if shipped_recipe.expected else shipped_recipe.verified

    assert any(
        word in source for word in ("rticle", "log ", "orum", "albond", "README", "https://", "source", "sources")
    )
    assert shipped_recipe.verified.startswith("Nothing on a Spark")


@EVERY
def test_a_name_says_over_how_many_nodes_a_recipe_runs_and_how_it_splits(shipped_recipe: Recipe) -> None:
    serve = shipped_recipe.serve
    sizes = {"tp": serve.tensor_parallel, "pp": serve.pipeline_parallel}

    named = {way: int(size) for way, size in re.findall(r"-(tp|pp)(\d+)(?=-|$)", shipped_recipe.name)}
    assert named == {way: size for way, size in sizes.items() if size > 1}
    assert shipped_recipe.name.endswith("-mp") <= (shipped_recipe.serve.executor == "mp")


@EVERY
def test_a_ray_cluster_needs_ray_in_the_image_and_other_ranks_do_not(shipped_recipe: Recipe) -> None:
    if shipped_recipe.serve.ranks > 1:
        has = any(package.startswith("ray[default]==") for package in shipped_recipe.image.packages)

        assert has == (shipped_recipe.serve.executor == "ray")


@EVERY
def test_drafts_are_for_checkpoints_and_engines_that_can(shipped_recipe: Recipe) -> None:
    """The head is in these checkpoints, or in a draft beside them; b12x has its own attention, else FlashInfer's."""
    drafting = shipped_recipe.serve.args.get("speculative-config")
    if isinstance(drafting, dict):
        assert shipped_recipe.model.draft or any(part in shipped_recipe.model.path for part in DRAFTING)
        known = ("FLASHINFER", "B12X", drafting.get("attention_backend"))
        assert shipped_recipe.serve.args.get("attention-backend", "FLASHINFER") in known


@EVERY
def test_a_draft_beside_the_model_is_the_one_that_the_engine_reads(shipped_recipe: Recipe) -> None:
    drafting = shipped_recipe.serve.args.get("speculative-config")
    named = drafting.get("model") if isinstance(drafting, dict) else None
    named = named or shipped_recipe.serve.args.get("speculative-draft-model-path")

    assert named == (f"/models/{shipped_recipe.model.draft.path}" if shipped_recipe.model.draft else None)


def test_atlas_gets_arguments_that_atlas_has() -> None:
    used = {
        flag
        for shipped_recipe in RECIPES.values()
        if shipped_recipe.engine == "atlas"
        for flag in shipped_recipe.serve.args
    }

    assert used
    assert used <= ATLAS


def test_releases_of_one_service_share_its_port_and_services_do_not_get_in_each_others_way() -> None:
    """The gateway has the port of a service, its blue and green engine the next two."""
    ports = {(shipped_recipe.service, shipped_recipe.serve.port) for shipped_recipe in RECIPES.values()}
    taken = sorted(port + slot for _, port in ports for slot in range(3))

    assert len(ports) == len({service for service, _ in ports})
    assert len(taken) == len(set(taken))


@EVERY
def test_an_image_of_somebody_else_is_known_by_a_version(shipped_recipe: Recipe) -> None:
    tag = shipped_recipe.image.parent.rpartition(":")[2]

    assert tag not in ("latest", shipped_recipe.image.parent)
    if shipped_recipe.image.template == "atlas":
        assert "@sha256:" in shipped_recipe.image.parent


def test_what_a_variant_is_measured_by_is_its_own() -> None:
    """The speed of 122b-autoround says nothing of a variant; a wrong one would fail or pass the smoke suite's floor."""
    speeds = [
        shipped_recipe.expected.tok_s
        for shipped_recipe in RECIPES.values()
        if "autoround" in shipped_recipe.name and shipped_recipe.expected
    ]

    assert len(speeds) == len(set(speeds))


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_a_recipe_reads_well(file: Path) -> None:
    text = file.read_text()

    assert text.startswith("# ")
    assert max(map(len, text.splitlines())) <= 120
    assert "\t" not in text


@pytest.mark.parametrize("name", [name for name, shipped_recipe in RECIPES.items() if shipped_recipe.extends])
def test_an_overlay_states_only_what_differs_from_its_base(name: str) -> None:
    own = yaml.safe_load(FILES[name].read_text())
    base = overlay.read(FILES[own["extends"]]).data
    assert isinstance(base, dict)
    inherited = {key: value for key, value in base.items() if key not in overlay.OWN}

    repeated = [
        key for key, value in leaves(own).items() if key in (of_base := leaves(inherited)) and of_base[key] == value
    ]
    assert repeated == []


def leaves(data: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return the values of nested mappings by their path."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in data.items():
        found |= leaves(value, (*path, key)) if isinstance(value, dict) else {(*path, key): value}
    return found


def test_the_variants_of_the_122b_model_are_in_a_folder_beside_the_first_one() -> None:
    """And each is found by the name that it had before."""
    variants = {name for name in FILES if name.startswith("122b-")}

    assert {name: FILES[name].parent.name for name in variants} == {
        name: "recipes" if name == "122b-autoround" else "qwen3.5-122b" for name in variants
    }
    assert len(variants) == 16
