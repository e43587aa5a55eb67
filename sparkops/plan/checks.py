"""The checks of the smoke suite that any chat model is held to. Pure: requests out, replies in, a finding at the end.

A check is a generator: it yields requests that belong together, gets their replies, and returns a Finding. It reads
no clock and opens no connection, so a test can play the server by hand. plan/claims.py has the checks of what a
recipe claims besides.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from sparkops.config.smoke import Question
from sparkops.exchange import Reply, Request
from sparkops.facts import metrics as metrics_facts
from sparkops.facts import openai
from sparkops.facts.openai import Unusable, shown
from sparkops.plan import asking, coverage, prose
from sparkops.plan.asking import LOOK_S, METRICS, MODELS, Round
from sparkops.plan.smoke import Finding

Steps = Generator[tuple[Request, ...], tuple[Reply, ...], Finding]
Asking = Generator[tuple[Request, ...], tuple[Reply, ...], Reply]

SHOWN_WRONG = 2
LOOKS = 5  # at the metrics, until they show no running request


def one(request: Request) -> Asking:
    """Send one request."""
    (reply,) = yield (request,)
    return reply


def health(_: Round) -> Steps:
    """/health says 200. It proves that a server listens, nothing more."""
    reply = openai.whole((yield from one(Request("/health", timeout_s=LOOK_S))))
    return status_is(reply, 200, "/health does not say that all is well")


def status_is(reply: Reply, wanted: int, problem: str) -> Finding:
    """Whether a reply has that status."""
    got = f"{reply.status}: {shown(reply.body)}" if reply.body else f"{reply.status}"
    return Finding() if reply.status == wanted else Finding(problem, f"HTTP {wanted}", f"HTTP {got}")


def version(this: Round) -> Steps:
    """/version answers, with the version that the recipe names if it names one."""
    said = openai.data((yield from one(Request("/version", timeout_s=LOOK_S))))
    found = str(said.get("version", "")) if isinstance(said, dict) else ""
    wanted = this.smoke.version.expect or ""
    if not found or not found.startswith(wanted):
        return Finding("the engine is not the one of the recipe", f"version {wanted or 'any'}", shown(str(said)))
    return Finding(note=found)


def models(this: Round) -> Steps:
    """The served name is the service's, and the window is at least what the recipe sets."""
    cards = openai.cards((yield from one(Request(MODELS, timeout_s=LOOK_S))))
    card = next((each for each in cards if each.name == this.recipe.service), None)
    if card is None:
        got = ", ".join(each.name for each in cards) or "no model"
        return Finding("clients will not find the model by its name", f"the name {this.recipe.service}", got)
    wanted = coverage.window_of(this.recipe)
    this.window = card.window or wanted
    if wanted and card.window and card.window < wanted:
        return Finding("the window is smaller than the recipe says", f"{wanted} tokens", str(card.window))
    return Finding(note=f"{card.name}, {this.window or 'unknown'} tokens")


def warm_up(this: Round) -> Steps:
    """One request that may take minutes; of its answer only the status counts."""
    asked = asking.question(this, this.smoke.questions.ask[0])
    patient = Request(asked.path, asked.body, timeout_s=this.smoke.warm_up.timeout_s)
    reply = openai.whole((yield from one(patient)))
    return status_is(reply, 200, "the first chat request failed")


def ask_all(this: Round) -> Generator[tuple[Request, ...], tuple[Reply, ...], dict[str, str]]:
    """Ask every question, one after the other."""
    said = {}
    for each in this.smoke.questions.ask:
        said[each.ask] = openai.chat((yield from one(asking.question(this, each)))).text
    return said


def questions(this: Round) -> Steps:
    """Most answers are right, and none is garbage."""
    this.answers = yield from ask_all(this)
    tuning = this.smoke.questions
    for text in this.answers.values():
        for problem, expected, got in prose.garbage(text, this.smoke.text):
            return Finding(problem, expected, f"{got}: {shown(text)}")
    wrong = [each for each in tuning.ask if not right(this, each)]
    if len(wrong) <= tuning.wrong:
        return Finding(note=f"{len(tuning.ask) - len(wrong)} of {len(tuning.ask)} right")
    few = f"only {len(tuning.ask) - len(wrong)} of {len(tuning.ask)} answers are right"
    return Finding(few, f"at least {len(tuning.ask) - tuning.wrong}", "; ".join(_missed(this, wrong[:SHOWN_WRONG])))


def right(this: Round, asked: Question) -> bool:
    """Whether the question was answered rightly when it was asked alone."""
    return asking.holds(asked.expect, this.answers.get(asked.ask, ""))


def _missed(this: Round, wrong: Iterable[Question]) -> Iterable[str]:
    return (f"{each.ask!r} answered with {shown(this.answers[each.ask])}, not {each.expect!r}" for each in wrong)


def text(this: Round) -> Steps:
    """A longer text has the statistics of text."""
    tuning = this.smoke.text
    more = {"logprobs": True} if tuning.logprobs else {}
    said = openai.chat((yield from one(asking.chat(this, tuning.ask, tuning.max_tokens, **more))))
    return prose.judge(said, tuning)


def repeat(this: Round) -> Steps:
    """The same questions have the same answers."""
    first = this.answers or (yield from ask_all(this))
    again = yield from ask_all(this)
    differing = [ask for ask, said in again.items() if said != first[ask]]
    allowed = this.smoke.repeat.differences
    if len(differing) <= allowed:
        return Finding(note=f"{len(again) - len(differing)} of {len(again)} the same")
    both = f"{differing[0]!r} answered with {shown(first[differing[0]])}, then with {shown(again[differing[0]])}"
    problem = "the same question has another answer each time, at temperature 0"
    return Finding(problem, f"at most {allowed} to differ", f"{len(differing)}: {both}")


def needle(this: Round) -> Steps:
    """A fact in the middle of a long prompt is found."""
    tokens = coverage.needle_tokens(this.recipe, this.window or coverage.window_of(this.recipe))
    said = openai.chat((yield from one(asking.chat(this, asking.haystack(this, tokens), 64))))
    if asking.holds(asking.secret(this), said.text):
        return Finding(note=f"found in {said.prompt_tokens} tokens")
    problem = f"a fact in the middle of {said.prompt_tokens} tokens is not found"
    return Finding(problem, repr(asking.secret(this)), shown(said.text))


def concurrent(this: Round) -> Steps:
    """What was right alone is right in a batch of mixed lengths."""
    if not this.answers:
        this.answers = yield from ask_all(this)
    known = [each for each in this.smoke.questions.ask if right(this, each)]
    if not known:
        return Finding("no question was answered rightly alone, so none can be asked at once")
    lengths = this.smoke.concurrent.words
    asked = [known[number % len(known)] for number in range(len(lengths))]
    replies = yield tuple(_hurried(this, *each) for each in zip(asked, lengths, strict=True))
    for each, words, reply in zip(asked, lengths, replies, strict=True):
        if problem := _wrong_in_batch(each, reply):
            head = f"one of {len(lengths)} requests at once, with {words} words before the question, went wrong"
            return Finding(head, repr(each.expect), problem, silent=bool(reply.problem))
    return Finding(note=f"{len(replies)} right, the slowest in {max(each.took_s for each in replies):.1f} s")


def _hurried(this: Round, asked: Question, words: int) -> Request:
    made = asking.question(this, asked, words)
    return Request(made.path, made.body, timeout_s=this.smoke.concurrent.timeout_s)


def _wrong_in_batch(asked: Question, reply: Reply) -> str:
    """What is wrong with an answer, in words; empty if it is right."""
    try:
        said = openai.chat(reply).text
    except Unusable as error:
        return str(error)
    return "" if asking.holds(asked.expect, said) else shown(said)


def negatives(this: Round) -> Steps:
    """What must be refused is refused."""
    made = asking.question(this, this.smoke.questions.ask[0])
    unknown = Request(made.path, {**(made.body or {}), "model": f"{this.recipe.service}-unknown"}, made.timeout_s)
    reply = openai.whole((yield from one(unknown)))
    found = [status_is(reply, 404, "a model that does not exist is not refused")]
    if this.smoke.negatives.too_long and this.window:
        reply = openai.whole((yield from one(asking.too_long(this, this.window))))
        found.append(status_is(reply, 400, "a prompt that is longer than the window is not refused"))
    if this.keyed:
        reply = openai.whole((yield from one(Request(MODELS, timeout_s=LOOK_S, keyless=True))))
        found.append(status_is(reply, 401, "the server is open: it answers without the API key"))
    return next((each for each in found if each.problem), Finding(note=f"{len(found)} refused"))


def look_at_metrics(this: Round) -> Steps:
    """What the counters say before the other checks; not a check of its own."""
    reply = yield from one(Request(METRICS, timeout_s=LOOK_S))
    try:
        this.before = metrics_facts.parse(openai.whole(reply).body)
    except ValueError:
        this.before = None
    return Finding()


def metrics(this: Round) -> Steps:
    """The counters grew, and nothing is left running."""
    wait_s = 0.0
    for _ in range(LOOKS):
        reply = openai.whole((yield from one(Request(METRICS, timeout_s=LOOK_S, after_s=wait_s))))
        try:
            after = metrics_facts.parse(reply.body)
        except ValueError as error:
            return Finding("/metrics are not vLLM's", "vLLM's metrics", str(error))
        if this.before is None:
            return Finding("/metrics could not be read before the other checks")
        grown = after.generated - this.before.generated
        if grown > 0 and (after.running == 0 or not this.alone):
            return Finding(note=f"{grown} tokens generated, {after.running} running")
        wait_s = this.smoke.metrics.settle_s / (LOOKS - 1)
    if grown <= 0:
        return Finding("the engine answers, but counts no token", "generation_tokens_total to grow", f"{grown}")
    return Finding("requests are left running after all answers came", "0 running", f"{after.running}")


def restarts(count: int) -> Finding:
    """The container has not restarted. `count` is what the caller saw at the end."""
    if count:
        return Finding("the container restarted meanwhile", "0 restarts", f"{count}")
    return Finding(note="0 restarts")
