"""Which image loads a model: releases of vLLM with their images, and the first versions that have a model type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkops.operator.convert import vllm_023, vllm_032

VERSION = re.compile(r"(?<![\d.])0\.(?:[89]|[1-9]\d)\.\d{1,2}(?![\d])")
"""A version of vLLM in the tag of an image; one before 0.8 is a version of the image itself."""
BASE = "nvidia/cuda:13.0.2-devel-ubuntu24.04"


@dataclass(frozen=True)
class Release:
    """A release of vLLM whose wheels sparkops builds into an image, and what its parser accepts."""

    version: str
    image: Mapping[str, Any]
    """`image` of a recipe."""
    transformers: str
    """The version of Transformers in that image."""
    flags: frozenset[str]
    choices: Mapping[str, frozenset[str]]
    """The values of flags that take one of a list."""


RELEASES = (
    Release(
        vllm_023.RELEASE,
        {
            "template": "vllm-wheels",
            "base": BASE,
            "torch": {"version": "2.11.0", "backend": "cu130", "local_version": False},
            "vllm": f"vllm=={vllm_023.RELEASE}",
            # Its wheel also permits 4.57.6, which builds for arm64 get without this line.
            "packages": ["transformers==5.5.3"],
        },
        "5.5.3",
        vllm_023.FLAGS,
        vllm_023.CHOICES,
    ),
    Release(
        vllm_032.RELEASE,
        {
            "template": "vllm-wheels",
            "base": BASE,
            "torch": {"version": "2.13.0", "backend": "cu130", "local_version": False},
            "vllm": f"vllm=={vllm_032.RELEASE}",
        },
        "5.16.1",
        vllm_032.FLAGS,
        vllm_032.CHOICES,
    ),
)
"""Oldest first. The first is the image of 122b-autoround, the second has the torch of qwen3.8-flash-next-nvfp4-tp2.

Torch and Transformers: Requires-Dist in the wheels' metadata (0.23.0: torch==2.11.0, transformers>=4.56.0 without 5.0
to 5.5.0; 0.32.0: torch==2.13.0, transformers>=5.16.1,<5.20.0).
"""


@dataclass(frozen=True)
class ModelType:
    """A model type by the names of its repositories, and the first versions that load it."""

    names: str
    """Pattern of the last part of a repository's name in lower case, with - for each . and _."""
    type: str
    """`model_type` in config.json."""
    vllm: str
    """The first vLLM of which a source says that it loads the type on this GPU, or the older of the two releases above
    if its wheel has the class and no source names an earlier version."""
    config: str
    """Package whose class reads config.json: vllm, or the first of 5.5.3 and 5.16.1 of Transformers; empty: neither has
    one, so that the code of the repository is needed."""
    source: str
    tokenizer: str = ""
    """Source of the fact that the tokenizer is code of the repository, which no package replaces; empty: none is known.
    """


REGISTRY = "vllm/model_executor/models/registry.py"
CONFIGS = "vllm/transformers_utils/config.py"
RECIPES = "vllm-project/recipes at 8959cf6, models/"
KIMI = "tokenization_kimi.py there (PrimeIntellect-ai/renderers#7, thinking-machines-lab/tinker-cookbook#784)"
KIMI_3 = "a TikTokenTokenizer there (Blaizzy/mlx-vlm#1787)"
TYPES = (
    ModelType("minimax-m3", "minimax_m3_vl", "0.24.0", "vllm", RECIPES + "MiniMaxAI/MiniMax-M3.yaml"),
    ModelType("minimax-m2", "minimax_m2", "0.20.2", "5.5.3", RECIPES + "MiniMaxAI/MiniMax-M2.5.yaml"),
    ModelType("nemotron.*puzzle", "nemotron_h_puzzle", "0.23.0", "", REGISTRY),
    ModelType("nemotron-3-5-lightning", "nemotron_h", "0.27.1", "5.5.3", RECIPES + "nvidia/NVIDIA-Nemotron-3.5-Light*"),
    ModelType(
        "nemotron-3-(nano|super|ultra)-[0-9]", "nemotron_h", "0.22.0", "5.5.3", RECIPES + "nvidia/NVIDIA-Nemotron-3-*"
    ),
    ModelType(
        "diffusiongemma", "diffusion_gemma", "0.24.0", "5.16.1", RECIPES + "Google/diffusiongemma-26B-A4B-it.yaml"
    ),
    ModelType("gemma-4-12b", "gemma4_unified", "0.23.0", "5.16.1", REGISTRY + " (vllm-project/vllm#46967)"),
    ModelType("gemma-4-(e[24]b|2[67]b|31b)", "gemma4", "0.23.0", "5.5.3", RECIPES + "Google/gemma-4-31B-it.yaml"),
    ModelType("gemma-3n", "gemma3n", "0.23.0", "5.5.3", REGISTRY),
    ModelType(
        "(med|translate)?gemma-(3|27b)", "gemma3", "0.14.1", "5.5.3", RECIPES + "Google/translategemma-27b-it.yaml"
    ),
    ModelType("glm-5-3", "glm5_next", "0.32.0", "5.16.1", REGISTRY),
    ModelType("glm-5(-[12])?(?!-?[0-9]|v)", "glm_moe_dsa", "0.23.0", "5.5.3", RECIPES + "zai-org/GLM-5.2.yaml"),
    ModelType("glm-4-7-flash", "glm4_moe_lite", "0.23.0", "5.5.3", REGISTRY),
    ModelType("glm-4-[56]v(?!-flash)", "glm4v_moe", "0.23.0", "5.5.3", REGISTRY),
    ModelType("glm-4-[5-7](?!v)", "glm4_moe", "0.11.0", "5.5.3", RECIPES + "zai-org/GLM-4.7.yaml"),
    ModelType("mistral-small-4", "mistral4", "0.20.0", "5.5.3", RECIPES + "mistralai/Mistral-Small-4-119B-2603.yaml"),
    ModelType("command-a-plus", "cohere2_moe", "0.23.0", "5.16.1", REGISTRY),
    ModelType("qwen3-8-flash-next", "qwen4_exp", "0.30.0", "5.16.1", "recipes/qwen3.8-flash-next-nvfp4-tp2.yaml"),
    ModelType("qwen3-[568]-(?!omni|asr|tts)|ornith-1", "qwen3_5", "0.17.0", "vllm", RECIPES + "Qwen/Qwen3.[568]-*"),
    ModelType("qwen3-(coder-)?next", "qwen3_next", "0.10.0", "vllm", RECIPES + "Qwen/Qwen3-Next-80B-A3B-Instruct.yaml"),
    ModelType("qwen3-vl-.*a[0-9]+b", "qwen3_vl_moe", "0.23.0", "5.5.3", REGISTRY),
    ModelType("qwen3-vl", "qwen3_vl", "0.11.0", "5.5.3", RECIPES + "Qwen/Qwen3-VL-235B-A22B-Instruct.yaml"),
    ModelType("qwen3-omni", "qwen3_omni_moe", "0.23.0", "5.5.3", REGISTRY),
    ModelType("qwen3-asr", "qwen3_asr", "0.23.0", "vllm", REGISTRY),
    ModelType("qwen3-(coder-)?[0-9]+b-a[0-9]+b", "qwen3_moe", "0.23.0", "5.5.3", REGISTRY),
    ModelType(
        "qwen3-((embedding|reranker)-)?[0-9]+(-[0-9])?b", "qwen3", "0.8.5", "5.5.3", RECIPES + "Qwen/Qwen3-32B.yaml"
    ),
    ModelType("qwen2-5-omni", "qwen2_5_omni", "0.23.0", "5.5.3", REGISTRY),
    ModelType("qwen2-5-vl", "qwen2_5_vl", "0.23.0", "5.5.3", REGISTRY),
    ModelType("qwen2-vl", "qwen2_vl", "0.23.0", "5.5.3", REGISTRY),
    ModelType("qwen2-[0-9]+b-a[0-9]+b", "qwen2_moe", "0.23.0", "5.5.3", REGISTRY),
    ModelType("qwen2-(5-)?((coder|math)-)?[0-9]+(-[0-9])?b", "qwen2", "0.23.0", "5.5.3", REGISTRY),
    ModelType("gpt-oss", "gpt_oss", "0.10.0", "5.5.3", RECIPES + "openai/gpt-oss-120b.yaml"),
    ModelType("deepseek-v4-1", "deepseek_v41", "0.32.0", "vllm", REGISTRY),
    ModelType(
        "deepseek-v4(?!-[0-9](-|$))", "deepseek_v4", "0.24.0", "vllm", "recipes/deepseek-v4-flash-tp2.yaml (PR 43477)"
    ),
    ModelType("step-3-7", "step3p7", "0.23.0", "5.16.1", RECIPES + "stepfun-ai/Step-3.7-Flash.yaml"),
    ModelType("step-3-5", "step3p5", "0.11.0", "vllm", RECIPES + "stepfun-ai/Step-3.5-Flash.yaml"),
    ModelType("hy3", "hy_v3", "0.26.0", "5.16.1", RECIPES + "tencent/Hy3.yaml"),
    ModelType("laguna-s", "laguna", "0.25.0", "5.16.1", RECIPES + "poolside/Laguna-S-2.1.yaml"),
    ModelType("kimi-k3", "kimi_k3", "0.32.0", "vllm", REGISTRY, KIMI_3),
    ModelType("kimi-k2-[57]", "kimi_k25", "0.19.1", "vllm", RECIPES + "moonshotai/Kimi-K2.5.yaml", KIMI),
    ModelType("kimi-k2-6", "kimi_k25", "0.25.0", "vllm", RECIPES + "moonshotai/Kimi-K2.6.yaml", KIMI),
    ModelType("kimi-k2-(instruct|thinking|base)", "kimi_k2", "0.23.0", "vllm", CONFIGS, KIMI),
    ModelType("mimo-v2-5", "mimo_v2", "0.21.0", "", RECIPES + "XiaomiMiMo/MiMo-V2.5.yaml"),
    ModelType("inkling", "inkling_mm_model", "0.26.0", "vllm", RECIPES + "thinkingmachines/Inkling-Small.yaml"),
    ModelType("muse-glimmer", "muse_glimmer", "0.27.0", "vllm", RECIPES + "meta-models/Muse-Glimmer-30B.yaml"),
    ModelType("llama-3-[0-9]-nemotron-nano-vl", "Llama_Nemotron_Nano_VL", "0.23.0", "", CONFIGS),
    ModelType("llama-3-[0-9]-nemotron-(51b|super|ultra)", "nemotron-nas", "0.23.0", "", REGISTRY),
    ModelType("llama-4", "llama4", "0.23.0", "5.5.3", REGISTRY),
    ModelType(
        "llama-([23](-[0-9])?-)?(nemotron-(70b|nano-[48]b)|[0-9]+b)(?!.*vision)", "llama", "0.23.0", "5.5.3", REGISTRY
    ),
    ModelType("nomic-embed-text", "nomic_bert", "0.23.0", "5.5.3", REGISTRY),
)
"""The first that matches counts. A name that fits no fact has none: the newest release loads most such models, and an
older one loads a type that came after it never. So a pattern ends where another type begins.

vLLM: min_vllm_version in vllm-project/recipes, a shipped recipe, or the list of models in the wheel. Configuration:
vllm/transformers_utils/config.py of the wheels, models/auto of Transformers 5.5.3 and 5.16.1. Read on 25 November 2026;
`python -m tests.lab.arguments.model_types` compares the configurations with the wheels again.
"""


def model_type(model: str) -> ModelType | None:
    """Return the type of a model by the name of its repository; None if no fact says."""
    name = re.sub("[._]", "-", model.rstrip("/").rpartition("/")[2].partition(":")[0].lower())
    return next((known for known in TYPES if re.search(rf"(?:^|-)(?:{known.names})", name)), None)


def stated(container: object) -> str:
    """Return the version of vLLM that the tag of an image states, such as vllm/vllm-openai:v0.25.1; empty if none."""
    repository, _, tag = str(container or "").partition("@")[0].rpartition(":")
    version = VERSION.search(tag)
    return version[0] if version and "vllm" in repository.lower() else ""


def preference(release: Release, known: ModelType | None, original: str) -> tuple[bool, int]:
    """Return the rank of a release for a model, the lowest first.

    The vLLM of the original loads the model, and so does a newer one: the nearest of them is first. Without it, the
    oldest that a fact allows, and the newest where no fact says which type the model is.
    """
    if original:
        return numbers(release.version) < numbers(original), RELEASES.index(release)
    return False, RELEASES.index(release) * (1 if known else -1)


def loads(release: Release, known: ModelType) -> bool:
    """Return whether a release has the classes of a model type."""
    has_config = known.config in ("", "vllm") or numbers(release.transformers) >= numbers(known.config)
    return has_config and numbers(release.version) >= numbers(known.vllm)


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version."""
    return tuple(map(int, version.split(".")))
