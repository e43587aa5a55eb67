"""The start of the stand-in engine looks like vLLM's, in good and in bad."""

from __future__ import annotations

import asyncio
import selectors
import socket
import time
from contextlib import closing

import pytest
import requests

from sparkops.engines.start_log import Stage, fingerprint
from sparkops.engines.vllm.causes import TAKE_LESS
from sparkops.engines.vllm.start_log import LOG
from sparkops.serving.startup import causes
from sparkops.serving.startup.explain import explain
from tests.places import CAPTURED
from tests.standin.program import Program, module

START = CAPTURED / "vllm-0.32.0-cpu-start.log"


@pytest.mark.parametrize("length_s", ["0", "0.2"])
def test_a_start_goes_through_all_stages_in_their_order(length_s: str) -> None:
    with Program(START_S=length_s) as program:
        program.serves()
    read = [LOG.read(line) for line in program.lines]
    stages = [reading.stage for reading in read if reading.stage]
    assert list(dict.fromkeys(stages)) == [stage for stage in Stage if stage not in (Stage.STARTING, Stage.JOINING)]
    assert [reading.percent for reading in read if reading.percent is not None] == list(range(0, 101, 5))
    assert not any(reading.fatal for reading in read)


def test_its_lines_are_those_of_a_real_start() -> None:
    """Those of compiling and of graphs are not in the captured log, which is that of a CPU."""
    real = {fingerprint(line.lstrip("\r")) for line in START.read_text().splitlines()}
    with Program("--max-model-len=1024", path="/models/tiny-qwen3") as program:
        program.serves()
    shown = [fingerprint(line) for line in program.log.replace("\r", "").splitlines()]
    alike = [line for line in shown if line in real]
    assert len(set(alike)) > 30
    for text in ("Starting to load model", "safetensors checkpoint shards", "Loading weights took", "rank # in world"):
        assert any(text in line for line in alike), text
    for text in ("KV cache size", "init engine", "Starting vLLM server", "Started server process", "startup complete"):
        assert any(text in line for line in alike), text


def test_the_port_refuses_until_the_start_is_over() -> None:
    with Program(START_S="0.15") as program:
        program.says("Starting to load model")
        with pytest.raises(requests.ConnectionError):
            program.get("/health")
        assert program.serves().get("/health").status_code == 200


def test_a_start_that_hangs_stays_where_it_is_until_it_is_told_to_end() -> None:
    with Program(START_S="0.05", HANG_AT="40") as program:
        program.says("40% Completed")
        time.sleep(0.1)
        assert program.process.poll() is None
        assert "45% Completed" not in program.log
        assert program.tell().ended() == 0


def test_a_crash_is_told_as_vllm_tells_it() -> None:
    with Program(START_S="0.05", CRASH_AT="80") as program:
        assert program.ended() == 1
    assert "80% Completed" in program.log
    assert "85% Completed" not in program.log
    assert any(LOG.read(line).fatal for line in program.lines)
    assert "RuntimeError: Engine core initialization failed" in program.lines[-1]


def test_a_fatal_text_alone_ends_the_start_after_the_weights() -> None:
    with Program(FATAL="CUDA out of memory") as program:
        assert program.ended() == 1
    assert "100% Completed" in program.log
    known = explain(program.lines, causes.of("stand-in")).advice
    assert known
    assert known.step == TAKE_LESS


def test_a_port_that_is_taken_ends_the_start_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with Program(START_S="60", port=taken.getsockname()[1]) as program:
            assert program.ended() == 1
    known = explain(program.lines, causes.of("stand-in")).advice
    assert known
    assert "another program" in known.cause


def test_a_bad_knob_ends_the_start_with_2_and_its_name() -> None:
    with Program(STRAT_S="1") as program:
        assert program.ended() == 2
    assert program.lines == ["vllm: error: STAND_IN_STRAT_S: unknown variable, did you mean STAND_IN_START_S?"]


def test_memory_is_really_taken() -> None:
    with Program(MEMORY_MIB="64") as program:
        assert program.serves().resident_mib() > 64


class Pauses(asyncio.SelectorEventLoop):
    """A loop that skips and records its pauses."""

    def __init__(self) -> None:
        super().__init__(self.Selector(self))
        self.now_s, self.pauses_s = 0.0, list[float]()

    def time(self) -> float:
        return self.now_s

    class Selector(selectors.DefaultSelector):
        def __init__(self, loop: Pauses) -> None:
            super().__init__()
            self.loop = loop

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout:
                self.loop.now_s += timeout
                self.loop.pauses_s.append(timeout)
            return super().select(0)


def test_silence_is_one_pause_or_work_with_short_pauses() -> None:
    startup = module("startup")
    idle, busy = Pauses(), Pauses()
    with closing(idle), closing(busy):
        idle.run_until_complete(startup.silence(600.0, busy=False))
        busy.run_until_complete(startup.silence(0.3, busy=True))

    assert idle.pauses_s == [600.0]
    assert busy.pauses_s
    assert all(pause_s <= startup.IDLE_S for pause_s in busy.pauses_s)
