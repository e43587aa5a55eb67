"""Whether a recipe fits a node, and what is printed about it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sparkops.engines.needs import Loading
from sparkops.engines.vllm.memory import arguments
from sparkops.engines.vllm.memory.overhead import loaders
from sparkops.engines.vllm.memory.shape import parse
from sparkops.node.host import GpuMemory
from sparkops.operator.build.weights.description import Description
from sparkops.operator.deploy.memory.fit import Fit, Measured, fit, lower, served
from sparkops.operator.deploy.memory.report import as_json, lines
from sparkops.serving.memory.bound import OUTSIDE_GIB
from sparkops.serving.memory.pools import Room, room
from sparkops.serving.memory.relief import FLOOR_GIB
from tests.examples import CUDA, HOST, container, rank, recipe
from tests.operator.deploy.memory.cases import SPARK, autoround, predicted, sehyo, shipped
from tests.operator.deploy.memory.configs import MID, TINY
from tests.operator.deploy.memory.tensors import BF16, tensors

GIB = 2**30
THREE = ("serve.pipeline_parallel=3", "serve.executor=mp")
WEIGHTS = {"model.layers.*.mlp.up_proj.weight": 20 * GIB}
ROPE_GIB = parse(MID).rope_elements * 2 / GIB


H100 = Room("n1", 79.18, 79.18, OUTSIDE_GIB, shared=False)


def of(
    share: float = 0.5,
    weights_gib: float = 20.0,
    space: Room = SPARK,
    measured: Measured | None = None,
    *,
    v2: bool = False,
    **args: Any,
) -> Fit:
    flags = {"gpu-memory-utilization": share, **{name.replace("_", "-"): value for name, value in args.items()}}
    serve = {"args": flags, "env": {} if v2 else {"VLLM_USE_V2_MODEL_RUNNER": "0"}}
    model_recipe = recipe(image={"torch": CUDA, "vllm": "vllm==0.23.0"}, serve=serve)
    weights = {name: int((weights_gib - ROPE_GIB) * GIB) for name in WEIGHTS}
    return fit(model_recipe, Description(MID, weights, 5 * GIB, "q.lock"), space, measured)


def test_the_parts_add_up() -> None:
    result = of()

    assert result.problems == ()
    assert result.budget_gib == pytest.approx(0.5 * 121.7)
    assert result.weights_gib + result.overhead_gib + result.cache_gib == pytest.approx(result.budget_gib)
    assert result.taken_gib == pytest.approx(result.budget_gib + 5.0)
    assert result.now_gib == pytest.approx(121.7 - result.taken_gib)


def test_graphs_of_an_older_vllm_come_on_top() -> None:
    result = sehyo()

    assert result.outside_gib == pytest.approx(0.27, abs=0.01)
    assert result.taken_gib == pytest.approx(result.budget_gib + 5.0 + result.outside_gib)


def test_a_request_of_the_full_context_must_fit() -> None:
    result = of(share=0.35)

    assert result.problems == (f"KV cache {result.cache_gib:.1f} GiB, one request of 262144 tokens needs 28.0 GiB",)
    assert lower(result, "q") == f"sparkops fit q --set args.gpu-memory-utilization={result.safe_share:g}"
    assert of(share=result.least_share or 0).problems == ()
    assert of(share=(result.least_share or 0) - 0.02).problems != ()


def test_a_node_must_hold_the_budget_and_the_host_side() -> None:
    result = of(share=0.97)

    assert result.problems == ("123.0 GiB taken, 121.7 GiB in total: 1.3 GiB short",)
    assert result.safe_share == 0.89
    assert of(share=result.safe_share).taken_gib <= 121.7 - 8.0


def test_weights_that_leave_no_cache_do_not_fit_at_any_safe_share() -> None:
    result = of(share=0.9, weights_gib=110.0)

    assert result.cache_gib < 0
    assert result.requests == 0
    assert lower(result, "q").startswith("Lower max-model-len of q")


def test_a_fixed_cache_decides_instead_of_the_share() -> None:
    result = of(kv_cache_memory_bytes="40G")

    assert result.cache_gib == 40.0
    assert (result.share, result.safe_share, result.least_share) == (None, None, None)
    assert not any("utilization" in line for line in lines(result))


@pytest.mark.parametrize("v2", [False, True])
def test_an_engine_takes_more_of_a_discrete_gpu_than_its_budget(v2: bool) -> None:
    """Its CUDA graphs are among what was measured, also where vLLM does not count them."""
    result = of(share=0.92, space=H100, v2=v2)

    assert result.taken_gib == pytest.approx(0.92 * 79.18 + 2.4)
    assert result.safe_share == 0.96
    assert result.problems == ()
    assert of(share=0.98, space=H100, v2=v2).problems == ("80.0 GiB taken, 79.2 GiB in total: 0.8 GiB short",)


def test_the_graphs_of_the_v2_model_runner_are_outside_the_budget() -> None:
    one, two = of(), of(v2=True)

    assert one.outside_gib == 0.0
    assert two.outside_gib == pytest.approx(0.81, abs=0.01)
    assert two.taken_gib == pytest.approx(one.taken_gib + two.outside_gib)
    assert two.cache_gib == pytest.approx(one.cache_gib + two.outside_gib, abs=0.01)


@pytest.mark.parametrize(
    ("change", "image", "args", "env", "v2"),
    [
        ({}, "vllm==0.23.0", {}, {}, True),
        ({}, "vllm==0.22.0", {}, {}, False),
        ({}, "vllm==0.32.0", {}, {}, False),
        ({}, "vllm==0.23.0", {}, {"VLLM_USE_V2_MODEL_RUNNER": "0"}, False),
        ({}, "vllm==0.23.0", {"quantization": "fp8"}, {}, False),
        ({}, "vllm==0.23.0", {"speculative-config": {"method": "ngram", "num_speculative_tokens": 2}}, {}, False),
        ({"quantization_config": {}}, "vllm==0.23.0", {}, {}, False),
        ({"num_experts": 8, "moe_intermediate_size": 64}, "vllm==0.23.0", {}, {}, False),
        ({"architectures": ["Gemma3ForCausalLM"]}, "vllm==0.23.0", {}, {}, False),
        ({"architectures": ["Gemma3ForCausalLM"]}, "vllm==0.23.0", {}, {"VLLM_USE_V2_MODEL_RUNNER": "1"}, True),
    ],
)
def test_vllm_0_23_runs_only_some_models_with_its_v2_runner(
    change: dict[str, Any], image: str, args: dict[str, Any], env: dict[str, str], v2: bool
) -> None:
    candidate = recipe(image={"torch": CUDA, "vllm": image}, serve={"args": args, "env": env})

    assert arguments.read(served(candidate), parse({**MID, **change}), 79.18).v2 is v2


QWEN3_8B = {
    **MID,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}


@pytest.mark.parametrize(("share", "overhead_gib"), [(0.85, 1.5), (0.4, 1.2)])
def test_a_dense_qwen3_on_an_h100_gets_the_cache_that_was_measured(share: float, overhead_gib: float) -> None:
    """Of 79.18 GiB vLLM took 1.2 to 1.5 besides weights and cache; sparkops had said 4.26, of 79.65."""
    flags = {"gpu-memory-utilization": share}
    dense = recipe(image={"torch": CUDA, "vllm": "vllm==0.23.0"}, serve={"args": flags})
    result = fit(dense, Description(QWEN3_8B, tensors(QWEN3_8B, BF16, BF16, BF16, drafts=False), GIB, "tests"), H100)

    assert result.weights_gib == pytest.approx(15.27, abs=0.02)
    assert result.cache_gib == pytest.approx(share * 79.18 - result.weights_gib - overhead_gib, rel=0.05)
    assert not result.unsure


def test_a_cache_that_estimates_may_miss_by_a_tenth_is_a_range() -> None:
    moe = {**QWEN3_8B, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
    flags = {"gpu-memory-utilization": 0.4}
    sparse = recipe(image={"torch": CUDA, "vllm": "vllm==0.23.0"}, serve={"args": flags})
    result = fit(sparse, Description(moe, {"w": 20 * GIB}, GIB, "tests"), H100)

    assert result.unsure
    [row] = [line for line in lines(result) if line.startswith("  KV cache")]
    assert row.startswith(f"  KV cache      {result.cache_gib:.1f} to {result.most_cache_gib:.1f} GiB = ")
    assert json.loads(json.dumps(as_json(result)))["kv_cache"]["most_gib"] == round(result.most_cache_gib, 2)


def test_what_vllm_reported_at_the_last_start_comes_before_any_rule() -> None:
    last = Measured(weights_gib=15.3, cache_gib=50.4, share=0.85, graphs_gib=1.1)
    same, lower_share = of(0.85, space=H100, measured=last, v2=True), of(0.4, space=H100, measured=last, v2=True)

    assert same.weights_gib == 15.3
    assert same.cache_gib == pytest.approx(50.4)
    assert lower_share.cache_gib == pytest.approx(50.4 - 0.45 * 79.18)
    assert (same.outside_gib, same.unsure) == (1.1, False)
    assert "  overhead      1.6 GiB, as vLLM reported at the last start here" in [*lines(same)]
    assert as_json(same)["measured"] is True


def test_one_output_has_one_verdict() -> None:
    busy = of(share=0.5, space=replace(SPARK, available_gib=30.0), max_model_len=1024)
    report = "\n".join(lines(busy))

    assert report.startswith("spark: fits an empty node\n")
    assert "  now           30.0 GiB available: 35.8 GiB short" in report.splitlines()
    assert report.count("fit") == 1


def test_a_cpu_takes_what_the_environment_says() -> None:
    cpu_recipe = recipe(serve={"args": {"max-model-len": 1024}, "env": {"VLLM_CPU_KVCACHE_SPACE": "1"}})
    got = fit(cpu_recipe, Description(TINY, {"w": 600_000}, 600_000, "q.lock"), SPARK)

    assert (got.cache_gib, got.requests, got.terms, got.share) == (1.0, 2048.0, (), None)
    assert got.taken_gib == pytest.approx(3.4, abs=0.01)  # the shipped recipe claims 3.5, which was measured


def test_old_and_new_release_fit_together_only_with_the_reserve() -> None:
    alone, beside = of(share=0.35, max_model_len=1024), of(share=0.6)
    with_old = of(share=0.35, max_model_len=1024, space=replace(SPARK, old_gib=60.0, old=("chat-blue",)))

    assert alone.together_gib == pytest.approx(121.7 - 15 - 2 * alone.taken_gib)
    assert beside.together_gib < 0
    assert with_old.together_gib == pytest.approx(121.7 - 15 - 60.0 - with_old.taken_gib)
    assert "chat-blue (60 GiB claimed) and this release, 15 GiB reserve, nothing else: 0.9 GiB short" in "\n".join(
        lines(with_old)
    )


@pytest.mark.parametrize(
    ("weights_gib", "shard_gib", "safe"),
    [(62.65, 4.8, True), (72.6, 36.3, False)],
    ids=["67 GB in 14 files loaded", "78 GB in 2 files froze the host"],
)
def test_fastsafetensors_is_safe_where_it_was_seen_to_be(weights_gib: float, shard_gib: float, safe: bool) -> None:
    loading = Loading(weights_gib, 5.0, 121.7, FLOOR_GIB, shared=True)
    named, default, instant = loaders("fastsafetensors", shard_gib, loading)

    assert (named.name, named.safe) == ("fastsafetensors", safe)
    assert (default.name, default.safe, instant.safe) == ("safetensors", True, True)


def test_a_loader_without_a_rule_is_unknown_and_refuses_nothing() -> None:
    result = of(load_format="runai_streamer")

    assert result.loaders[0].safe is None
    assert result.problems == ()
    assert "runai_streamer: unknown: no rule for this load-format" in "\n".join(lines(result))


def test_a_loader_that_is_not_safe_does_not_fit() -> None:
    unsafe_recipe = recipe(
        image={"torch": CUDA, "vllm": "vllm==0.23.0"},
        serve={"args": {"gpu-memory-utilization": 0.85, "load-format": "fastsafetensors", "max-model-len": 1024}},
    )
    got = fit(unsafe_recipe, Description(MID, {"w": 72 * GIB}, 36 * GIB, "q.lock"), SPARK)

    assert got.problems == (
        "load-format fastsafetensors: weights 72.1 + largest file 36.0 twice + host side 5 = 149.1 GiB, "
        "NOT SAFE: above 117.7 GiB",
    )


def test_two_ranks_share_the_weights() -> None:
    one, two = predicted(shipped("122b-autoround"), autoround()), predicted(shipped("122b-autoround-tp2"), autoround())

    assert two.weights_gib == pytest.approx(one.weights_gib / 2, rel=0.01)


def test_a_stage_of_three_has_a_third_of_the_layers_and_of_the_cache_of_a_request() -> None:
    whole, staged = (shipped("122b-autoround", *changes) for changes in ((), THREE))
    one, three = predicted(whole, autoround()), predicted(staged, autoround())

    layers_gib = sum(size for name, size in autoround().items() if ".layers.*." in name) / GIB
    assert three.weights_gib == pytest.approx(one.weights_gib - layers_gib * 2 / 3, rel=0.01)
    assert three.layout.request_gib == pytest.approx(one.layout.request_gib / 3, rel=0.1)


def test_the_report_begins_with_the_verdict() -> None:
    report = list(lines(sehyo()))

    assert report[0] == "spark: fits an empty node"
    assert "  weights       76.0 GiB per rank" in report
    assert "  utilization   0.9; safe up to 0.89, one request needs 0.67" in report


def test_json_has_the_same_figures() -> None:
    report = json.loads(json.dumps(as_json(sehyo())))

    assert (report["fits"], report["problems"], report["weights_gib"]) == (True, [], 76.02)
    assert report["kv_cache"]["block_tokens"] == 4224
    assert report["gpu-memory-utilization"] == {"set": 0.9, "safe": 0.89, "least": 0.67}
    assert [loader["safe"] for loader in report["loaders"]] == [True, True, True]


def test_the_room_of_a_node_names_what_runs_there() -> None:
    runs = replace(container(rank()), claim_gib=30.0)
    space = room("n1", recipe(image={"torch": CUDA}), HOST, [runs, replace(runs, state="exited")])

    assert (space.total_gib, space.available_gib, space.host_gib, space.shared) == (119.67, 100.0, 5.0, True)
    assert (space.old_gib, space.old) == (30.0, (runs.name,))


def test_the_room_of_a_gpu_is_its_own_memory() -> None:
    host = replace(HOST, gpu_model="NVIDIA H100 80GB HBM3", gpus=(GpuMemory(79.2, 70.0),))
    space = room("n1", recipe(image={"torch": CUDA}), host, [])

    assert (space.total_gib, space.available_gib, space.host_gib, space.shared) == (79.2, 70.0, 2.4, False)


def test_a_gpu_that_cannot_be_read_has_no_room() -> None:
    with pytest.raises(ValueError, match="no reading of NVIDIA H100"):
        room("n1", recipe(image={"torch": CUDA}), replace(HOST, gpu_model="NVIDIA H100 80GB HBM3"), [])
