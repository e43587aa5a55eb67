"""The checks of the smoke suite for any model, and for any that chats. Pure.

A check is a generator: it yields requests that belong together, receives their replies, and returns a finding. It
reads no clock and opens no connection. claims.py has the checks of a recipe's claims, retrieval.py those of models that
embed or rank.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from sparkops.config.smoke import SmokeQuestion
from sparkops.engines.metrics import parse
from sparkops.exchange import Reply, Request
from sparkops.serving.smoke import garbage, openai, prompts
from sparkops.serving.smoke.openai import Unusable, shown
from sparkops.serving.smoke.prompts import LOOK_S, METRICS, MODELS, Round
from sparkops.serving.smoke.results import CheckFinding

Steps = Generator[tuple[Request, ...], tuple[Reply, ...], CheckFinding]
Asking = Generator[tuple[Request, ...], tuple[Reply, ...], Reply]

SHOWN_WRONG = 2
LOOKS = 5  # at the metrics, until they show no running request


def one(request: Request) -> Asking:
    (reply,) = yield (request,)
    return reply


def health(_: Round) -> Steps:
    """Check that /health returns 200. It proves only that a server listens."""
    reply = openai.complete((yield from one(Request("/health", timeout_s=LOOK_S))))
    return status_is(reply, 200, "/health reports no success")


def status_is(reply: Reply, expected: int, problem: str) -> CheckFinding:
    got = f"{reply.status}: {shown(reply.body)}" if reply.body else f"{reply.status}"
    return CheckFinding() if reply.status == expected else CheckFinding(problem, f"HTTP {expected}", f"HTTP {got}")


def version(run: Round) -> Steps:
    """Check /version against the version that the recipe names, if any."""
    body = openai.data((yield from one(Request("/version", timeout_s=LOOK_S))))
    reported = str(body.get("version", "")) if isinstance(body, dict) else ""
    expected = run.smoke.version.expect or ""
    if not reported or not reported.startswith(expected):
        return CheckFinding(
            "the engine's version differs from the recipe's", f"version {expected or 'any'}", shown(str(body))
        )
    return CheckFinding(note=reported)


def models(run: Round) -> Steps:
    """Check that the served name is the service's, and the window is at least that of the recipe."""
    cards = openai.cards((yield from one(Request(MODELS, timeout_s=LOOK_S))))
    card = next((card for card in cards if card.name == run.recipe.service), None)
    if card is None:
        got = ", ".join(card.name for card in cards) or "no model"
        return CheckFinding("the model is not served under its name", f"the name {run.recipe.service}", got)
    window = prompts.window_of(run.recipe)
    run.window = card.window or window
    if window and card.window and card.window < window:
        return CheckFinding("the window is smaller than the recipe's", f"{window} tokens", str(card.window))
    return CheckFinding(note=f"{card.name}, {run.window or 'unknown'} tokens")


def warm_up(run: Round) -> Steps:
    """Check the status of a first request, which may take minutes."""
    request = prompts.first(run)
    patient = replace(request, timeout_s=run.smoke.warm_up.timeout_s)
    reply = openai.complete((yield from one(patient)))
    return status_is(reply, 200, "the first request failed")


def ask_all(run: Round) -> Generator[tuple[Request, ...], tuple[Reply, ...], dict[str, str]]:
    """Ask every question, one after the other."""
    answers = {}
    for question in run.smoke.questions.prompts:
        answers[question.prompt] = openai.chat((yield from one(prompts.question(run, question)))).text
    return answers


def questions(run: Round) -> Steps:
    """Check that most answers are right, and none is garbage."""
    run.answers = yield from ask_all(run)
    tuning = run.smoke.questions
    for text in run.answers.values():
        for problem, expected, got in garbage.garbage(text, run.smoke.text):
            return CheckFinding(problem, expected, f"{got}: {shown(text)}")
    wrong = [question for question in tuning.prompts if not right(run, question)]
    if len(wrong) <= tuning.max_wrong:
        return CheckFinding(note=f"{len(tuning.prompts) - len(wrong)} of {len(tuning.prompts)} right")
    few = f"only {len(tuning.prompts) - len(wrong)} of {len(tuning.prompts)} answers are right"
    answers = ((question, shown(run.answers[question.prompt])) for question in wrong[:SHOWN_WRONG])
    missed = (f"{question.prompt!r} answered with {answer}, not {question.expect!r}" for question, answer in answers)
    return CheckFinding(few, f"at least {len(tuning.prompts) - tuning.max_wrong}", "; ".join(missed))


def right(run: Round, question: SmokeQuestion) -> bool:
    """Return whether the question got the expected answer when sent alone."""
    return prompts.holds(question.expect, run.answers.get(question.prompt, ""))


def text(run: Round) -> Steps:
    """Check the statistics of a longer text."""
    tuning = run.smoke.text
    more = {"logprobs": True} if tuning.logprobs else {}
    reply = openai.chat((yield from one(prompts.chat(run, tuning.prompt, tuning.max_tokens, **more))))
    return garbage.judge(reply, tuning)


def repeat(run: Round) -> Steps:
    """Check that the same questions have the same answers."""
    first = run.answers or (yield from ask_all(run))
    second = yield from ask_all(run)
    differing = [prompt for prompt, answer in second.items() if answer != first[prompt]]
    allowed = run.smoke.repeat.max_differences
    if len(differing) <= allowed:
        return CheckFinding(note=f"{len(second) - len(differing)} of {len(second)} the same")
    both = f"{differing[0]!r} answered with {shown(first[differing[0]])}, then with {shown(second[differing[0]])}"
    problem = "answers differ at temperature 0"
    return CheckFinding(problem, f"at most {allowed} to differ", f"{len(differing)}: {both}")


def needle(run: Round) -> Steps:
    """Check that the model finds a fact in the middle of a long prompt."""
    tokens = prompts.needle_tokens(run.recipe, run.window or prompts.window_of(run.recipe))
    reply = openai.chat((yield from one(prompts.chat(run, prompts.haystack(run, tokens), 64))))
    if prompts.holds(prompts.secret(run), reply.text):
        return CheckFinding(note=f"found in {reply.prompt_tokens} tokens")
    problem = f"a fact in the middle of {reply.prompt_tokens} tokens is not found"
    return CheckFinding(problem, repr(prompts.secret(run)), shown(reply.text))


def concurrent(run: Round) -> Steps:
    """Check that questions answered right alone are answered right in a batch of mixed lengths."""
    if not run.answers:
        run.answers = yield from ask_all(run)
    known = [question for question in run.smoke.questions.prompts if right(run, question)]
    if not known:
        return CheckFinding("no question was answered correctly alone, so none is sent concurrently")
    lengths = run.smoke.concurrent.words
    batch = [known[number % len(known)] for number in range(len(lengths))]
    requests = (prompts.question(run, question, words) for question, words in zip(batch, lengths, strict=True))
    replies = yield tuple(replace(request, timeout_s=run.smoke.concurrent.timeout_s) for request in requests)
    for question, words, reply in zip(batch, lengths, replies, strict=True):
        if problem := _wrong_in_batch(question, reply):
            head = f"one of {len(lengths)} requests at once, with {words} words before the question, failed"
            return CheckFinding(head, repr(question.expect), problem, silent=bool(reply.problem))
    return CheckFinding(note=f"{len(replies)} right, the slowest in {max(reply.took_s for reply in replies):.1f} s")


def _wrong_in_batch(question: SmokeQuestion, reply: Reply) -> str:
    """Return what is wrong with an answer; empty if it is right."""
    try:
        answer = openai.chat(reply).text
    except Unusable as error:
        return str(error)
    return "" if prompts.holds(question.expect, answer) else shown(answer)


def negatives(run: Round) -> Steps:
    """Check that an unknown model and a too long prompt are refused."""
    request = prompts.first(run)
    unknown = replace(request, body={**(request.body or {}), "model": f"{run.recipe.service}-unknown"})
    reply = openai.complete((yield from one(unknown)))
    findings = [status_is(reply, 404, "a model that does not exist is not refused")]
    if run.smoke.negatives.too_long and run.window:
        reply = openai.complete((yield from one(prompts.too_long(run, run.window))))
        findings.append(status_is(reply, 400, "a prompt that is longer than the window is not refused"))
    return next((finding for finding in findings if finding.problem), CheckFinding(note=f"{len(findings)} refused"))


def look_at_metrics(run: Round) -> Steps:
    """Read the counters before the other checks."""
    reply = yield from one(Request(METRICS, timeout_s=LOOK_S))
    try:
        run.before = parse(openai.complete(reply).body)
    except ValueError:
        run.before = None
    return CheckFinding()


def metrics(run: Round) -> Steps:
    """Check that the counters grew, and no request is running."""
    wait_s = 0.0
    for _ in range(LOOKS):
        reply = openai.complete((yield from one(Request(METRICS, timeout_s=LOOK_S, after_s=wait_s))))
        try:
            after = parse(reply.body)
        except ValueError as error:
            return CheckFinding("/metrics has no metrics of a known engine", "those of the engine", str(error))
        if run.before is None:
            return CheckFinding("/metrics could not be read before the other checks")
        grown = after.generated - run.before.generated
        if grown > 0 and (after.running == 0 or not run.alone):
            return CheckFinding(note=f"{grown} tokens generated, {after.running} running")
        wait_s = run.smoke.metrics.settle_s / (LOOKS - 1)
    if grown <= 0:
        return CheckFinding(
            "the engine answers, but its token counter does not grow", "generation_tokens_total to grow", f"{grown}"
        )
    return CheckFinding("requests still run after all answers arrived", "0 running", f"{after.running}")


def restarts(run: Round) -> Steps:
    """Check that the container has not restarted. Asks the server nothing."""
    yield from ()
    count = run.restarts()
    if count:
        return CheckFinding("the container restarted meanwhile", "0 restarts", f"{count}")
    return CheckFinding(note="0 restarts")
