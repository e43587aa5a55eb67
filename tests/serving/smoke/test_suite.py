"""The whole suite against the stand-in engine: an honest one passes, every misbehaviour is refused by its own check."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from sparkops.config.recipe import Recipe
from sparkops.config.smoke import Smoke, SmokeCheck
from sparkops.errors import Interrupted
from sparkops.exchange import Request
from sparkops.serving.smoke import openai, suite
from sparkops.serving.smoke.checks import Steps, one
from sparkops.serving.smoke.coverage import CHECKS, Check, Planned, planned
from sparkops.serving.smoke.prompts import MODELS, Round
from sparkops.serving.smoke.results import CheckFinding, CheckVerdict, SmokeReport
from sparkops.serving.smoke.suite import Server
from tests.examples import recipe
from tests.ports import free_port
from tests.serving.smoke.server import Engine, to

ARGS = {
    "max-model-len": 32768,
    "enable-auto-tool-choice": True,
    "tool-call-parser": "qwen3_coder",
    "reasoning-parser": "qwen3",
    "structured-outputs-config": {"backend": "auto"},
}
QUICK = {"warm_up": {"timeout_s": 0.5}, "metrics": {"settle_s": 0.4}, "needle": {"tokens": 2000}}

KNOBS: dict[str, dict[str, object]] = {
    "honest": {},
    "nonsense": {"ANSWERS": "nonsense"},
    "bangs": {"ANSWERS": "bangs"},
    "noise": {"ANSWERS": "noise"},
    "empty": {"ANSWERS": "empty"},
    "wrong name": {"ANSWERS": "wrong_name"},
    "raw tools": {"ANSWERS": "raw_tools"},
    "think leak": {"ANSWERS": "think_leak"},
    "hung": {"HEALTH_ONLY": 1},
    "slow": {"TOK_S": 400},
    "late": {"TTFT_S": 0.15},
    "dies": {"DIE_AFTER_REQUESTS": 4},
    "errors": {"ERROR_RATE": 1},
}


@pytest.fixture(scope="module")
def engines() -> Iterator[Mapping[str, Engine]]:
    """All engines, started at once."""
    started = {name: Engine(knobs) for name, knobs in KNOBS.items()}
    yield started
    for engine in started.values():
        engine.stop()


def tuned_recipe(**tuning: Any) -> Recipe:
    return recipe(serve={"args": ARGS}, probe={"smoke": {**QUICK, **tuning}})


def only(*names: str, **tuning: Any) -> Recipe:
    """A recipe in which only these checks run."""
    tuned = {**QUICK, **tuning}
    return tuned_recipe(**{name: {**tuned.get(name, {}), "enabled": name in names} for name in CHECKS})


def probe(engine: Engine, of: Recipe, passes: int = 1, **how: Any) -> SmokeReport:
    return suite.run(Server(to(engine.ready().port), of, pause_s=0.05, **how), passes=passes)


def failed(report: SmokeReport) -> dict[str, str]:
    return {verdict.check: str(verdict.finding) for verdict in report.verdicts if not verdict.ok}


def test_an_honest_engine_passes_every_check(engines: Mapping[str, Engine]) -> None:
    reports: list[CheckVerdict] = []

    report = suite.run(
        Server(to(engines["honest"].ready().port), tuned_recipe(speed={"enabled": True})), reports.append, 2
    )

    assert (report.failure, report.ok, report.passes) == ("", True, 2)
    every = [name for name in CHECKS if name not in ("embeddings", "rerank")]
    assert [verdict.check for verdict in reports if verdict.number == 1] == every
    assert [verdict.check for verdict in reports if verdict.number == 2] == [n for n in every if n != "warm_up"]
    assert tuple(reports) == report.verdicts


@pytest.mark.parametrize(
    ("engine", "check", "reason"),
    [
        ("nonsense", "questions", "only 0 of 5 answers are right; expected at least 4; got 'What is 17*23? Answer"),
        ("bangs", "questions", "one character fills the answer; expected fewer than 8 in a row; got 64 times '!'"),
        ("noise", "questions", "the answer has unprintable characters; expected at least 97% printable"),
        ("empty", "text", "the text is too short; expected at least 200 characters; got 0: ''"),
        ("wrong name", "models", "the model is not served under its name; expected the name chat; got chat-oth"),
        ("raw tools", "tools", "the tool call arrived as text: tool-call-parser qwen3_coder does not fit the model"),
        ("think leak", "reasoning", "reasoning leaks into the answer: reasoning-parser qwen3 does not fit the model"),
        ("hung", "warm_up", "no answer within 0.5 s"),
        ("errors", "warm_up", "the first request failed; expected HTTP 200; got HTTP 500"),
    ],
)
def test_a_misbehaviour_is_refused(engines: Mapping[str, Engine], engine: str, check: str, reason: str) -> None:
    report = probe(engines[engine], only("health", "models", "warm_up", check))

    assert not report.ok
    assert reason in failed(report)[check]
    assert f"the smoke suite failed in pass 1 of 1: {check}: {reason}" in report.failure


@pytest.mark.parametrize("engine", ["nonsense", "bangs", "noise"])
def test_all_reasons_are_told_at_once(engines: Mapping[str, Engine], engine: str) -> None:
    report = probe(engines[engine], tuned_recipe())

    assert {"questions", "needle", "concurrent", "tools", "structured", "reasoning"} <= set(failed(report))
    assert ("text" in failed(report)) == (engine != "nonsense")
    assert report.failure.count("\n    ") == len(failed(report))


def test_too_slow_is_told_in_tokens_per_second(engines: Mapping[str, Engine]) -> None:
    fast = only("speed", speed={"max_tokens": 64}).model_copy(
        update={"expected": recipe(expected={"tok_s": 2000.0, "source": "a test"}).expected}
    )

    failures = failed(probe(engines["slow"], fast))

    assert failures["speed"].startswith(
        "the engine is too slow, as with a fallback kernel; expected at least 1000.0 tok/s, 50% of the recipe's 2000; "
    )


def test_a_late_first_piece_is_told(engines: Mapping[str, Engine]) -> None:
    report = probe(engines["late"], only("streaming", streaming={"first_s": 0.1}))

    assert "the first piece arrives late; expected it within 0.1 s; got 0.2 s" in failed(report)["streaming"]


class SmokeWithToy(Smoke):
    """The settings of the suite with those of one check more."""

    toy: SmokeCheck = SmokeCheck()


def test_a_further_check_is_one_object_beside_its_settings(
    engines: Mapping[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in its place, is listed with its reason, and can be switched off."""

    def ask(run: Round) -> Steps:
        cards = openai.cards((yield from one(Request(MODELS))))
        return CheckFinding("too few models", "two", f"{len(cards)} in pass {run.number}")

    of = only("health")
    monkeypatch.setitem(CHECKS, "toy", Check(ask, lambda of: (True, f"as {of.name} asks")))
    settings = SmokeWithToy(**of.probe.smoke.model_dump())
    of = of.model_copy(update={"probe": of.probe.model_copy(update={"smoke": settings})})

    assert planned(of)[-1] == Planned("toy", runs=True, why="as q asks")
    assert failed(probe(engines["honest"], of)) == {"toy": "too few models; expected two; got 1 in pass 1"}

    off = settings.model_copy(update={"toy": SmokeCheck(enabled=False)})
    without = of.model_copy(update={"probe": of.probe.model_copy(update={"smoke": off})})
    assert probe(engines["honest"], without).failure == ""


def test_an_engine_that_dies_ends_the_suite_at_once(engines: Mapping[str, Engine]) -> None:
    report = probe(engines["dies"], tuned_recipe())

    assert "the connection broke: " in failed(report)["questions"]
    assert report.verdicts[-1].check == "questions"


def test_an_engine_that_is_gone_ends_the_suite_at_once() -> None:
    report = suite.run(Server(to(free_port()), tuned_recipe(), pause_s=0.05), passes=3)

    assert [verdict.check for verdict in report.verdicts] == ["health"]
    assert report.failure == (
        "the smoke suite failed in pass 1 of 3: health: the connection broke: [Errno 111] Connection refused"
    )
    assert report.transcript[-1].reply.tries == 2


def test_a_restart_fails_the_pass_in_which_it_happens(engines: Mapping[str, Engine]) -> None:
    counts = iter([0, 1])

    report = probe(engines["honest"], only("restarts"), passes=3, restarts=lambda: next(counts))

    assert (report.passes, report.required, report.ok) == (1, 3, False)
    assert report.failure == (
        "the smoke suite failed in pass 2 of 3: restarts: the container restarted meanwhile; expected 0 restarts; got 1"
    )


def test_the_transcript_holds_every_request_and_no_header(engines: Mapping[str, Engine]) -> None:
    report = probe(engines["honest"], tuned_recipe())

    reports = json.loads(json.dumps(report.as_json()))
    assert report.failure == ""
    assert "uthorization" not in json.dumps(reports)
    assert {verdict["check"] for verdict in reports["transcript"]} == {verdict.check for verdict in report.verdicts} - {
        "restarts"
    }
    story = next(verdict for verdict in reports["transcript"] if verdict["check"] == "text")
    assert story["request"]["body"]["messages"][0]["content"].startswith("Write a short story")
    assert (story["request"]["path"], story["response"]["status"], story["ok"]) == ("/v1/chat/completions", 200, True)
    assert isinstance(story["took_s"], float)
    assert len(json.dumps(reports)) < 200_000


def test_ctrl_c_ends_a_request_that_hangs(engines: Mapping[str, Engine]) -> None:
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()

    with pytest.raises(Interrupted):
        probe(engines["hung"], only("warm_up", warm_up={"timeout_s": 60.0}), cancel=cancel)
