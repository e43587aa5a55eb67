"""The checks of the smoke suite, and which of them a recipe calls for. Pure; `sparkops probe --list` prints it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkops.config.recipe import Recipe
from sparkops.config.serve import Task
from sparkops.engines import ENGINES
from sparkops.serving.smoke import checks, claims, retrieval
from sparkops.serving.smoke.checks import Steps
from sparkops.serving.smoke.prompts import Round, needle_tokens, window_of

SMALL_WINDOW = 2048
STRUCTURED_FLAGS = ("structured-outputs-config", "guided-decoding-backend")


Default = Callable[[Recipe], tuple[bool, str]]
"""Whether a check runs for a recipe, and why."""


@dataclass(frozen=True)
class Check:
    """A check of the smoke suite. Its settings are the field of its name in `config.smoke.Smoke`."""

    ask: Callable[[Round], Steps]
    default: Default
    before: Callable[[Round], Steps] | None = None
    """What it asks before all checks of a pass."""
    once: bool = False
    """Whether it belongs to the first pass only."""
    light: bool = False
    """Whether it takes no time, so that it is repeated while clients use the server."""
    ends: bool = False
    """Whether every later check would say the same less clearly where it fails."""


@dataclass(frozen=True)
class Planned:
    """Whether a check runs, and why."""

    name: str
    runs: bool
    why: str


def planned(recipe: Recipe) -> tuple[Planned, ...]:
    """Return every check in its order."""
    found = []
    for name, check in CHECKS.items():
        (runs, why), enabled = check.default(recipe), getattr(recipe.probe.smoke, name).enabled
        if runs and (reason := ENGINES[recipe.engine].unable.get(name)):
            runs, why = False, reason
        if enabled is not None and enabled != runs:
            runs, why = enabled, f"probe.smoke.{name}.enabled: {str(enabled).lower()}"
        found.append(Planned(name, runs, why))
    return tuple(found)


def of_pass(recipe: Recipe, number: int) -> dict[str, Check]:
    """Return the checks of a pass (1 is the first) by name, in their order."""
    running = {check.name: CHECKS[check.name] for check in planned(recipe) if check.runs}
    return {name: check for name, check in running.items() if number == 1 or not check.once}


def _always(why: str) -> Default:
    return lambda _: (True, why)


def _if(task: Task, default: Default) -> Default:
    """Return a default that runs the check for recipes of one task only."""

    def decide(recipe: Recipe) -> tuple[bool, str]:
        return default(recipe) if recipe.serve.task == task else (False, f"serve.task is {recipe.serve.task}")

    return decide


def _needle(recipe: Recipe) -> tuple[bool, str]:
    window = window_of(recipe)
    if window is not None and window < SMALL_WINDOW:
        return False, f"{ENGINES[recipe.engine].window_flag} {window} is below {SMALL_WINDOW}"
    return True, f"about {needle_tokens(recipe, window)} tokens"


def _tools(recipe: Recipe) -> tuple[bool, str]:
    if recipe.serve.args.get("enable-auto-tool-choice") is True:
        return True, f"tool-call-parser {recipe.serve.args.get('tool-call-parser', '(none)')}"
    return False, "serve.args has no enable-auto-tool-choice"


def _structured(recipe: Recipe) -> tuple[bool, str]:
    flag = next((flag for flag in recipe.serve.args if flag.split(".")[0] in STRUCTURED_FLAGS), None)
    return (True, flag) if flag else (False, f"serve.args has no {STRUCTURED_FLAGS[0]}")


def _reasoning(recipe: Recipe) -> tuple[bool, str]:
    parser = recipe.serve.args.get("reasoning-parser")
    return (True, f"reasoning-parser {parser}") if parser else (False, "serve.args has no reasoning-parser")


def _speed(recipe: Recipe) -> tuple[bool, str]:
    if recipe.expected is None or recipe.expected.tok_s is None:
        return False, "the recipe has no expected.tok_s"
    floor = recipe.probe.smoke.speed.min_share
    return True, f"at least {floor * recipe.expected.tok_s:.1f} tok/s, {floor:.0%} of {recipe.expected.tok_s:g}"


def _concurrent(recipe: Recipe) -> tuple[bool, str]:
    return True, f"{len(recipe.probe.smoke.concurrent.words)} at once"


def _questions(recipe: Recipe) -> tuple[bool, str]:
    tuning = recipe.probe.smoke.questions
    return True, f"{len(tuning.prompts)} questions, {tuning.max_wrong} may be wrong"


CHECKS: dict[str, Check] = {
    "health": Check(checks.health, _always("/health returns 200"), light=True, ends=True),
    "version": Check(checks.version, _always("/version answers")),
    "models": Check(checks.models, _always("the served name and the window"), ends=True),
    "warm_up": Check(checks.warm_up, _always("the first request may compile"), once=True, ends=True),
    "questions": Check(checks.questions, _if("chat", _questions), light=True),
    "embeddings": Check(
        retrieval.embeddings, _if("embedding", _always("texts of one meaning are nearest")), light=True
    ),
    "rerank": Check(retrieval.rerank, _if("rerank", _always("the document that answers is first")), light=True),
    "text": Check(checks.text, _if("chat", _always("statistics that differ between text and garbage"))),
    "repeat": Check(checks.repeat, _if("chat", _always("the same answers again"))),
    "needle": Check(checks.needle, _if("chat", _needle)),
    "concurrent": Check(checks.concurrent, _if("chat", _concurrent)),
    "streaming": Check(claims.streaming, _if("chat", _always("pieces over time"))),
    "tools": Check(claims.tools, _if("chat", _tools)),
    "structured": Check(claims.structured, _if("chat", _structured)),
    "reasoning": Check(claims.reasoning, _if("chat", _reasoning)),
    "speed": Check(claims.speed, _if("chat", _speed)),
    "negatives": Check(checks.negatives, _always("an unknown model, a prompt that is too long")),
    "metrics": Check(
        checks.metrics,
        _if("chat", _always("token counters grow, no request stays running")),
        before=checks.look_at_metrics,
    ),
    "restarts": Check(checks.restarts, _always("the container has not restarted")),
}
"""Every check by its name, in the order of a pass."""


def light(recipe: Recipe) -> Recipe:
    """Return the recipe with only those of its checks that take no time, to repeat them while clients use the server.

    What the recipe disables stays disabled: a release is not judged by a check that it was not deployed with.
    """
    smoke = recipe.probe.smoke
    settings = {
        check.name: getattr(smoke, check.name).model_copy(update={"enabled": check.runs and CHECKS[check.name].light})
        for check in planned(recipe)
    }
    return recipe.model_copy(
        update={"probe": recipe.probe.model_copy(update={"smoke": smoke.model_copy(update=settings)})}
    )


def lightest(recipe: Recipe) -> Recipe | None:
    """Return the recipe with the light checks, of which the questions are only the first one.

    None for a recipe that disables all of its task that get an answer of the model: health alone shows nothing.
    """
    short = light(recipe)
    smoke = short.probe.smoke
    if not any(getattr(smoke, name).enabled for name in CHECKS if name != "health"):
        return None
    questions = smoke.questions.model_copy(update={"prompts": smoke.questions.prompts[:1], "max_wrong": 0})
    return short.model_copy(
        update={"probe": short.probe.model_copy(update={"smoke": smoke.model_copy(update={"questions": questions})})}
    )
