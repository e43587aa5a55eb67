"""The stages of a vLLM start, and the exception behind a failed one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkops.engines.start_log import Reading, Stage, fingerprint
from sparkops.engines.vllm.start_log import LOG
from sparkops.serving.startup import causes
from sparkops.serving.startup.explain import explain

Captured = Callable[[str], str]


def test_a_whole_start_goes_through_its_stages_in_order(captured: Captured) -> None:
    readings = [LOG.read(line) for line in captured("vllm-0.32.0-cpu-start.log").splitlines()]

    reached = list(dict.fromkeys(reading.stage for reading in readings if reading.stage))
    assert reached == [
        Stage.WEIGHTS,
        Stage.COMPILING,
        Stage.KV_CACHE,
        Stage.OPENING,
        Stage.SERVING,
    ]
    assert [reading.percent for reading in readings if reading.percent is not None] == [0, 100]
    assert not any(reading.fatal for reading in readings)


def test_docker_timestamps_before_the_lines_change_nothing(captured: Captured) -> None:
    lines = captured("vllm-0.32.0-cpu-start.log").splitlines()

    assert [LOG.read(f"2026-11-21T00:17:39.184791030Z {line}") for line in lines] == [*map(LOG.read, lines)]


WORKER = "(Worker pid=39) INFO 11-21 00:17:39"


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        (f"{WORKER} [parallel_state.py:2350] rank 1 in world size 2 is assigned as DP rank 0", Stage.JOINING),
        (f"{WORKER} [parallel_state.py:2350] rank 9 in world size 16 is assigned as DP rank 0", Stage.JOINING),
        (f"{WORKER} [parallel_state.py:2350] rank 0 in world size 1 is assigned as DP rank 0", None),
        (f"{WORKER} [parallel_state.py:1906] world_size=1 rank=0 distributed_init_method=tcp://h:1", None),
        (f"{WORKER} [parallel_state.py:1906] world_size=2 rank=1 distributed_init_method=tcp://h:1", Stage.JOINING),
        ("INFO worker.py:1821 -- Connecting to existing Ray cluster at address: 10.0.0.1:6379...", Stage.JOINING),
        (f"{WORKER} [gpu_model_runner.py:5093] Starting to load model /models/q...", Stage.WEIGHTS),
        (f"{WORKER} [model_runner.py:392] Loading model from scratch...", Stage.WEIGHTS),
        (f"{WORKER} [gpu_model_runner.py:5116] Loading drafter model...", Stage.WEIGHTS),
        (f"{WORKER} [gpu_model_runner.py:5188] Model loading took 61.1 GiB memory and 230.4 seconds", Stage.COMPILING),
        (
            f"{WORKER} [backends.py:1105] Using cache directory: /root/.cache/x for vLLM's torch.compile",
            Stage.COMPILING,
        ),
        (f"{WORKER} [backends.py:900] Dynamo bytecode transform time: 12.1 s", Stage.COMPILING),
        (f"{WORKER} [monitor.py:20] torch.compile took 61.02 s in total", Stage.COMPILING),
        (f"{WORKER} [gpu_worker.py:481] Available KV cache memory: 24.7 GiB", Stage.KV_CACHE),
        (f"{WORKER} [kv_cache_utils.py:1744] GPU KV cache size: 400,000 tokens", Stage.KV_CACHE),
        (f"{WORKER} [gpu_worker.py:401] reserved 120.0 GiB memory for KV Cache as specified by", Stage.KV_CACHE),
        (f"{WORKER} [autotuner.py:256] flashinfer.jit: [Autotuner]: Autotuning process starts ...", Stage.TUNING),
        (f"{WORKER} [kernel_warmup.py:97] Warming up FlashInfer attention.", Stage.TUNING),
        (f"{WORKER} [kernel_warmup.py:176] JIT kernel warmup starting.", Stage.TUNING),
        ("DeepGEMM warmup:  51%|█████", Stage.TUNING),
        (f"{WORKER} [gpu_worker.py:620] Compile and warming up model for size 2048", Stage.TUNING),
        ("JIT kernel warmup (12 compile keys):  51%|█████", Stage.TUNING),
        (f"{WORKER} [cpu_model_runner.py:87] Warming up model for the compilation...", Stage.COMPILING),
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  51%|█████", Stage.GRAPHS),
        ("Capturing CUDA graphs (PIECEWISE):  51%|█████", Stage.GRAPHS),
        ("Capturing prefill CUDA graphs (FULL):  51%|█████", Stage.GRAPHS),
        ("Capturing multi-module MTP CUDA graphs (FULL):  51%|█████", Stage.GRAPHS),
        (f"{WORKER} [gpu_model_runner.py:6586] Graph capturing finished in 31 secs, took 1.2 GiB", Stage.WARMING),
        (f"{WORKER} [model_runner.py:669] Skipping CUDA graph capture. To turn on", Stage.WARMING),
        (f"{WORKER} [model_runner.py:1062] Skipping encoder and decoder CUDA graph capture.", Stage.WARMING),
        (f"{WORKER} [core.py:402] init engine (profile, create kv cache, warmup model) took 90.1 s", Stage.OPENING),
        (f"{WORKER} [api_server.py:583] Starting vLLM server on http://0.0.0.0:8000", Stage.OPENING),
        (f"{WORKER} [api_server.py:1] Starting vLLM API server 0 on http://0.0.0.0:8000", Stage.OPENING),
        ("INFO:     Application startup complete.", Stage.SERVING),
        (f"{WORKER} [gpu_model_runner.py:6369] Profiling CUDA graph memory: PIECEWISE=51, FULL=51", None),
        (f"{WORKER} [jit_monitor.py:85] Kernel JIT monitor activated; monitored JIT compilations", None),
        (
            f"{WORKER} [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup.",
            None,
        ),
        (f"{WORKER} [gpu_worker.py:496] CUDA graph memory profiling is enabled (default since v0.21.0).", None),
        (f"{WORKER} [core.py:133] Initializing a V1 LLM engine with config: enable_flashinfer_autotune=True", None),
        (f"{WORKER} [mamba_mixer2.py:578] Warming up Mamba2 SSD Triton kernels...", None),
        ("", None),
    ],
)
def test_a_stage_is_read_from_a_whole_phrase(line: str, stage: Stage | None) -> None:
    assert LOG.read(line) == Reading(stage=stage)


@pytest.mark.parametrize(
    ("line", "percent"),
    [
        ("Loading safetensors checkpoint shards:   0% Completed | 0/13 [00:00<?, ?it/s]", 0),
        ("Loading safetensors checkpoint shards (eager):  46% Completed | 6/13 [01:41<01:58, 16.9s/it]", 46),
        ("(Worker pid=9) Loading safetensors using Runai Model Streamer:   7% Completed | 7/99 [00:01<00:09]", 7),
        ("Multi-thread loading shards: 100% Completed | 13/13 [01:41<00:00, 7.8s/it]", 100),
        ("Loading pt checkpoint shards:  50% Completed | 1/2 [00:00<00:00, 4.5it/s]", 50),
    ],
)
def test_the_percent_of_the_weights(line: str, percent: int) -> None:
    assert LOG.read(line) == Reading(stage=Stage.WEIGHTS, percent=percent)


@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore pid=26) ERROR 11-21 00:17:44 [core.py:1195] EngineCore failed to start.",
        "(Worker pid=38) ERROR 11-21 00:32:54 [multiproc_executor.py:953] WorkerProc failed to start.",
        "(EngineCore pid=26) ERROR 11-21 00:17:44 [core.py:1197] EngineCore encountered a fatal error.",
        "vllm: error: unrecognized arguments: --foo",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ],
)
def test_a_fatal_line_ends_a_start(line: str) -> None:
    assert LOG.read(line) == Reading(fatal=True)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_pair_that_was_stopped_has_no_fatal_line_and_no_cause(captured: Captured, rank: int) -> None:
    """Rank 1 warns of a broken pipe, with frames of C++, as it loses rank 0."""
    lines = captured(f"vllm-0.23.0-cuda-tp2-mp-stopped-rank{rank}.log").splitlines()

    assert not any(LOG.read(line).fatal for line in lines)
    assert explain(lines, causes.of("vllm")).advice is None


@pytest.mark.parametrize(
    "line",
    [
        "WARNING 11-21 00:17:18 [parallel.py:746] Address already in use. Retrying with a new port.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "(APIServer pid=1) INFO 11-18 12:00:07 [x.py:96] non-default args: {'model_tag': '/models/EngineCore failed'}",
    ],
)
def test_what_vllm_may_catch_or_prints_as_a_name_is_not_fatal(line: str) -> None:
    assert LOG.read(line) == Reading()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("12:00:01 still waiting after 60 s", "12:01:01 still waiting after 120 s", True),
        ("loading layer a", "loading layer b", False),
    ],
)
def test_a_heartbeat_is_a_line_that_differs_in_numbers_only(*, one: str, other: str, same: bool) -> None:
    assert (fingerprint(one) == fingerprint(other)) is same


def test_stages_are_ordered_as_they_come() -> None:
    assert [stage.order for stage in Stage] == list(range(len(Stage)))
