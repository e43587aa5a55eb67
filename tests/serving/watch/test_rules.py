"""The rules of the watch. Each threshold is met, and missed by the least."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sparkops.engines.vllm.figures import STEPS
from sparkops.exchange import Reply, Request
from sparkops.guard.report.node_report import IDLE_S
from sparkops.node.host import Clocks
from sparkops.node.survey.node_survey import figures
from sparkops.serving.smoke.coverage import lightest, planned
from sparkops.serving.smoke.prompts import COMPLETIONS, EMBEDDINGS, RERANK
from sparkops.serving.smoke.results import CheckFinding, CheckVerdict, Entry, SmokeReport
from sparkops.serving.watch import rules
from sparkops.serving.watch.pace import EVERY_S, LAST, PAST, WARM_S
from sparkops.serving.watch.rules import ASK_S, CLOCKS_S, DOWN_S, FAILURES, SAMPLE_S, STUCK, EngineLook, LightAnswer
from sparkops.swap.journal import HOUR_S, RESTARTS
from tests.examples import recipe

pytestmark = pytest.mark.unit
RECIPE = recipe()
PATIENCE_S = rules.patience_s(RECIPE)
SILENT, GARBAGE, RIGHT = LightAnswer(silent="no answer within 120 s"), LightAnswer(garbage="'!!!!'"), LightAnswer()
PAGE = dict.fromkeys(STEPS, 5.0) | {"vllm:num_requests_running": 0.0, "vllm:num_requests_waiting": 0.0}
BUSY = {**PAGE, "vllm:num_requests_running": 1.0}


@dataclass
class Engine:
    """One engine under watch; each look comes a second after its sample."""

    look: EngineLook = field(default_factory=lambda: EngineLook(0.0, sample=rules.sample(0.0, PAGE)))

    def __post_init__(self) -> None:
        self.watch = rules.begin(self.look)

    def after(self, seconds: float, page: dict[str, float] | None = None, **changes: Any) -> list[str]:
        """Return the codes of what the rules find so many seconds later, with these figures."""
        at_s = self.look.at_s + seconds
        sample = rules.sample(at_s, page) if page is not None else self.look.sample
        self.look = replace(self.look, at_s=at_s, sample=sample, answer=None)
        self.look = replace(self.look, **changes)
        self.watch = rules.advance(self.watch, self.look)
        return [breach.rule.value for breach in rules.breaches(self.watch, RECIPE)]

    @property
    def asks(self) -> bool:
        return rules.asks(self.watch, RECIPE)


@pytest.fixture
def engine() -> Engine:
    return Engine()


def test_the_figures_that_docs_guard_md_names() -> None:
    assert (ASK_S, FAILURES, rules.BAD_ANSWERS) == (60.0, 3, 3)
    assert (DOWN_S, rules.MOST_RESTARTS, SAMPLE_S) == (300.0, 3, 3 * IDLE_S)
    assert (CLOCKS_S, STUCK) == (120.0, 5)


def stalled(engine: Engine) -> None:
    """Let it stand still with a request for its whole patience, and not answer a question."""
    engine.after(10.0, BUSY)
    engine.after(PATIENCE_S, BUSY, answer=SILENT)


def test_pending_requests_without_a_step_are_a_stall_once_a_question_gets_no_answer_either(engine: Engine) -> None:
    engine.after(10.0, BUSY)

    assert engine.after(PATIENCE_S - 1.0, BUSY, answer=SILENT) == []
    assert engine.after(1.0, BUSY) == ["STALLED"]
    assert engine.after(15.0, {**BUSY, STEPS[0]: 6.0}) == []


def test_a_count_of_running_requests_that_is_wrong_is_no_stall(engine: Engine) -> None:
    """vLLM's stays as it was where clients abort all requests at once (vllm-project/vllm#29928)."""
    engine.after(10.0, BUSY)

    assert engine.after(9 * PATIENCE_S, BUSY) == []
    assert engine.asks
    assert engine.after(1.0, BUSY, answer=RIGHT) == []
    assert engine.watch.still_s == 0.0


@pytest.mark.parametrize("figure", STEPS)
def test_each_figure_that_a_step_changes_ends_a_stall(engine: Engine, figure: str) -> None:
    stalled(engine)

    assert engine.after(15.0, {**BUSY, figure: BUSY[figure] + 1}) == []


def test_the_patience_is_the_longest_silence_that_the_recipe_allows_an_engine_that_compiles() -> None:
    assert (RECIPE.swap.stall_s, RECIPE.probe.startup.compile_stall_s, PATIENCE_S) == (30.0, 300.0, 300.0)
    assert rules.patience_s(recipe(swap={"stall_s": 400.0})) == 400.0
    assert rules.patience_s(recipe(probe={"startup": {"compile_stall_s": 500.0}})) == 500.0


def test_time_without_a_sample_does_not_count(engine: Engine) -> None:
    engine.after(10.0, BUSY)
    for _ in range(9):
        assert engine.after(PATIENCE_S, answer=SILENT) == []  # the sample of before

    assert engine.watch.still_s == 0.0


def test_time_in_which_nothing_can_be_concluded_does_not_count(engine: Engine) -> None:
    engine.after(10.0, BUSY)
    engine.after(9 * PATIENCE_S, BUSY, paused=True, answer=SILENT)

    assert engine.after(1.0, BUSY, paused=False) == []
    assert (engine.watch.still_s, engine.watch.silent) == (1.0, ())


def test_a_pause_ends_no_finding(engine: Engine) -> None:
    stalled(engine)

    assert engine.after(10.0, BUSY, paused=True) == ["STALLED"]


def test_another_run_begins_without_the_faults_of_the_last_one(engine: Engine) -> None:
    stalled(engine)

    assert engine.after(15.0, BUSY, start=7.0) == []
    assert engine.after(PATIENCE_S, BUSY) == []


def unanswered(engine: Engine, questions: int) -> list[str]:
    engine.after(ASK_S, PAGE, answer=SILENT)
    engine.after(PATIENCE_S, PAGE)
    found: list[str] = []
    for _ in range(questions - 1):
        found = engine.after(ASK_S, PAGE, answer=SILENT)
    return found


@pytest.mark.parametrize(("questions", "found"), [(FAILURES - 1, []), (FAILURES, ["UNANSWERED"])])
def test_questions_without_an_answer_in_a_row_while_idle(engine: Engine, questions: int, found: list[str]) -> None:
    assert unanswered(engine, questions) == found


def test_the_longest_step_may_be_in_progress_while_questions_get_no_answer(engine: Engine) -> None:
    """vLLM counts a request as running at the end of its first step."""
    for _ in range(FAILURES):
        assert engine.after(ASK_S, PAGE, answer=SILENT) == []


@pytest.mark.parametrize("alive", [{"page": {**PAGE, STEPS[1]: 9.0}}, {"page": PAGE, "answer": RIGHT}])
def test_a_step_or_an_answer_ends_it(engine: Engine, alive: dict[str, Any]) -> None:
    unanswered(engine, FAILURES)

    assert engine.after(15.0, **alive) == []
    assert engine.watch.silent == ()


@pytest.mark.parametrize(("answers", "found"), [(2, []), (3, ["GARBAGE"])])
def test_garbage_in_a_row(engine: Engine, answers: int, found: list[str]) -> None:
    for number in range(answers):
        last = engine.after(ASK_S, {**PAGE, STEPS[0]: number}, answer=GARBAGE)

    assert last == found
    assert engine.after(ASK_S, {**PAGE, STEPS[0]: 99.0}, answer=RIGHT) == []


def test_garbage_that_is_not_in_a_row_is_none(engine: Engine) -> None:
    answers = (GARBAGE, GARBAGE, RIGHT) * 3

    assert [engine.after(ASK_S, PAGE, answer=answer) for answer in answers] == [[]] * len(answers)


@pytest.mark.parametrize(("restarts", "found"), [(RESTARTS - 1, []), (RESTARTS, ["RESTARTS"])])
def test_the_whole_budget_of_restarts_within_an_hour(engine: Engine, restarts: int, found: list[str]) -> None:
    assert engine.after(10.0, PAGE, ordered_restarts=restarts) == found


@pytest.mark.parametrize(("pause_s", "found"), [(HOUR_S / 2 - 1, ["RESTARTS"]), (HOUR_S / 2, [])])
def test_restarts_by_docker_count_for_an_hour(engine: Engine, pause_s: float, found: list[str]) -> None:
    engine.after(10.0, PAGE, docker_restarts=1, start=1.0)
    engine.after(pause_s, PAGE, docker_restarts=2, start=2.0)

    assert engine.after(pause_s, PAGE, docker_restarts=3, start=3.0) == found


def test_a_rank_that_nothing_starts(engine: Engine) -> None:
    engine.after(10.0, running=False)

    assert engine.after(DOWN_S - 1.0) == []
    assert engine.after(1.0) == ["RANK_DOWN"]
    assert engine.after(1.0, running=True) == []


def test_a_rank_that_is_down_says_why_its_start_does_not_happen(engine: Engine) -> None:
    engine.after(10.0, running=False, hindered="memory not freed within 60 s\nnext: a reboot")
    engine.after(DOWN_S)
    (breach,) = rules.breaches(engine.watch, RECIPE)

    assert breach.detail == "not running for 300 s: its start is retried in vain: memory not freed within 60 s"


@pytest.mark.parametrize("kept", [{"starting": True}, {"paused": True}], ids=["starting", "paused"])
def test_a_rank_that_may_not_start_yet_is_not_down(engine: Engine, kept: dict[str, Any]) -> None:
    engine.after(10.0, running=False)
    engine.after(9 * DOWN_S, **kept)

    assert engine.after(1.0, starting=False, paused=False) == []


def test_a_question_is_due_once_a_minute_while_idle(engine: Engine) -> None:
    engine.after(ASK_S - 1.0, PAGE)
    assert not engine.asks
    engine.after(1.0, PAGE)
    assert engine.asks


@pytest.mark.parametrize(
    "changes",
    [{"page": BUSY}, {"page": PAGE, "paused": True}, {"page": PAGE, "running": False}, {"page": {"other": 1.0}}],
    ids=["busy", "loading, leased or unread", "not running", "without metrics of vLLM"],
)
def test_no_question_is_sent_to_an_engine_that_is_not_known_to_be_idle(engine: Engine, changes: dict[str, Any]) -> None:
    engine.after(ASK_S, **changes)

    assert not engine.asks


def test_an_old_sample_does_not_show_that_it_is_idle(engine: Engine) -> None:
    engine.after(ASK_S, PAGE)
    engine.after(SAMPLE_S)
    assert engine.asks
    engine.after(1.0)
    assert not engine.asks


@pytest.fixture
def idle_alone() -> Engine:
    """An engine that is alone on its node and idle, long after its start."""
    engine = Engine(EngineLook(0.0, sample=rules.sample(0.0, PAGE), alone=True))
    engine.after(WARM_S, PAGE)
    return engine


def test_a_sample_of_the_speed_is_due_when_the_engine_has_settled(idle_alone: Engine) -> None:
    assert rules.measures(idle_alone.watch)
    idle_alone.watch = replace(idle_alone.watch, measured_s=idle_alone.look.at_s)
    idle_alone.after(EVERY_S - 1.0, PAGE)
    assert not rules.measures(idle_alone.watch)
    idle_alone.after(1.0, PAGE)
    assert rules.measures(idle_alone.watch)


@pytest.mark.parametrize(
    "changes",
    [
        {"page": BUSY},
        {"page": PAGE, "alone": False},
        {"page": PAGE, "paused": True},
        {"page": PAGE, "running": False},
        {"page": PAGE, "answer": SILENT},
        {"page": PAGE, "answer": GARBAGE},
        {"page": PAGE, "start": 9.0},
        {"page": {"other": 1.0}},
    ],
    ids=["busy", "beside another", "paused", "not running", "silent", "garbage", "just started", "other metrics"],
)
def test_no_sample_is_taken_of_an_engine_that_is_not_idle_alone_well_and_settled(
    idle_alone: Engine, changes: dict[str, Any]
) -> None:
    seconds = SAMPLE_S + 1.0 if changes["page"] == {"other": 1.0} else 1.0
    idle_alone.after(seconds, **changes)

    assert not rules.measures(idle_alone.watch)


def test_after_a_pause_an_engine_settles_anew(idle_alone: Engine) -> None:
    idle_alone.after(1.0, PAGE, paused=True)
    idle_alone.after(1.0, PAGE, paused=False)
    idle_alone.after(WARM_S - 1.0, PAGE)
    assert not rules.measures(idle_alone.watch)
    idle_alone.after(1.0, PAGE)
    assert rules.measures(idle_alone.watch)


def test_an_engine_that_is_slower_than_its_past_is_found_also_after_it_was_started_again(idle_alone: Engine) -> None:
    for _ in range(PAST):
        assert idle_alone.after(EVERY_S, PAGE, tok_s=20.0) == []
    idle_alone.after(1.0, PAGE, start=9.0, tok_s=None)
    for _ in range(LAST - 1):
        assert idle_alone.after(EVERY_S, PAGE, tok_s=10.0) == []
    assert idle_alone.after(EVERY_S, PAGE, tok_s=10.0) == ["SLOW"]
    assert idle_alone.after(EVERY_S, PAGE, tok_s=None) == ["SLOW"]


def test_a_node_without_memory_is_found_while_it_lasts(engine: Engine) -> None:
    assert engine.after(1.0, short="0.9 GiB of memory left") == ["LOW_MEMORY"]
    assert engine.after(1.0, short="") == []


HOT, LOW, IDLE = Clocks(2398, 3003, 96), Clocks(702, 3003, 96), Clocks(208, 3003, 0)


def test_a_gpu_that_computes_at_low_clocks_is_found_after_five_samples_in_a_row(engine: Engine) -> None:
    for _ in range(STUCK - 1):
        assert engine.after(CLOCKS_S, BUSY, clocks=(LOW,)) == []
    assert engine.after(CLOCKS_S, {**BUSY, STEPS[0]: 6.0}, clocks=(HOT, LOW)) == ["CLOCKS_LOW"]
    (breach,) = rules.breaches(engine.watch, RECIPE)
    assert (breach.age_s, breach.detail) == (
        (STUCK - 1) * CLOCKS_S,
        "the GPU runs at 702 of 3003 MHz while 96 % busy",
    )
    assert engine.after(CLOCKS_S, PAGE, clocks=(HOT,)) == []


@pytest.mark.parametrize("other", [(HOT,), (Clocks(1001, 3003, 96),)])
def test_one_sample_at_good_clocks_begins_anew(engine: Engine, other: tuple[Clocks, ...]) -> None:
    for clocks in (*[(LOW,)] * (STUCK - 1), other, *[(LOW,)] * (STUCK - 1)):
        assert engine.after(1.0, clocks=clocks) == []


@pytest.mark.parametrize("other", [(), (IDLE,), (Clocks(208, 3003, 79),)])
def test_an_idle_gpu_and_none_show_nothing(engine: Engine, other: tuple[Clocks, ...]) -> None:
    for clocks in (*[(LOW,)] * (STUCK - 1), *[other] * STUCK):
        assert engine.after(1.0, clocks=clocks) == []
    assert engine.after(1.0, clocks=(LOW,)) == ["CLOCKS_LOW"]


def test_clocks_are_read_while_requests_run_at_most_every_two_minutes(engine: Engine) -> None:
    engine.after(CLOCKS_S - 1.0, BUSY)
    assert not rules.reads_clocks(engine.watch)
    engine.after(1.0, BUSY)
    assert rules.reads_clocks(engine.watch)
    engine.after(1.0, BUSY, paused=True)
    assert not rules.reads_clocks(engine.watch)
    engine.after(1.0, PAGE, paused=False)
    assert not rules.reads_clocks(engine.watch)


def test_of_a_rank_above_0_they_are_read_whatever_it_does() -> None:
    worker = Engine(EngineLook(0.0))
    worker.after(CLOCKS_S)
    assert rules.reads_clocks(worker.watch)
    worker.after(1.0, running=False)
    assert not rules.reads_clocks(worker.watch)


def report(*replies: Reply) -> SmokeReport:
    entries = tuple(Entry("questions", 1, 0.0, Request(COMPLETIONS, {}), reply, ok=True) for reply in replies)
    verdict = CheckVerdict("health", 1, 0.1, CheckFinding("" if replies else "no answer within 10 s"))
    return SmokeReport(0, 1, (verdict,), entries, 1.0)


def answer(text: str) -> Reply:
    choice, usage = f'{{"message": {{"content": "{text}"}}}}', '{"completion_tokens": 9, "prompt_tokens": 9}'
    return Reply(200, ((0.1, f'{{"choices": [{choice}], "usage": {usage}}}'),), 0.1)


@pytest.mark.parametrize(
    ("replies", "silent", "garbage"),
    [
        ((answer("391"),), "", ""),
        ((answer("I do not know."),), "", ""),
        ((answer("!" * 64),), "", "one character fills the answer"),
        ((answer("\\u0001\\u0002 ab"),), "", "the answer has unprintable characters"),
        ((Reply(0, (), 4.0, "no answer within 4 s"),), "no answer within 4 s", ""),
        ((Reply(500, ((0.1, "dead"),), 0.1),), "HTTP 500: 'dead'", ""),
        ((), "health: no answer within 10 s", ""),
    ],
    ids=["right", "wrong", "one character", "unprintable", "late", "error", "no health"],
)
def test_what_a_light_question_shows(replies: tuple[Reply, ...], silent: str, garbage: str) -> None:
    shown = rules.judged(report(*replies), RECIPE)

    assert (shown.silent, shown.garbage.partition(";")[0]) == (silent, garbage)


def test_the_light_question_is_the_first_of_the_light_pass() -> None:
    question = lightest(RECIPE)

    assert question is not None
    assert [check.name for check in planned(question) if check.runs] == ["health", "questions"]
    assert question.probe.smoke.questions.prompts == RECIPE.probe.smoke.questions.prompts[:1]
    assert lightest(recipe(probe={"smoke": {"questions": {"enabled": False}}})) is None


@pytest.mark.parametrize(("task", "check"), [("embedding", "embeddings"), ("rerank", "rerank")])
def test_the_light_question_of_another_task_is_the_check_of_its_gate(task: str, check: str) -> None:
    made = recipe(serve={"task": task})
    question = lightest(made)

    assert question is not None
    assert [check.name for check in planned(question) if check.runs] == ["health", check]
    assert lightest(recipe(serve={"task": task}, probe={"smoke": {check: {"enabled": False}}})) is None


VECTORS = Reply(200, ((0.1, '{"data": [{"index": 0, "embedding": [0.1, 0.2]}]}'),), 0.1)
SCORES = Reply(200, ((0.1, '{"results": [{"index": 0, "relevance_score": 0.5}]}'),), 0.1)


@pytest.mark.parametrize(
    ("reply", "finding", "silent", "garbage"),
    [
        (VECTORS, "", "", ""),
        (VECTORS, "a vector has no direction", "", "embeddings: a vector has no direction"),
        (Reply(0, (), 4.0, "no answer within 4 s"), "no answer within 4 s", "no answer within 4 s", ""),
        (Reply(500, ((0.1, "dead"),), 0.1), "HTTP 500", "HTTP 500: 'dead'", ""),
    ],
    ids=["right", "wrong", "late", "error"],
)
def test_what_the_check_of_an_embedding_model_shows(reply: Reply, finding: str, silent: str, garbage: str) -> None:
    entries = (Entry("embeddings", 1, 0.0, Request(EMBEDDINGS, {}), reply, ok=not finding),)
    verdict = CheckVerdict("embeddings", 1, 0.1, CheckFinding(finding))
    made = recipe(serve={"task": "embedding"})
    shown = rules.judged(SmokeReport(int(not finding), 1, (verdict,), entries, 1.0), made)

    assert (shown.silent, shown.garbage) == (silent, garbage)


@pytest.mark.parametrize(("finding", "garbage"), [("", ""), ("equal scores", "rerank: equal scores")])
def test_what_the_check_of_a_reranker_shows(finding: str, garbage: str) -> None:
    entries = (Entry("rerank", 1, 0.0, Request(RERANK, {}), SCORES, ok=not finding),)
    verdict = CheckVerdict("rerank", 1, 0.1, CheckFinding(finding))
    made = recipe(serve={"task": "rerank"})
    shown = rules.judged(SmokeReport(int(not finding), 1, (verdict,), entries, 1.0), made)

    assert (shown.silent, shown.garbage) == ("", garbage)


def busy(page: dict[str, float]) -> Iterator[dict[str, float]]:
    """A day of decoding with full batches: tokens grow at each step."""
    for step in range(24 * 240):
        more = {"vllm:iteration_tokens_total_count": step, "vllm:generation_tokens_total": 64 * step}
        yield page | more | {"vllm:num_requests_running": 64.0, "vllm:num_requests_waiting": step % 9}


def idle(page: dict[str, float]) -> Iterator[dict[str, float]]:
    yield from [page] * 24 * 240


def long_prompts(page: dict[str, float]) -> Iterator[dict[str, float]]:
    """Prompts that are read for half an hour each, in pieces of 270 s: only the use of the cache shows them."""
    for sample in range(24 * 240):
        yield page | {"vllm:num_requests_running": 1.0, "vllm:kv_cache_usage_perc": (sample // 18 % 7) / 10}


@pytest.mark.parametrize("day", [busy, idle, long_prompts])
def test_a_healthy_day_has_no_finding(
    captured: Callable[[str], str], day: Callable[[dict[str, float]], Iterator[dict[str, float]]]
) -> None:
    """vLLM's own page, with the figures that change over a day of a sample every 15 s; each question is answered."""
    page = figures((200, captured("vllm-0.32.0-cpu-metrics.txt")), STEPS)
    assert set(page) == set(STEPS)
    engine = Engine(EngineLook(0.0, sample=rules.sample(0.0, page)))
    found = []
    for later in day(page):
        answered = {"answer": RIGHT} if engine.asks else {}
        if answered:
            engine.watch = replace(engine.watch, asked_s=engine.look.at_s)
        found += engine.after(15.0, later, **answered)

    assert found == []
