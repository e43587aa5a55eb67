"""Ask the release that serves before a deploy replaces it, and give its answers to the guards of the new one."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.config import questions
from sparkops.config.recipe import Recipe
from sparkops.errors import NodeError, NotReady
from sparkops.node.http import session
from sparkops.node.member import Member
from sparkops.node.progress import Event
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.fleet.guards.leader import connect_guard
from sparkops.serving import engine_spec
from sparkops.serving.comparison import answers, verdict
from sparkops.serving.comparison.answers import COMPARED, ROUNDS, Baseline
from sparkops.serving.comparison.asking import Asking
from sparkops.swap.intents import Deploy
from sparkops.swap.model import Deployment

RESULT = {"report": "differences are noted", "refuse": "differences beyond its own spread are refused"}


def _replaced(recipe: Recipe, active: Deployment | None, target: Deployment) -> Deployment | None:
    """Return the release that a deploy compares the new one with; None where it compares nothing."""
    return active if recipe.swap.compare and active and active.release != target.release else None


def planned(recipe: Recipe, active: Deployment | None, target: Deployment) -> list[str]:
    """Return what a deploy compares, as a line of its plan; nothing where it does not."""
    old = _replaced(recipe, active, target)
    if old is None:
        return []
    count = len(answers.questions(recipe, questions.of(recipe)))
    asked = f"{count} questions, {ROUNDS} times, to {old.release} and {target.release}"
    return [f"  compare  {asked}; {RESULT[str(recipe.swap.compare)]}"]


def give_baseline(operation: Operation, recipe: Recipe, active: Deployment | None, intent: Deploy) -> None:
    """Ask what serves the questions of the new release's recipe, and give its answers to the guards of the new one.

    Does nothing where the recipe compares nothing, nothing serves, or the release does. Where what serves cannot be
    asked, `report` goes on without; raises NotReady for `refuse`.
    """
    old = _replaced(recipe, active, intent.target)
    if old is None:
        return
    try:
        baseline = _asked(operation, old, recipe)
    except (NodeError, OSError, ValueError) as error:
        _missing(operation, recipe, old, str(error))
        return
    name, text = answers.file_name(intent.id), baseline.model_dump_json()

    def give(member: Member) -> None:
        with connect_guard(member) as opened:
            opened.give_secret(recipe.service, name, text)

    operation.connected.only([rank.node for rank in intent.target.heads]).all(give)


def _asked(operation: Operation, active: Deployment, recipe: Recipe) -> Baseline:
    """Return the answers of the first replica whose node is reachable. Raises NotReady, ConnectionLost."""
    heads = [rank for rank in active.heads if rank.node in operation.connected.members]
    if not heads:
        raise NotReady(next(active.heads).node, "not reachable")
    member, spec = operation.connected.member(heads[0].node), engine_spec.of(heads[0])
    port = spec.rank(member.name).port
    asked = answers.questions(recipe, questions.of(recipe))
    operation.report(Event(member.name, f"{len(asked)} questions, {ROUNDS} times, to {active.release}"))
    asking = Asking(
        active.release,
        spec.parsed,
        lambda: session(member.node, port),
        operation.connected.cancel,
        lambda text: operation.report(Event(member.name, text, lasting=False)),
    )
    old = asking.answers(asked)
    if all(answer.problem for given in old.answers for answer in given):
        raise NotReady(member.name, f"no answer to {len(asked)} questions: {old.answers[0][0].problem}")
    return Baseline(questions=asked, old=old, changed=verdict.changed(spec.parsed, recipe))


def _missing(operation: Operation, recipe: Recipe, active: Deployment, why: str) -> None:
    problem = f"{active.release} cannot be compared: {why}"
    if recipe.swap.compare == "refuse":
        raise NotReady(
            next(active.heads).node, problem, next_step=f"sparkops deploy {recipe.word} --set swap.compare=report"
        )
    operation.report(Event(next(active.heads).node, problem))


def found(operation: Operation, target: Deployment, service: str, intent: str) -> Iterator[str]:
    """Yield what other guards than the leader have noted of the comparison of a new release: its events are shown."""
    for rank in target.heads:
        if rank.node == operation.node:
            continue
        with connect_guard(operation.connected.member(rank.node)) as opened:
            events = [event for event in opened.events(service) if event.get("kind") == COMPARED]
        yield from (f"  {rank.node}: {event['text']}" for event in events if event.get("intent") == intent)
