"""Is a start still moving? Whole starts are played through, second by second, without waiting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter

import pytest

from sparkops.config.startup import Startup
from sparkops.engines.start_log import Stage
from sparkops.engines.vllm.start_log import LOG
from sparkops.node.docker import facts
from sparkops.serving.startup.verdict import KEEP_LINES, Line, MemorySample, Sample, Watch, advance, memory_csv
from tests.places import CAPTURED

LOADING = "Starting to load model /models/q..."
LOADED = "Model loading took 61.1 GiB memory and 230.4 seconds"
COMPILED = "torch.compile took 61.02 s in total"
AUTOTUNE = "Autotuning process starts ..."
ENGINE_READY = "init engine (profile, create kv cache, warmup model) took 480.0 s"
SERVING = "INFO:     Application startup complete."


def shards(percent: int) -> str:
    return f"Loading safetensors checkpoint shards: {percent:3}% Completed | x/13 [01:41<01:58, 16.9s/it]"


def lines(*texts: str) -> tuple[Line, ...]:
    return tuple(Line(1.0, text) for text in texts)


def idle(_: float) -> float:
    return 0.0


def busy(at_s: float) -> float:
    """One core that computes all the time."""
    return at_s


def play(
    lines: Mapping[int, str],
    *,
    until_s: int = 3600,
    since_s: int = 0,
    cpu_s: Callable[[float], float] = idle,
    limits: Startup | None = None,
) -> tuple[Watch, int]:
    """The watch when its verdict is in, or at `until_s`, and when that was. `lines` are the log by second."""
    watch = Watch(limits or Startup(), LOG)
    for at_s in range(since_s, until_s + 1):
        new = lines.items() if at_s == since_s else [(at_s, lines[at_s])] if at_s in lines else ()
        log_lines = tuple(Line(when, line) for when, line in new if when <= at_s)
        healthy = any(line.text == SERVING for line in log_lines)
        watch = advance(watch, Sample(at_s, log_lines, healthy=healthy, cpu_s=cpu_s(at_s)))
        if watch.over:
            return watch, at_s
    return watch, until_s


def test_a_start_of_750_s_with_360_s_of_silence_passes_while_the_cpu_works() -> None:
    log = {1: LOADING, 150: shards(50), 300: LOADED, 370: COMPILED, 380: AUTOTUNE, 740: ENGINE_READY, 750: SERVING}

    watch, at_s = play(log, cpu_s=busy)

    assert (watch.healthy, watch.failure, at_s) == (True, "", 750)
    assert watch.reached == (
        (Stage.STARTING, 0.0),
        (Stage.WEIGHTS, 1),
        (Stage.COMPILING, 300),
        (Stage.TUNING, 380),
        (Stage.OPENING, 740),
        (Stage.SERVING, 750),
    )


def test_the_same_silence_without_work_is_a_stall() -> None:
    watch, at_s = play({1: LOADING, 150: shards(50), 300: LOADED, 370: COMPILED, 380: AUTOTUNE})

    assert (watch.failure, at_s) == ("no progress for 300 s (stage: tuning kernels)", 380 + 301)


@pytest.mark.parametrize(
    ("log", "failure", "at_s"),
    [
        ({}, "no progress for 180 s (stage: starting)", 181),
        ({5: LOADING}, "no progress for 180 s (stage: loading weights)", 186),
        ({5: LOADING, 9: shards(40)}, "no progress for 180 s (stage: loading weights 40 %)", 190),
        ({5: LOADED}, "no progress for 300 s (stage: compiling)", 306),
    ],
)
def test_a_stall_is_named_with_its_stage(log: Mapping[int, str], failure: str, at_s: int) -> None:
    watch, ended_s = play(log)

    assert (watch.failure, ended_s) == (failure, at_s)


CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d(?:\.\d+)?)")


def captured(name: str) -> tuple[Line, ...]:
    """A real log by Docker's time, or by vLLM's own where it was captured without. Seconds from the first line on."""
    text = (CAPTURED / name).read_bytes().decode()
    stamped = sorted(facts.log_lines(text), key=itemgetter(0)) or [(line, line) for line in text.splitlines()]
    moments, at_s = [], 0.0
    for stamp, line in stamped:
        if clock := CLOCK.search(stamp):
            at_s = 3600 * int(clock[1]) + 60 * int(clock[2]) + float(clock[3])
        moments.append((at_s, line))
    return tuple(Line(at_s - moments[0][0], line) for at_s, line in moments)


def replay(name: str, limits: Startup | None = None) -> tuple[Watch, int]:
    """Play a captured start without any CPU time, one look a second, until its verdict or its last line."""
    log, watch = captured(name), Watch(limits or Startup(), LOG)
    for at_s in range(int(log[-1].at_s) + 2):
        watch = advance(watch, Sample(at_s, tuple(line for line in log if at_s - 1 < line.at_s <= at_s)))
        if watch.over:
            return watch, at_s
    return watch, at_s


@pytest.mark.parametrize(
    ("log", "reached"),
    [
        (
            "vllm-0.23.0-cuda-h100-start-cold.log",
            "weights 26.3, compiling 26.7, kv_cache 50.0, tuning 50.0, graphs 50.9, warming 51.2, opening 183.1, "
            "serving 188.0",
        ),
        (
            "vllm-0.23.0-cuda-h100-start-warm.log",
            "weights 10.6, compiling 10.9, kv_cache 14.9, tuning 14.9, graphs 15.6, warming 15.8, opening 26.1, "
            "serving 31.9",
        ),
        (
            "vllm-0.23.0-cuda-h100-start-1.4B-8-shards.log",
            "weights 12.0, compiling 13.1, kv_cache 52.7, tuning 52.8, graphs 56.2, warming 58.3, opening 70.5, "
            "serving 71.3",
        ),
        (
            "vllm-0.23.0-cuda-h100-start-int4.log",
            "weights 9.3, compiling 10.2, kv_cache 23.6, tuning 23.6, graphs 24.3, warming 25.0, opening 25.3, "
            "serving 27.2",
        ),
        (
            "vllm-0.23.0-cuda-h100-start-fp8.log",
            "weights 10.5, compiling 11.2, kv_cache 34.7, tuning 34.7, graphs 35.5, warming 36.2, opening 36.6, "
            "serving 39.1",
        ),
        (
            "vllm-0.23.0-cuda-h100-start-fastsafetensors.log",
            "weights 10.3, compiling 10.9, kv_cache 13.8, tuning 13.9, graphs 14.6, warming 15.0, opening 15.5, "
            "serving 17.9",
        ),
        (
            "vllm-0.23.0-cuda-tp2-ray-rank0.log",
            "joining 30.9, weights 54.2, compiling 74.7, kv_cache 76.6, tuning 76.6, graphs 77.1, warming 95.6, "
            "opening 95.6, serving 107.0",
        ),
        ("vllm-0.23.0-cuda-tp2-ray-rank1.log", ""),
        (
            "vllm-0.23.0-cuda-tp2-mp-rank0.log",
            "joining 16.5, weights 28.1, compiling 28.4, kv_cache 50.8, tuning 50.9, graphs 51.7, warming 52.2, "
            "opening 69.6, serving 79.5",
        ),
        (
            "vllm-0.23.0-cuda-tp2-mp-rank1.log",
            "joining 8.6, weights 20.2, compiling 20.4, kv_cache 43.0, tuning 43.1, warming 44.4",
        ),
        (
            "vllm-0.33.0-cuda-h200-start-cold.log",
            "weights 26.4, compiling 27.5, kv_cache 64.3, tuning 64.4, warming 76.8, opening 77.8, serving 81.7",
        ),
        ("vllm-0.32.0-cpu-start.log", "weights 21.3, compiling 21.3, kv_cache 22.3, opening 25.3, serving 26.3"),
        (
            "vllm-0.32.0-cpu-compile-start.log",
            "weights 37.7, compiling 39.7, kv_cache 94.7, opening 96.7, serving 97.7",
        ),
        ("vllm-0.32.0-cpu-no-compiler.log", "weights 21.6, compiling 21.6"),
    ],
)
def test_a_real_start_goes_through_its_stages_at_these_seconds(log: str, reached: str) -> None:
    watch, _ = replay(log)

    assert ", ".join(f"{stage.name.lower()} {at_s:.1f}" for stage, at_s in watch.reached[1:]) == reached


def test_the_silence_after_graph_capture_is_warming_up_with_the_limit_of_compiling() -> None:
    """131 s on an H100, in which vLLM 0.23 compiles its sampling kernels."""
    cold = "vllm-0.23.0-cuda-h100-start-cold.log"

    assert replay(cold, Startup(stall_s=30.0, compile_stall_s=135.0))[0].stage is Stage.SERVING
    watch, at_s = replay(cold, Startup(stall_s=30.0, compile_stall_s=100.0))

    assert (watch.failure, at_s) == ("no progress for 100 s (stage: warming up)", 52 + 101)


def test_graphs_captured_to_measure_their_memory_are_not_the_stage() -> None:
    """As vLLM 0.32's V2 model runner does before it sizes the KV cache."""
    capture = ("Capturing CUDA graphs (FULL): 100%|", "Graph capturing finished in 4 secs, took 0.02 GiB")
    log = (LOADING, LOADED, *capture, "Available KV cache memory: 9.1 GiB", "JIT kernel warmup starting.", *capture)

    watch = advance(Watch(Startup(), LOG), Sample(9.0, tuple(Line(at_s, text) for at_s, text in enumerate(log))))

    assert [(stage.name, at_s) for stage, at_s in watch.reached[1:]] == [
        ("WEIGHTS", 0),
        ("COMPILING", 1),
        ("KV_CACHE", 4),
        ("TUNING", 5),
        ("GRAPHS", 6),
        ("WARMING", 7),
    ]


def heartbeats(every_s: int) -> Iterator[tuple[int, str]]:
    return ((at_s, f"INFO 11-21 00:{at_s} still waiting after {at_s} s") for at_s in range(0, 3600, every_s))


def test_a_heartbeat_is_no_progress() -> None:
    watch, at_s = play({**dict(heartbeats(10)), 5: LOADING})

    assert (watch.failure, at_s) == ("no progress for 180 s (stage: loading weights)", 5 + 181)


def test_a_heartbeat_of_a_load_that_hangs_is_no_progress() -> None:
    watch, at_s = play({**dict(heartbeats(10)), 5: LOADING, 9: shards(40)})

    assert (watch.failure, at_s) == ("no progress for 180 s (stage: loading weights 40 %)", 9 + 181)


def test_every_new_percent_is_progress() -> None:
    log = {1: LOADING, **{150 * n: shards(10 * n) for n in range(1, 11)}}

    watch, at_s = play(log, until_s=1500)

    assert (watch.over, watch.text, at_s) == (False, "loading weights 100 %", 1500)


def test_the_same_percent_again_is_no_progress() -> None:
    log = {1: LOADING, **{100 * n: shards(10) for n in range(1, 11)}}

    watch, at_s = play(log)

    assert (watch.failure, at_s) == ("no progress for 180 s (stage: loading weights 10 %)", 100 + 181)


@pytest.mark.parametrize(("cpu_in_30_s", "over"), [(4.9, True), (5.1, False)])
def test_work_is_at_least_5_s_of_cpu_in_30_s(*, cpu_in_30_s: float, over: bool) -> None:
    watch, _ = play({1: LOADING}, until_s=1000, cpu_s=lambda at_s: at_s * cpu_in_30_s / 30)

    assert watch.over is over


def test_work_is_measured_over_30_s() -> None:
    """6 s of CPU at once are work in a window of 30 s, and would not be in one of 60 s."""
    watch, at_s = play({}, cpu_s=lambda at_s: 6.0 if at_s > 100 else 0.0)

    assert (watch.failure, at_s) == ("no progress for 180 s (stage: starting)", 120 + 181)


@pytest.mark.parametrize(("stall_s", "cpu", "over"), [(4.0, 0.2, False), (4.0, 0.1, True), (20.0, 0.2, False)])
def test_a_short_stall_is_measured_over_a_shorter_time(*, stall_s: float, cpu: float, over: bool) -> None:
    limits = Startup(stall_s=stall_s)

    assert play({1: LOADING}, until_s=200, cpu_s=lambda at_s: at_s * cpu, limits=limits)[0].over is over


@pytest.mark.parametrize(("megabytes_in_30_s", "over"), [(49, True), (51, False)])
def test_reading_50_mb_in_30_s_is_progress(*, megabytes_in_30_s: int, over: bool) -> None:
    watch = Watch(Startup(), LOG)
    for at_s in range(1000):
        watch = advance(watch, Sample(at_s, read_bytes=at_s * megabytes_in_30_s * 1_000_000 // 30))

    assert watch.over is over


def test_a_start_that_moves_for_ever_ends_at_the_ceiling() -> None:
    watch, at_s = play({1: LOADED}, cpu_s=busy)

    assert (watch.failure, at_s) == ("not ready after 1800 s (stage: compiling)", 1801)


@pytest.mark.parametrize(
    ("log", "ends_at_s"),
    [
        ({}, 11),
        ({5: LOADED}, 26),
        ({at_s: f"reading {'x' * at_s}" for at_s in range(100)}, 61),
    ],
    ids=["stall", "compile stall", "ceiling"],
)
def test_the_recipe_sets_the_limits(log: Mapping[int, str], ends_at_s: int) -> None:
    limits = Startup(stall_s=10.0, compile_stall_s=20.0, max_s=60.0)

    assert play(log, limits=limits)[1] == ends_at_s


@pytest.mark.parametrize(
    ("sample", "failure"),
    [
        (Sample(9.0, running=False, exit_code=1), "its process exited with code 1 (stage: loading weights 40 %)"),
        (
            Sample(9.0, running=False, exit_code=137, oom_killed=True),
            "its process was OOM-killed (stage: loading weights 40 %)",
        ),
        (
            Sample(9.0, restarted=True),
            "its process exited and Docker restarted it (stage: loading weights 40 %)",
        ),
        (
            Sample(9.0, lines("ValueError: No available memory for the cache blocks."), running=False, exit_code=1),
            "its process exited with code 1 (stage: loading weights 40 %): "
            "ValueError: No available memory for the cache blocks.",
        ),
        (Sample(9.0, lines("ValueError: the reason", "EngineCore failed to start.")), "ValueError: the reason"),
    ],
    ids=["exit", "oom", "restarted", "error and exit", "fatal"],
)
def test_a_dead_process_or_a_fatal_line_ends_it_at_once(sample: Sample, failure: str) -> None:
    watch = advance(Watch(Startup(), LOG), Sample(5.0, lines(LOADING, shards(40))))

    assert advance(watch, sample).failure == failure


def test_the_first_fatal_line_is_the_reason() -> None:
    log = lines("CUDA out of memory", "EngineCore failed to start.", "Engine core initialization failed.")

    assert advance(Watch(Startup(), LOG), Sample(5.0, log)).failure == "CUDA out of memory"


def test_the_exception_that_follows_a_fatal_line_at_the_next_look_is_the_reason() -> None:
    watch = advance(Watch(Startup(), LOG), Sample(5.0, lines("EngineCore failed to start.")))
    assert watch.failure == "EngineCore failed to start."

    watch = advance(
        watch, Sample(6.0, lines("ValueError: the reason", "RuntimeError: Engine core initialization failed."))
    )

    assert watch.failure == "ValueError: the reason"


@pytest.mark.parametrize(
    ("sample", "failure"),
    [
        (
            Sample(9.0, running=False, exit_code=1),
            "its process exited with code 1 (stage: starting): RuntimeError: Failed to infer device type, please set "
            "the environment variable `VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging to help debug the issue.",
        ),
        (
            Sample(9.0, running=False, oom_killed=True),
            "its process was OOM-killed (stage: starting)",
        ),
        (Sample(300.0), "no progress for 180 s (stage: starting)"),
    ],
    ids=["exit", "oom", "stall"],
)
def test_a_process_that_ended_by_itself_ended_of_the_last_exception(sample: Sample, failure: str) -> None:
    watch = advance(Watch(Startup(), LOG), Sample(5.0, captured("vllm-0.23.0-cuda-no-device.log")))
    assert watch.failure == ""

    assert advance(watch, sample).failure == failure


def test_a_server_that_answers_has_not_failed_whatever_its_log_says() -> None:
    watch = advance(Watch(Startup(), LOG), Sample(5.0, lines("EngineCore failed to start."), healthy=True))

    assert (watch.healthy, watch.failure, watch.stage) == (True, "", Stage.SERVING)


def test_an_adopted_start_gets_the_time_of_a_new_stall() -> None:
    """A deploy that is run again sees the whole log at once, of a container that is minutes old."""
    watch, at_s = play({1: LOADING, 100: shards(10)}, since_s=900)

    assert (watch.failure, at_s) == ("no progress for 180 s (stage: loading weights 10 %)", 900 + 181)


def test_an_adopted_start_goes_on_with_the_times_at_which_its_stages_were_reached() -> None:
    watch, at_s = play({1: LOADING, 100: shards(100), 200: LOADED, 1000: SERVING}, since_s=900)

    assert (watch.healthy, at_s) == (True, 1000)
    assert watch.reached == (
        (Stage.STARTING, 0.0),
        (Stage.WEIGHTS, 1),
        (Stage.COMPILING, 200),
        (Stage.SERVING, 1000),
    )


def test_a_stage_never_goes_back() -> None:
    watch, _ = play({1: LOADED, 2: LOADING, 3: shards(7)}, until_s=5)

    assert (watch.stage, watch.percent) == (Stage.COMPILING, None)


def test_a_real_start_ends_healthy_with_its_last_lines_at_hand() -> None:
    log = (CAPTURED / "vllm-0.32.0-cpu-start.log").read_text().splitlines()

    watch = advance(Watch(Startup(), LOG), Sample(28.0, lines(*log)))

    assert (watch.stage, watch.failure, watch.healthy) == (Stage.SERVING, "", False)
    assert watch.tail == tuple(log[-300:])


def test_of_a_long_log_the_last_1500_lines_and_5000_kinds_of_lines_are_kept() -> None:
    log = [f"line {'x' * number}" for number in range(KEEP_LINES + 2)]
    watch = advance(Watch(Startup(), LOG, known_lines=frozenset(map(str, range(4999)))), Sample(9.0, lines(*log)))

    assert (watch.tail, len(watch.known_lines)) == (tuple(log[2:]), 5000)


def test_the_memory_of_a_start_is_a_table() -> None:
    looks = [MemorySample(0.04, 100.0, 0.0), MemorySample(1.06, 39.126, 60.5)]

    assert memory_csv(looks) == "time_s,available_gib,container_gib\n0.0,100.00,0.00\n1.1,39.13,60.50\n"


def test_a_node_with_too_little_memory_left_ends_the_start_at_the_second_look() -> None:
    watch = advance(Watch(Startup(), LOG, floor_gib=4.0), Sample(1.0, available_gib=3.9))
    assert (watch.failure, advance(watch, Sample(2.0, available_gib=4.0)).low) == ("", ())
    assert advance(watch, Sample(2.0, available_gib=3.2)).failure.startswith(
        "the node had 3.2 GiB of memory left (stage: "
    )
    killed = advance(watch, Sample(2.0, running=False, exit_code=137, available_gib=80.0))
    assert killed.failure == "the node had 3.9 GiB of memory left (stage: starting)"
