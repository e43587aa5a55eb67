"""Run the due steps of a recipe on a node, in order."""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.command import Command
from sparkops.config.model import Step
from sparkops.config.recipe import Recipe
from sparkops.errors import NotReady
from sparkops.node.docker.commands import model_dir
from sparkops.node.member import Member
from sparkops.node.program import parsed
from sparkops.node.progress import ByteCount, Event, Meter, OnEvent
from sparkops.operator.build.weights import commands, models
from sparkops.operator.build.weights.steps import lacking, marker, output_of, outstanding, paths
from sparkops.operator.fleet.guards import leases
from sparkops.operator.fleet.transfer import transfer


@dataclass(frozen=True)
class StepCommand:
    """A step that is due on a node, and its command."""

    step: Step
    command: Command

    def __str__(self) -> str:
        reads = ", ".join(f"{word} {path}" for word, path in self.step.inputs.items())
        return f"{self.step.script}: {reads} -> {self.step.output}\n      $ {self.command}"


@dataclass(frozen=True)
class Preparation:
    """The steps that are due on a node, and the problem that prevents them."""

    steps: tuple[StepCommand, ...]
    problem: NotReady | None = None


def plan_steps(member: Member, recipe: Recipe, image: str, *, replace: bool) -> Preparation:
    """Return the steps that are due. Raises NotReady for an unusable model directory."""
    model = recipe.model
    directory = models.room(member, *paths(model))
    steps = outstanding(model, directory)
    for step in steps:
        models.refuse_to_lose(member, output_of(model, step), directory, replace=replace)
    problem = lacking(recipe, member.name, steps, directory)
    if problem is None and member.engine.trusted(image) is None:
        build = f"sparkops build {recipe.word} --node {member.name}"
        problem = NotReady(member.name, f"image not found: {image}", next_step=build)
    user = (directory.user, directory.group)
    inside = commands.container(model_dir(member.config), image, user, network="none", task="prepare")
    due = [StepCommand(step, commands.take_step(inside, step, marker(model, step))) for step in steps]
    return Preparation(tuple(due), problem)


def take_steps(member: Member, preparation: Preparation, report: OnEvent, wait_s: float = 0.0) -> None:
    """Run or resume the steps; wait up to `wait_s` while an engine loads on the node. Raises Busy, NodeError."""
    if preparation.steps and preparation.problem:
        raise preparation.problem
    if preparation.steps:
        with leases.on_node(member, f"preparation of {preparation.steps[-1].step.output}", report, wait_s):
            for due in preparation.steps:
                _take(member, due, report)


def _take(member: Member, due: StepCommand, report: OnEvent) -> None:
    output = due.step.output
    meter: Meter | None = None

    def read_line(line: str) -> None:
        nonlocal meter
        match parse(line):
            case ByteCount(count, total):
                meter = meter or Meter(report, member.name, f"writing {output}", total, count)
                meter(count)
            case str(text):
                report(Event(member.name, text))
            case None:
                pass

    report(Event(member.name, f"{due.step.script}: making {output}"))
    transfer.attended(member, due.command, read_line)
    models.publish(member, output)
    report(Event(member.name, f"{output} is complete"))


def parse(line: str) -> ByteCount | str | None:
    """Parse a line of a script of templates/steps: progress, a message, or None for other text."""
    match parsed(line):
        case {"bytes": int(count), "total": int(total)}:
            return ByteCount(count, total)
        case {"say": str(text)}:
            return text
        case _:
            return None
