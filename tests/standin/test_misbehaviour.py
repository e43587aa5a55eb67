"""Each misbehaviour of a running engine, seen from outside."""

from __future__ import annotations

import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import requests

from sparkops.config import recipe_file
from sparkops.config.recipe import Recipe
from sparkops.serving.smoke.results import SmokeReport
from sparkops.serving.smoke.suite import Server, run
from tests.places import ROOT
from tests.ports import free_port
from tests.standin.program import Program

FRANCE = "What is the capital of France?"
RECIPE = recipe_file.load(ROOT / "recipes" / "stand-in.yaml")
SMOKE = {"timeout_s": 2.0, "warm_up": {"timeout_s": 0.3}, "metrics": {"settle_s": 0.1}}
PROBE = {"smoke": {**SMOKE, "structured": {"enabled": True}}}
IMPATIENT = Recipe.model_validate({**RECIPE.model_dump(), "probe": PROBE})
ARGS = ("--max-model-len=32768",)


def suite(program: Program) -> SmokeReport:
    """One pass of the smoke suite over the program."""

    class Session(requests.Session):
        def request(self, method: str | bytes, url: str | bytes, *args: object, **more: object) -> requests.Response:
            here = str(url).replace("http://node", program.url)
            return super().request(method, here, *args, **more)  # type: ignore[arg-type]

    def session() -> requests.Session:
        client = Session()
        client.trust_env = False
        return client

    return run(Server(session, IMPATIENT), passes=1)


def listens(program: Program) -> bool:
    """Whether new connections are taken."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", program.port)) == 0


def test_the_smoke_suite_passes_on_an_engine_that_is_well() -> None:
    with Program(*ARGS) as program:
        report = suite(program.serves())
    assert report.ok, report.failure
    assert {"tools", "structured", "reasoning", "needle", "concurrent"} <= {
        verdict.check for verdict in report.verdicts
    }


@pytest.mark.parametrize(
    ("answers", "check"),
    [
        ("nonsense", "questions"),
        ("bangs", "questions"),
        ("noise", "questions"),
        ("empty", "questions"),
        ("wrong_name", "models"),
        ("raw_tools", "tools"),
        ("think_leak", "reasoning"),
    ],
)
def test_the_smoke_suite_refuses_an_engine_that_is_not(answers: str, check: str) -> None:
    with Program(*ARGS, ANSWERS=answers) as program:
        report = suite(program.serves())
    assert not report.ok
    assert check in {verdict.check for verdict in report.verdicts if not verdict.ok}


@pytest.mark.parametrize(("ttft_s", "tokens"), [("0.1", 1), ("600", 0)])
def test_slow_is_slow(ttft_s: str, tokens: int) -> None:
    """The first token comes after TTFT_S, here perhaps never, and the next one 100 s later."""
    with ThreadPoolExecutor(1) as client, Program(TOK_S="0.01", TTFT_S=ttft_s) as program:
        program.serves()
        client.submit(program.post, program.body("Talk.", stream=True))
        while program.metric("vllm:num_requests_running") < 1:
            pass
        while program.metric("vllm:generation_tokens_total") < tokens:
            pass
        assert program.metric("vllm:num_requests_running") == 1
        assert program.metric("vllm:generation_tokens_total") == tokens


def test_it_hangs_some_time_after_it_began_to_serve() -> None:
    with Program(HANG_AFTER_S="3") as program:
        program.serves()
        assert program.ask(FRANCE)["finish_reason"] == "stop"
        time.sleep(3)
        with pytest.raises(requests.Timeout):
            program.http.post(f"{program.url}/v1/chat/completions", json=program.body(FRANCE), timeout=0.3)
        assert program.get("/health").status_code == 200
        assert program.tell().ended() == 0


def test_its_answers_turn_to_garbage_some_time_after_it_began_to_serve() -> None:
    with (
        Program(ANSWERS="bangs", ANSWERS_AFTER_S="3600") as before,
        Program(ANSWERS="bangs", ANSWERS_AFTER_S="0.1") as after,
    ):
        assert "Paris" in before.serves().ask(FRANCE)["message"]["content"]
        after.serves()
        time.sleep(0.5)
        assert "!!!!" in after.ask(FRANCE)["message"]["content"]


def test_it_becomes_slow_some_time_after_it_began_to_serve() -> None:
    with Program(SLOW_AFTER_S="3600") as before, Program(SLOW_AFTER_S="0.1", SLOW_TOK_S="0.01") as after:
        assert before.serves().ask(FRANCE)["finish_reason"] == "stop"
        after.serves()
        time.sleep(0.5)
        with pytest.raises(requests.Timeout):  # its second token would come after 100 s
            after.http.post(f"{after.url}/v1/chat/completions", json=after.body(FRANCE), timeout=2)


def test_a_signal_freezes_steps_and_figures_and_another_one_ends_that() -> None:
    """As in vLLM, whose figures change with a step only: a request that comes meanwhile is not counted."""
    with Program(TOK_S="20") as program, ThreadPoolExecutor(2) as thread:
        running = thread.submit(program.serves().post, program.body("Talk.", max_tokens=80, stream=True))
        while not program.metric("vllm:generation_tokens_total"):
            pass
        program.process.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        before = program.metric("vllm:generation_tokens_total")
        asked = thread.submit(
            requests.post, f"{program.url}/v1/chat/completions", json=program.body(FRANCE), timeout=60
        )
        time.sleep(0.3)
        frozen = [program.metric(f"vllm:{name}") for name in ("generation_tokens_total", "num_requests_running")]
        healthy = program.get("/health").status_code
        program.process.send_signal(signal.SIGUSR2)

        assert (frozen, healthy) == ([before, 1], 200)
        assert asked.result().status_code == 200
        assert running.result().text.endswith("data: [DONE]\n\n")


def test_errors_come_at_their_rate() -> None:
    with Program(ERROR_RATE="0.25") as program:
        program.serves()
        replies = [program.post(program.body(FRANCE)) for _ in range(8)]
    assert [reply.status_code for reply in replies].count(500) == 2
    assert next(reply for reply in replies if reply.status_code == 500).json()["error"]["type"] == "InternalServerError"


def test_it_dies_some_time_after_it_began_to_serve() -> None:
    with Program(DIE_AFTER_S="0.1") as program:
        assert program.serves().get("/health").status_code == 200
        assert program.ended(1.0) == 1
    assert "EngineDeadError" in program.log


def test_a_stream_whose_engine_core_dies_ends_with_an_error_and_done() -> None:
    """As vLLM's API server does, which lives on for some seconds."""
    with Program(CORE_DIES_AFTER_S="0.5", TOK_S="10") as program:
        stream = program.serves().post(program.body("Talk.", max_tokens=200, stream=True)).text
        assert program.get("/health").status_code == 503
        assert program.post(program.body(FRANCE)).status_code == 500
    *_, last, error, last_event, rest = stream.split("\n\n")
    assert json.loads(last.removeprefix("data: "))["choices"][0]["finish_reason"] is None
    assert json.loads(error.removeprefix("data: "))["error"]["type"] == "InternalServerError"
    assert (last_event, rest) == ("data: [DONE]", "")


def test_told_to_end_it_finishes_what_runs_and_takes_nothing_new() -> None:
    with Program(TOK_S="40") as program, ThreadPoolExecutor(1) as thread:
        running = thread.submit(program.serves().post, program.body("Talk.", max_tokens=20, stream=True))
        while not program.metric("vllm:generation_tokens_total"):
            pass
        program.tell()
        while listens(program):
            pass
        assert running.result().text.endswith("data: [DONE]\n\n")
        assert program.ended() == 0
    assert program.lines[-1] == f"INFO:     Finished server process [{program.process.pid}]"


def test_told_to_end_while_it_starts_it_ends() -> None:
    with Program(START_S="60") as program:
        assert program.says("api_utils").tell().ended() == 0


def test_it_may_ignore_sigterm() -> None:
    with Program(IGNORE_TERM="1") as program:
        program.serves().tell()
        time.sleep(0.1)
        assert program.ask(FRANCE)["finish_reason"] == "stop"


def test_it_may_keep_its_memory_for_a_while() -> None:
    with Program(KEEP_MEMORY_S="2", MEMORY_MIB="20") as program:
        program.serves().tell()
        while listens(program):
            pass
        assert program.resident_mib() > 20
        assert program.ended() == 0


@pytest.mark.parametrize("killed", [0, 1])
def test_two_ranks_meet_before_they_load_and_end_together(killed: int) -> None:
    joins = ("--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}")
    with Program(*ARGS, *joins, "--node-rank=0") as head:
        time.sleep(0.5)
        assert head.log == ""
        with Program(*ARGS, *joins, "--node-rank=1", "--headless") as other:
            head.serves()
            assert (listens(head), listens(other)) == (True, False)
            (head, other)[killed].process.kill()
            left = (other, head)[killed]
            assert left.process.wait(10) == 1
            left.says("because the other rank has ended")


def test_four_ranks_load_once_all_have_met_and_end_with_any_of_them() -> None:
    sizes = ("--tensor-parallel-size=2", "--pipeline-parallel-size=2", "--nnodes=4")
    joins = (*sizes, "--master-addr=127.0.0.1", f"--master-port={free_port()}")
    with ExitStack() as stack:
        head = stack.enter_context(Program(*ARGS, *joins, "--node-rank=0"))
        others = [stack.enter_context(Program(*ARGS, *joins, f"--node-rank={rank}", "--headless")) for rank in (1, 2)]
        time.sleep(0.5)
        assert head.log == ""
        others.append(stack.enter_context(Program(*ARGS, *joins, "--node-rank=3", "--headless")))
        head.serves()
        others[1].process.kill()
        assert [program.process.wait(10) for program in (head, others[0], others[2])] == [1, 1, 1]
