"""The configuration of an engine, built by the engine itself on the node before a deploy stops anything.

It reads the recipe's arguments and the model's files inside the image, as a start does before it loads weights: without
GPU, without network, in a container of its own with a bound of memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from sparkops.errors import Busy, CommandFailed, NotReady, SparkopsError
from sparkops.node.docker import commands
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.operator.build.images import arguments, gated
from sparkops.operator.build.images.arguments import MODEL_GIB, Answer, Arguments
from sparkops.operator.deploy.plan import Plan
from sparkops.operator.deploy.preconditions import Observed, own
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards import leases
from sparkops.serving.memory.relief import floor_gib

NAME = "configuration"
ACCEPTED = "accepted by the engine"
STEPS: Mapping[str, str] = {
    "config": "config.json",
    "ranks": "number of ranks",
    "draft": "draft model",
    "tokenizer": "tokenizer",
    "template": "chat template",
    "adapters": "adapters",
    "engine_settings": "settings of the engine",
}
"""The steps of templates/arguments, in words."""


@dataclass(frozen=True)
class Checked:
    """What became of the check on one node."""

    node: str
    result: str

    def __str__(self) -> str:
        return f"{self.node}: configuration: {self.result}"


def check(connected: Connected, plan: Plan, script: bytes, report: OnEvent) -> Checked | None:
    """Let the engine build its configuration on the node of rank 0; None for an engine that cannot be asked, or runs.

    One that has been accepted for this image, these arguments and these files is not asked again. Raises NotReady
    where the engine refuses: it would end at its start.
    """
    if not plan.ranks:
        return None
    rank, recipe = plan.ranks[0], plan.release.recipe
    node, asked = plan.nodes[rank.node], arguments.of(recipe, script)
    if asked is None or node.image is None or own(rank, node):
        return None
    member = connected.member(rank.node)
    if why := _skipped(node, asked):
        return Checked(rank.node, f"not checked: {why}")
    known, digest = gated.of(connected.fleet), _digest(node, asked)
    if digest in known.contents(NAME):
        return Checked(rank.node, ACCEPTED)
    try:
        with leases.on_node(member, f"check of the configuration of {recipe.name}", report):
            answer = _ask(member, node.image, asked, report)
    except Busy as busy:
        return Checked(rank.node, f"not checked: {busy}")
    if answer.problem:
        problem = f"the engine refuses its configuration, and would end at its start:\n{asked.refusal(answer)}"
        raise NotReady(rank.node, problem, next_step=_step(answer))
    if answer.unjudged:
        return Checked(rank.node, f"not checked: {answer.unjudged}")
    known.add(NAME, digest)
    return Checked(rank.node, _result(answer))


def _result(answer: Answer) -> str:
    """Return what the engine has accepted, and what it could not judge."""
    judged = [STEPS.get(step, step) for step, said in answer.steps.items() if not said]
    open_ = [f"{STEPS.get(step, step)}: {said}" for step, said in answer.steps.items() if said]
    return "; ".join([f"{ACCEPTED}: {', '.join(judged)}"] * bool(judged) + open_) or "not checked: no step is known"


def _skipped(node: Observed, asked: Arguments) -> str:
    """Return why the check is not made; empty if it is."""
    recipe, facts = asked.recipe, node.host
    if not recipe.probe.startup.configuration:
        return "probe.startup.configuration is false"
    floor = floor_gib(recipe.swap.reserve_gib, facts.memory_total_gib)
    free = facts.memory_available_gib - floor
    if free < MODEL_GIB:
        return f"it may take {MODEL_GIB} GiB, and {max(free, 0.0):.1f} GiB are free above the {floor:.1f} kept"
    return ""


def _digest(node: Observed, asked: Arguments) -> str:
    """Return what a result holds for: image, arguments, script, and the files of model and draft."""
    files = [sorted(found.files.items()) for found in (node.weights, node.draft) if found]
    stated = json.dumps([node.image, asked.digest, files], sort_keys=True)
    return hashlib.sha256(asked.script + stated.encode()).hexdigest()


def _ask(member: Member, image: str, asked: Arguments, report: OnEvent) -> Answer:
    report(Event(member.name, "building the engine's configuration, without weights and GPU"))
    try:
        return asked.answer(member.node.run(asked.command(image, commands.model_dir(member.config))).stdout)
    except CommandFailed as failed:
        killed = " (killed: it needs more memory)" if failed.completed.exit_code == 137 else ""
        return Answer(unjudged=f"it does not run{killed}: {failed.completed.last_lines[-300:]}")
    except (ValueError, SparkopsError) as error:
        return Answer(unjudged=str(error))


def _step(answer: Answer) -> str:
    at_fault = next((step for step, said in answer.steps.items() if said), "")
    if at_fault == "config":
        return "Correct it, or name an image with a newer engine (image.vllm, image.packages), then `sparkops build`."
    if at_fault == "tokenizer":
        return "sparkops models verify shows damaged files; sparkops models pull replaces them"
    return "Correct it, then retry."
