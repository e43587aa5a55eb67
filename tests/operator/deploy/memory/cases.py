"""Every published figure about memory that sparkops can be held to: what it predicts, and what was measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkops.config.recipe import Recipe
from sparkops.config.recipe_file import load
from sparkops.config.shipped import recipes
from sparkops.engines.needs import Layout
from sparkops.engines.vllm.memory import cache
from sparkops.engines.vllm.memory.cache import Serving
from sparkops.engines.vllm.memory.shape import parse
from sparkops.engines.vllm.memory.weights import rank_gib
from sparkops.operator.build.weights.description import Description
from sparkops.operator.deploy.memory import fit
from sparkops.operator.deploy.memory.fit import Fit
from sparkops.serving.memory.bound import OUTSIDE_GIB
from sparkops.serving.memory.pools import Room
from tests.examples import CUDA, recipe
from tests.operator.deploy.memory import configs
from tests.operator.deploy.memory.tensors import BF16, FP8, INT4, MXFP4, NVFP4, tensors
from tests.places import ROOT

LOGS = ROOT / "tests/captured"
GB, GIB = 10**9, 2**30
ROPE_122B_GIB = parse(configs.QWEN_122B).rope_elements * 2 / GIB
"""RoPE tables of Qwen3.5-122B, which are in the measured size of loaded weights."""
SPARK_GIB, H100_GIB = 121.7, 79.18
SPARK = Room("spark", SPARK_GIB, SPARK_GIB, 5.0, shared=True)
ARTICLE, POST, ALBOND, LABS, HERETIC = "article", "post", "albond", "labs", "heretic"
"""Sources by their names in tests/operator/deploy/memory/evidence.md."""
FITTED = "fitted: a constant of sparkops comes from this figure"


@dataclass(frozen=True)
class Case:
    """One figure. `missing` names the input without which the prediction is off or absent."""

    what: str
    unit: str
    measured: float
    source: str
    predicted: float | None = None
    missing: str = ""
    most: float | None = None
    """The end of the range that is printed, where `predicted` is only its begin."""

    @property
    def holds(self) -> bool:
        """Whether the measured figure lies in the range that is printed."""
        return self.most is not None and self.predicted is not None and self.predicted <= self.measured <= self.most

    @property
    def error(self) -> float | None:
        """Relative error of the prediction."""
        return None if self.predicted is None else self.predicted / self.measured - 1


def autoround(*, drafts: bool = False, shared: float = BF16) -> Mapping[str, int]:
    """The tensors of the INT4 AutoRound checkpoint: linear layers in INT4 but for the shared experts (albond)."""
    return tensors(configs.QWEN_122B, INT4, INT4, shared, drafts=drafts)


def nvfp4(*, drafts: bool) -> Mapping[str, int]:
    """The tensors of an NVFP4 checkpoint whose routed experts alone have 4 bits (heretic: GDN layers BF16)."""
    return tensors(configs.QWEN_122B, NVFP4, BF16, BF16, drafts=drafts)


def size(sizes: Mapping[str, int], unit: int = GIB) -> float:
    """The size of a checkpoint."""
    return sum(sizes.values()) / unit


def shipped(name: str, *set_: str) -> Recipe:
    """A recipe of this project."""
    return load(recipes()[name], None, set_)


def of_vllm(original: Recipe, version: str) -> Recipe:
    """The same recipe with the vLLM of the measurement."""
    return original.model_copy(update={"image": original.image.model_copy(update={"vllm": f"vllm=={version}"})})


def predicted(candidate: Recipe, sizes: Mapping[str, int], node: str = "spark") -> Fit:
    """What sparkops says about an empty Spark."""
    description = Description(configs.QWEN_122B, sizes, 5 * GIB, f"{node}: /srv/models/{candidate.model.path}")
    return fit.fit(candidate, description, replace(SPARK, node=node))


def sehyo(node: str = "spark") -> Fit:
    """What sparkops says about the measured NVFP4 checkpoint."""
    return predicted(shipped("122b-nvfp4-sehyo"), _scaled(nvfp4(drafts=True), 76.02 - ROPE_122B_GIB), node)


def layout(config: configs.Config, serving: Serving) -> Layout:
    return cache.layout(parse(config), serving)


def weights() -> Iterator[Case]:
    """Weights: bytes of the tensors that config.json and the stated quantization give."""
    yield from _weights_of_122b()
    yield from _weights_of_others()


def _weights_of_122b() -> Iterator[Case]:
    whole = tensors(configs.QWEN_122B, BF16, BF16, BF16, drafts=True)
    drafts = size(autoround(drafts=True), GB) - size(autoround(), GB)
    yield Case("122B INT4 AutoRound, loaded", "GiB", 62.65, POST, size(autoround()))
    yield Case("122B INT4 AutoRound, its MTP head", "GB", 4.8, ALBOND, drafts)
    units = "the unit: the post writes GB; 67 GiB (72 GB) agree with its own 62.65 GiB + 4.8 GB"
    yield Case("122B INT4 AutoRound, on disk", "GB", 67, POST, size(autoround(drafts=True), GB), units)
    yield Case("122B hybrid INT4+FP8 with MTP, on disk", "GB", 71, ALBOND, size(autoround(drafts=True, shared=FP8), GB))
    yield Case("122B NVFP4 Sehyo with MTP, loaded", "GiB", 76.02, ARTICLE, size(nvfp4(drafts=True)))
    yield Case("122B NVFP4 Sehyo with MTP, on disk", "GB", 81.5, ARTICLE, size(nvfp4(drafts=True), GB))
    yield Case("122B NVFP4 txn545 without MTP, on disk", "GB", 78, POST, size(nvfp4(drafts=False), GB))
    yield Case("122B NVFP4 txn545, by its publisher", "GB", 75.6, ARTICLE, size(nvfp4(drafts=False), GB))
    bits = "which layers txn545 keeps in 16 bits, and a reading instead of `~63`: 78 GB on disk are 72.6 GiB"
    yield Case("122B NVFP4 txn545, loaded", "GiB", 63, POST, size(nvfp4(drafts=False)), bits)
    heads = "whether MTP is in the article's 76 GB: it drafted with the checkpoint's own heads, but says `~76GB` only"
    yield Case("122B NVFP4 heretic with MTP", "GB", 76, HERETIC, size(nvfp4(drafts=True), GB), heads)
    yield Case("122B NVFP4 heretic without MTP", "GB", 76, HERETIC, size(nvfp4(drafts=False), GB))
    yield Case("122B NVFP4 bjk110", "GB", 75, LABS, size(nvfp4(drafts=False), GB))
    yield Case("122B BF16, `~250GB`", "GB", 250, LABS, size(whole, GB))
    binary = "the unit: both write GB; 234 GiB (251 GB) agree with labs' other figure"
    yield Case("122B BF16, `234GB`", "GB", 234, f"{POST}, {LABS}", size(whole, GB), binary)


def _weights_of_others() -> Iterator[Case]:
    fp8_35b = tensors(configs.QWEN_35B, FP8, FP8, FP8, drafts=False)
    fp8_27b = tensors(configs.QWEN_27B, FP8, FP8, FP8, drafts=False)
    bf16_30b = tensors(configs.QWEN_30B, BF16, BF16, BF16, drafts=False)
    nvfp4_30b = tensors(configs.QWEN_30B, NVFP4, NVFP4, NVFP4, drafts=False)
    gptq = tensors(configs.QWEN_235B, INT4, INT4, INT4, drafts=False)
    mxfp4 = tensors(configs.GPT_OSS, MXFP4, BF16, BF16, drafts=False)
    mid = tensors(configs.MID, BF16, BF16, BF16, drafts=False)
    yield Case("235B GPTQ INT4, per node of two", "GiB", 57.64, LABS, rank_gib(gptq, 2, 4, drafts=False))
    yield Case("Qwen3.6-35B FP8", "GB", 35, LABS, size(fp8_35b, GB))
    extra = "which layers the publisher keeps in 16 bits, and whether MTP and vision are in its figure"
    yield Case("Qwen3.6-27B FP8", "GB", 28, LABS, size(fp8_27b, GB), extra)
    yield Case("Qwen3-30B BF16", "GB", 60, LABS, size(bf16_30b, GB))
    yield Case(
        "Qwen3-30B NVFP4",
        "GB",
        16,
        LABS,
        size(nvfp4_30b, GB),
        "the checkpoint: the source gives one range",
    )
    yield Case("gpt-oss-120b MXFP4", "GB", 61, LABS, size(mxfp4, GB))
    rope_gib = parse(configs.MID).rope_elements * 2 / GIB
    yield Case("1.4B BF16 on an H100, loaded", "GiB", 2.72, "vllm-0.23.0-cuda-h100-start-1.4B", size(mid) + rope_gib)


def reported_before_0_21(layout: Layout, blocks: int) -> int:
    """Return what vLLM up to 0.20 logs as GPU KV cache size: _report_kv_cache_config of 0.19.1."""
    return blocks // layout.groups * layout.block


def caches() -> Iterator[Case]:
    """KV cache of a known size: tokens and requests that vLLM logs for it."""
    sehyo = layout(configs.QWEN_122B, Serving(131072, 8192, dtype="fp8", prefix_caching=True, draft_tokens=2))
    blocks = sehyo.blocks(30.33)
    yield Case("122B NVFP4, 30.33 GiB: requests of 131,072", "", 12.89, ARTICLE, sehyo.requests(30.33))
    tokens = reported_before_0_21(sehyo, blocks)
    yield Case("122B NVFP4, 30.33 GiB: tokens (vLLM 0.19.2)", "", 595584, ARTICLE, tokens)
    plain = layout(configs.QWEN_122B, Serving(262144, 8192, prefix_caching=True))
    total = "the log's `Available KV cache memory`: 44.9 GiB is the post's own sum, with 128 GiB for 121.7"
    yield Case("122B AutoRound, 44.9 GiB: requests of 262,144", "", 5.57, POST, plain.requests(44.9), total)
    minimax = layout(configs.MINIMAX, Serving(196608, 8192, ranks=2))
    source = "eugr/spark-vllm-docker#396"
    yield Case("MiniMax-M2.7 on two nodes: one request of 196,608", "GiB", 23.25, source, minimax.request_gib)
    yield Case("MiniMax-M2.7 on two nodes, 28.74 GiB: tokens", "", 240816, source, minimax.tokens(28.74))
    small = layout(configs.QWEN_35B, Serving(131072, 8192, dtype="fp8", prefix_caching=True))
    source = "noonghunna/club-3090#612, vLLM 0.24.0"
    yield Case("Qwen3.6-35B NVFP4, 5.98 GiB: requests of 131,072", "", 4.33, source, small.requests(5.98))
    yield Case("Qwen3.6-35B NVFP4, 5.98 GiB: tokens", "", 567978, source, small.tokens(5.98))
    large = layout(configs.QWEN_235B, Serving(40960, 8192, ranks=4))
    yield Case("235B FP8 on four GPUs, 8.11 GiB: tokens", "", 178880, "vllm-project/vllm#21348", large.tokens(8.11))
    yield from _logged("h100-start-1.4B-8-shards", configs.MID, 2048, 1)
    yield from _logged("h100-start-cold", configs.TINY, 1024, 1)
    yield from _logged("tp2-ray-rank0", configs.TINY, 1024, 2)
    cpu = layout(configs.TINY, Serving(1024, 2048, block=128))
    logged = _found(r"CPU KV cache size: ([\d,]+) tokens", (LOGS / "vllm-0.32.0-cpu-start.log").read_text())
    source = "vllm-0.32.0-cpu-start"
    yield Case("tiny-qwen3-cpu, 1 GiB: tokens", "", int(logged.replace(",", "")), source, cpu.tokens(1.0))
    window = layout(configs.MID, Serving(200000, 8192))
    text = (LOGS / "vllm-0.23.0-cuda-window-larger-than-cache.log").read_text()
    needed = float(_found(r"\(([\d.]+) GiB KV cache is needed", text))
    yield Case("1.4B: one request of 200,000", "GiB", needed, "vllm-0.23.0-cuda-window-larger", window.request_gib)


def _logged(name: str, config: configs.Config, tokens: int, ranks: int) -> Iterator[Case]:
    text = (LOGS / f"vllm-0.23.0-cuda-{name}.log").read_text()
    gib = float(_found(r"Available KV cache memory: ([\d.]+) GiB", text))
    logged = int(_found(r"GPU KV cache size: ([\d,]+) tokens", text).replace(",", ""))
    kv_layout = layout(config, Serving(tokens, 8192, ranks=ranks))
    yield Case(f"{name}, {gib} GiB: tokens", "", logged, f"vllm-0.23.0-cuda-{name}", kv_layout.tokens(gib))


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match, pattern
    return match[1]


def starts() -> Iterator[Case]:
    """Whole starts: what is left for the KV cache, from recipe, checkpoint and the node's total alone."""
    prediction = sehyo()
    yield Case("122B NVFP4 Sehyo at 0.90: KV cache", "GiB", 30.33, ARTICLE, prediction.cache_gib, FITTED)
    yield Case("122B NVFP4 Sehyo: total", "GiB", 117, ARTICLE, prediction.taken_gib)
    graphs = next(term.gib for term in prediction.terms if term.name == "CUDA graphs")
    yield Case("122B NVFP4 Sehyo: CUDA graphs", "GiB", 0.27, ARTICLE, graphs, FITTED)
    short = predicted(shipped("122b-nvfp4-sehyo-32k"), _scaled(nvfp4(drafts=True), 76.02 - ROPE_122B_GIB))
    yield Case("122B NVFP4 Sehyo, 32K: KV cache", "GiB", 31, f"{ARTICLE}, `~31`", short.cache_gib)
    plain = predicted(of_vllm(shipped("122b-autoround"), "0.17.0"), autoround())
    yield Case("122B AutoRound at 0.85: requests of 262,144", "", 5.57, POST, plain.requests, FITTED)
    graphs = next(term.gib for term in plain.terms if term.name == "CUDA graphs")
    yield Case("122B AutoRound: CUDA graphs", "GiB", 1.29, POST, graphs, FITTED)
    hybrid = predicted(of_vllm(shipped("122b-autoround-v2"), "0.19.1"), autoround(drafts=True, shared=FP8))
    tokens = reported_before_0_21(hybrid.layout, hybrid.layout.blocks(hybrid.cache_gib))
    yield Case("122B hybrid v2 at 0.90: tokens (vLLM 0.19.1)", "", 355000, ALBOND, tokens)
    packed = predicted(of_vllm(shipped("122b-autoround-v2-tq"), "0.19.1"), autoround(shared=FP8))
    tokens = reported_before_0_21(packed.layout, packed.layout.blocks(packed.cache_gib))
    other = "the page size of turboquant35, a fork's format; the recipe has vLLM's own turboquant_k3v4_nc"
    yield Case("122B hybrid v2 TurboQuant: tokens", "", 1400000, ALBOND, tokens, other)
    yield from _h100("h100-start-1.4B-8-shards", configs.MID, 0.5, 2048)
    yield from _h100("window-larger-than-cache", configs.MID, 0.06, 200000)
    yield from _h100("no-cache-blocks", configs.MID, 0.03, 1024)
    yield from _h100("h100-start-cold", configs.TINY, 0.3, 1024)
    yield from _h100("h100-start-warm", configs.TINY, 0.3, 1024)
    yield from _h100("h100-start-fastsafetensors", configs.TINY, 0.15, 1024)
    yield from _h100("tp2-mp-rank0", configs.TINY, 0.3, 1024, ranks=2)
    for kind in ("fp8", "int4"):
        quantized = {**configs.TINY, "quantization_config": {"quant_method": kind}}
        yield from _h100(f"h100-start-{kind}", quantized, 0.15, 1024)


def _scaled(sizes: Mapping[str, int], gib: float) -> Mapping[str, int]:
    """The same names with the measured sum: this case is about what is left, not about the weights."""
    return {name: int(bytes_ * gib / size(sizes)) for name, bytes_ in sizes.items()}


def _h100(name: str, config: configs.Config, share: float, window: int, ranks: int = 1) -> Iterator[Case]:
    """A start on a GPU with memory of its own."""
    args: dict[str, Any] = {"gpu-memory-utilization": share, "max-model-len": window}
    serve = {"args": args, "tensor_parallel": ranks}
    candidate = recipe(image={"torch": CUDA, "vllm": "vllm==0.23.0"}, serve=serve)
    sizes = tensors(config, BF16, BF16, BF16, drafts=False)
    room = replace(SPARK, total_gib=H100_GIB, available_gib=H100_GIB, host_gib=OUTSIDE_GIB, shared=False)
    got = fit.fit(candidate, Description(config, sizes, GIB, "tests"), room)
    text = (LOGS / f"vllm-0.23.0-cuda-{name}.log").read_text()
    measured = float(_found(r"Available KV cache memory: (-?[\d.]+) GiB", text))
    most = got.most_cache_gib if got.unsure else None
    source = f"vllm-0.23.0-cuda-{name}"
    yield Case(f"{name} at {share}: KV cache", "GiB", measured, source, got.cache_gib, most=most)
