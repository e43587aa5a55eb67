"""The steps of a recipe that make its model on a node: one after the other, each only where it is still due."""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.command import Command
from sparkops.config import programs
from sparkops.config.model import Step
from sparkops.config.recipe import Recipe
from sparkops.docker.commands import model_dir
from sparkops.errors import NotReady
from sparkops.guard_client import leases
from sparkops.nodes.connected import Member
from sparkops.nodes.progress import Event, Tell
from sparkops.transfer import transfer
from sparkops.weights import commands, models, step_output
from sparkops.weights.meter import Meter
from sparkops.weights.steps import StepLack, lacking, made, marker, outstanding, paths


@dataclass(frozen=True)
class Due:
    """A step that is to be taken on a node, and the command that takes it."""

    step: Step
    command: Command

    def __str__(self) -> str:
        reads = ", ".join(f"{word} {path}" for word, path in self.step.inputs.items())
        return f"{self.step.script}: {reads} -> {self.step.output}\n      $ {self.command}"


@dataclass(frozen=True)
class Preparation:
    """What is to be done on a node: the steps, or nothing; and what stands against them."""

    steps: tuple[Due, ...]
    problem: NotReady | None = None


def plan_steps(member: Member, recipe: Recipe, image: str, *, replace: bool) -> Preparation:
    """The steps that are due. Raises NotReady for a model directory that cannot be used."""
    model = recipe.model
    directory = models.room(member, *paths(model))
    steps = outstanding(model, directory)
    for step in steps:
        models.refuse_to_lose(member, made(model, step), directory, replace=replace)
    user = (directory.user, directory.group)
    inside = commands.container(model_dir(member.config), image, user, network="none", task="prepare")
    due = [
        Due(
            step,
            commands.take_step(programs.load_step(step.script), inside, step, marker(model, step)),
        )
        for step in steps
    ]
    return Preparation(tuple(due), _problem(member, recipe, image, lacking(recipe, member.name, steps, directory)))


def _problem(member: Member, recipe: Recipe, image: str, lack: StepLack | None) -> NotReady | None:
    if lack:
        return NotReady(member.name, lack.problem, next_step=lack.next_step)
    if member.engine.trusted(image) is None:
        step = f"sparkops build {recipe.name} --node {member.name}"
        return NotReady(member.name, f"it does not have the image {image}", next_step=step)
    return None


def take_steps(member: Member, preparation: Preparation, tell: Tell, wait_s: float = 0.0) -> None:
    """Take the steps while no engine loads on the node; one that loads is waited for up to `wait_s`.

    One that is interrupted goes on with its next shard when it is run again. Raises Busy, NodeError.
    """
    if preparation.steps and preparation.problem:
        raise preparation.problem
    if preparation.steps:
        with leases.on_node(member, f"preparation of {preparation.steps[-1].step.output}", tell, wait_s):
            for due in preparation.steps:
                _take(member, due, tell)


def _take(member: Member, due: Due, tell: Tell) -> None:
    tell(Event(member.name, f"{due.step.script}: making {due.step.output}"))
    transfer.attended(member, due.command, _Heard(member.name, due.step.output, tell))
    models.publish(member, due.step.output)
    tell(Event(member.name, f"{due.step.output} is complete"))


@dataclass
class _Heard:
    """The lines of a script, told."""

    node: str
    output: str
    tell: Tell
    meter: Meter | None = None

    def __call__(self, line: str) -> None:
        match step_output.parse(line):
            case step_output.StepProgress(done, total):
                self.meter = self.meter or Meter(self.tell, self.node, f"writing {self.output}", total, done)
                self.meter(done)
            case str(words):
                self.tell(Event(self.node, words))
            case None:
                pass
