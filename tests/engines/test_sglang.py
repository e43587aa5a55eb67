"""SGLang: its command line, the log of a start, its figures, and what its flags do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkops.config import opt_in
from sparkops.config.recipe import Recipe
from sparkops.config.release import Rank, Release
from sparkops.engines import ENGINES, load, metrics
from sparkops.engines.launch import Seat
from sparkops.engines.load import Load
from sparkops.engines.sglang.start_log import LOG
from sparkops.engines.start_log import ReportedMemory, Stage
from sparkops.names import Slot
from sparkops.node.docker import commands, ranks
from sparkops.serving.smoke import coverage
from sparkops.serving.startup import causes
from sparkops.serving.startup.explain import explain
from tests.examples import INPUTS, RECIPE, node

START = """\
[2026-11-26 20:00:01] server_args=ServerArgs(model_path='/models/q', nnodes=1, node_rank=0)
[2026-11-26 20:00:09 TP0] Load weight begin. avail mem=118.21 GB
Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:04<00:04,  4.10s/it]
Loading safetensors checkpoint shards: 100% Completed | 2/2 [00:08<00:00,  4.10s/it]
[2026-11-26 20:00:20 TP0] Load weight end. elapsed=11.00 s, type=Q, avail mem=96.10 GB, mem usage=22.11 GB.
[2026-11-26 20:00:21 TP0] Memory pool end. avail mem=20.11 GB
[2026-11-26 20:00:22 TP0] Running FlashInfer autotune with cache: /home/engine/.cache/sglang/flashinfer
[2026-11-26 20:00:30 TP0] Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=19 GB
[2026-11-26 20:00:39 TP0] Capture target decode CUDA graph end. bs=[1, 2], elapsed=9.00 s, mem usage=0.52 GB.
[2026-11-26 20:00:41 TP0] Load weight begin. avail mem=18.02 GB
[2026-11-26 20:00:44 TP0] max_total_num_tokens=91120, chunked_prefill_size=8192, max_prefill_tokens=16384
[2026-11-26 20:00:45] INFO:     Application startup complete.
[2026-11-26 20:00:45] INFO:     Uvicorn running on http://0.0.0.0:8001 (Press CTRL+C to quit)
[2026-11-26 20:00:49] The server is fired up and ready to roll!
"""
"""Lines with the format strings of SGLang 0.5.23, with tuning and a draft, which the captured starts do not have."""
FAILURE = """\
[2026-11-26 20:00:21 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/x/scheduler.py", line 6363, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args)
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.3

[2026-11-26 20:00:21] Received sigquit from a child process. It usually means the child failed.
"""
PAGE = """\
sglang:num_running_reqs{engine_type="unified",model_name="q",tp_rank="0"} 2.0
sglang:num_queue_reqs{engine_type="unified",model_name="q",tp_rank="0"} 1.0
sglang:token_usage{engine_type="unified",model_name="q",tp_rank="0"} 0.25
sglang:realtime_tokens_total{mode="prefill_compute",model_name="q"} 900.0
sglang:realtime_tokens_total{mode="decode",model_name="q"} 80.0
sglang:generation_tokens_total{is_streaming="true",model_name="q"} 60.0
sglang:generation_tokens_total{is_streaming="false",model_name="q"} 20.0
sglang:prompt_tokens_total{is_streaming="true",model_name="q"} 1000.0
sglang:cached_tokens_total{cache_source="device",model_name="q"} 100.0
"""
"""Names and labels of metrics_collector.py of 0.5.23, while requests run."""


Captured = Callable[[str], str]
CUDA = "sglang-0.5.17-cuda-h200"


def of(**serve: object) -> Recipe:
    """Return a recipe with a finished image of SGLang."""
    image = {"use": "lmsysorg/sglang:v0.5.23"}
    return Recipe.model_validate({**RECIPE, "engine": "sglang", "image": image, "serve": {"port": 8000, **serve}})


def rank(recipe: Recipe, index: int = 0) -> Rank:
    return Rank(Release(recipe, INPUTS), Slot.BLUE, f"n{index}", index)


def stages(log: str) -> list[Stage]:
    """Return the stages that a start reaches, none of whose lines is fatal."""
    reached = [Stage.STARTING]
    for reading in map(LOG.read, log.split("\n")):
        assert not reading.fatal
        if reading.stage and reading.stage.follows(reached[-1]):
            reached.append(reading.stage)
    return reached[1:]


def test_its_container_starts_its_server_with_its_own_flags() -> None:
    args = {"context-length": 4096, "disable-radix-cache": True, "cuda-graph-bs-decode": [1, 2]}
    argv = commands.create(rank(of(args=args)), node(), "sha256:0", jobs=1).argv
    image = argv.index("--entrypoint=python3") + 1

    assert argv[image + 1 :] == (
        *("-m", "sglang.launch_server", "--model-path=/models/q", "--host=0.0.0.0", "--port=8001"),
        *("--enable-metrics", "--served-model-name=chat"),
        *("--context-length=4096", "--disable-radix-cache", "--cuda-graph-bs-decode", "1", "2"),
    )
    assert "--env=SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0" in argv


def test_two_ranks_meet_at_the_first_and_know_their_own_addresses() -> None:
    recipe = of(tensor_parallel=2, executor="mp")
    started = ranks.program(rank(recipe, 1), "/models", Seat("10.0.0.2", "10.0.0.1", {"NCCL_NET": "IB"}))

    assert started.arguments[-4:] == ("--tp-size=2", "--nnodes=2", "--node-rank=1", "--dist-init-addr=10.0.0.1:8003")
    assert started.env == {"NCCL_NET": "IB", "SGLANG_HOST_IP": "10.0.0.2"}


def test_four_ranks_are_two_stages_of_two() -> None:
    recipe = of(tensor_parallel=2, pipeline_parallel=2, executor="mp")
    started = ranks.program(rank(recipe, 3), "/models", Seat("10.0.0.4", "10.0.0.1"))

    assert started.arguments[-5:-1] == ("--tp-size=2", "--pp-size=2", "--nnodes=4", "--node-rank=3")


def test_ray_does_not_join_its_ranks() -> None:
    with pytest.raises(ValueError, match="expected mp, which joins ranks of the engine sglang"):
        of(tensor_parallel=2, executor="ray")


@pytest.mark.parametrize("flag", ["tp", "nnodes", "dist-init-addr", "enable-metrics", "model-path", "port"])
def test_flags_that_sparkops_sets_are_refused(flag: str) -> None:
    with pytest.raises(ValueError, match="not allowed: sparkops sets it"):
        of(args={flag: 1})


@pytest.mark.parametrize("flag", ["api-key", "admin-api-key", "admin"])
def test_secrets_are_refused(flag: str) -> None:
    with pytest.raises(ValueError, match=flag):
        of(args={flag: "x"})


@pytest.mark.parametrize(
    ("flag", "value", "effect"),
    [
        ("trust-remote-code", True, "runs Python code of the model repository"),
        ("enable-custom-logit-processor", True, "runs Python code of clients"),
        ("speculative-token-map", "/models/d", "reads a file or directory named in its value"),
        ("dp-size", 2, "opens ports"),
        ("hicache-storage-backend", "dynamic", "imports Python code or writes to paths named in another flag"),
        ("no-such-flag", True, opt_in.UNKNOWN),
    ],
)
def test_what_a_flag_does_needs_allow(flag: str, value: object, effect: str) -> None:
    assert [*opt_in.of_flag(flag, value, "sglang")] == [(flag, effect)]


def test_a_key_that_names_a_path_needs_allow() -> None:
    given = {"enable_multithread_load": True, "presharded_path": "/x"}
    path = "model-loader-extra-config.presharded_path"

    assert [*opt_in.of_flag("model-loader-extra-config", given, "sglang")] == [
        (path, "reads or writes the path in its value")
    ]


def test_no_flag_is_both_harmless_and_not() -> None:
    facts = ENGINES["sglang"].flags

    assert facts.harmless & {*facts.effects, *facts.secrets, *ENGINES["sglang"].taken} == set()


def test_a_start_goes_through_its_stages_in_order() -> None:
    assert stages(START) == [
        *(Stage.WEIGHTS, Stage.COMPILING, Stage.KV_CACHE, Stage.TUNING, Stage.GRAPHS, Stage.WARMING),
        *(Stage.OPENING, Stage.SERVING),
    ]
    assert [reading.percent for reading in map(LOG.read, START.splitlines()) if reading.percent] == [50, 100]


def test_a_failed_start_has_the_exception_and_its_cause() -> None:
    lines = FAILURE.splitlines()
    advice = explain(lines, causes.of("sglang")).advice

    assert LOG.read(lines[0]).fatal
    assert explain(lines, causes.of("sglang")).root == lines[3]
    assert advice is not None
    assert advice.cause == "mem-fraction-static leaves no room for a KV cache beside the weights"


@pytest.mark.parametrize("log", ["start-cold", "tp2-rank0", "tp2-rank1"])
def test_a_captured_start_goes_through_its_stages_in_order(captured: Captured, log: str) -> None:
    joining = [] if log == "start-cold" else [Stage.JOINING]
    served = [] if log == "tp2-rank1" else [Stage.OPENING, Stage.SERVING]
    loaded = [Stage.WEIGHTS, Stage.COMPILING, Stage.KV_CACHE, Stage.GRAPHS, Stage.WARMING]
    assert stages(captured(f"{CUDA}-{log}.log")) == [*joining, *loaded, *served]


@pytest.mark.parametrize(
    ("log", "headline", "cause"),
    [
        (
            "cuda-h200-no-kv-cache",
            "ValueError: Loaded weights leave no GPU memory for the KV cache",
            "mem-fraction-static leaves no room for a KV cache beside the weights",
        ),
        (
            "cuda-h200-out-of-memory",
            "torch.OutOfMemoryError: CUDA out of memory.",
            "an allocation of 2.17 GiB failed: 8.31 MiB of the GPU's 139.80 GiB were free when the KV cache was "
            "allocated: mem-fraction-static is too large, or another program took memory meanwhile",
        ),
        ("cuda-h200-port-in-use", "[Errno 98] error while attempting to bind", "a port that SGLang needs: 8201"),
        (
            "cuda-h200-context-too-long",
            "ValueError: Warning: User-specified context_length (999999)",
            "context-length 999999 is more than the model's 2048",
        ),
        (
            "unknown-argument",
            "sglang serve: error: unrecognized arguments: ",
            "this SGLang does not accept an argument of serve.args",
        ),
        (
            "unknown-value",
            "sglang serve: error: argument --attention-backend: invalid choice: 'no-such-backend'",
            "this SGLang does not know no-such-backend, the value of attention-backend",
        ),
        ("no-gpu", "RuntimeError: No accelerator (CUDA, XPU,", "the engine finds no GPU: the container has none"),
        (
            "scheduler-killed",
            "Subprocess scheduler_0 (pid=2043) crashed with exit code -9.",
            "the process of rank 0 was killed with SIGKILL, most likely because the node's memory was full",
        ),
        (
            "cuda-h200-kernel-fails",
            "RuntimeError: Error in function 'BatchPrefillWithRaggedKVCacheDispatched'",
            "FlashInfer has no attention kernel for the heads of this model",
        ),
    ],
)
def test_a_captured_failure_has_its_error_and_its_cause(
    captured: Captured, log: str, headline: str, cause: str
) -> None:
    lines = captured(f"sglang-0.5.17-{log}.log").splitlines()
    advice = explain(lines, causes.of("sglang")).advice

    assert explain(lines, causes.of("sglang")).root.startswith(headline)
    assert advice
    assert advice.cause.startswith(cause) or cause in advice.cause


def test_a_progress_bar_in_one_line_has_its_last_state() -> None:
    line = (
        "Multi-thread loading shards:   0% Completed | 0/1 [00:00<?]\rMulti-thread loading shards: 100% Completed | 1/1"
    )

    assert LOG.read(line).percent == 100


def test_the_figures_of_a_captured_page_are_read(captured: Captured) -> None:
    assert metrics.parse(captured("sglang-0.5.17-metrics-after.txt")) == Load(0, 0, 967)


def test_the_weights_of_the_model_are_read_and_not_those_of_its_draft() -> None:
    memory = ReportedMemory()
    for line in (*START.splitlines(), "[2026-11-26 20:00:43 TP0] Load weight end. type=D, mem usage=1.40 GB."):
        memory = LOG.read_memory(line, memory)

    assert memory == ReportedMemory(weights_gib=22.11)


def test_ranks_that_meet_are_a_stage() -> None:
    line = "[2026-11-26 20:00:01] server_args=ServerArgs(model_path='/models/q', nnodes=2, node_rank=1)"

    assert LOG.read(line).stage is Stage.JOINING


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("RuntimeError: CUDA out of memory.", "the engine ran out of GPU memory"),
        (
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9",
            "the process of rank 0 was killed with SIGKILL, most likely because the node's memory was full",
        ),
        (
            "ValueError: Warning: User-specified context_length (9) is greater than the derived context_length (4). "
            "This may lead to incorrect outputs. To allow overriding this maximum, set the env var",
            "context-length 9 is more than the model's 4",
        ),
        (
            "launch_server.py: error: unrecognized arguments: --x",
            "this SGLang does not accept an argument of serve.args",
        ),
        ("OSError: [Errno 98] Address already in use", "another program uses the port"),
    ],
)
def test_causes_are_known(line: str, cause: str) -> None:
    advice = explain([line], causes.of("sglang")).advice

    assert advice is not None
    assert advice.cause.startswith(cause)


def test_its_figures_are_read_from_its_page() -> None:
    sums = {"sglang:num_running_reqs": 2.0, "sglang:generation_tokens_total": 80.0, "sglang:token_usage": 0.25}

    assert metrics.parse(PAGE) == load.read(sums | {"sglang:num_queue_reqs": 1.0}) == Load(2, 1, 80)
    assert 900.0 in metrics.steps(PAGE)
    assert load.rates({}, {**sums, "sglang:prompt_tokens_total": 1000.0, "sglang:cached_tokens_total": 100.0}, 1.0) == (
        load.Rates(tok_s=80.0, kv_use=0.25, prefix_hits=0.1)
    )


def test_checks_that_it_cannot_pass_are_left_out() -> None:
    left_out = {check.name: check.why for check in coverage.planned(of()) if not check.runs}

    assert left_out["version"] == "SGLang has no /version"
    assert left_out["negatives"] == "SGLang answers requests for unknown models"
    assert "metrics" not in left_out
