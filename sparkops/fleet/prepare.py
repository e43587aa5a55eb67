"""The steps of a recipe that make its model on a node: one after the other, each only where it is still due."""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.command import Command
from sparkops.commands import models as commands
from sparkops.commands.docker import model_dir
from sparkops.config import programs
from sparkops.config.model import Step
from sparkops.config.recipe import Recipe
from sparkops.errors import NotReady
from sparkops.facts import step as facts
from sparkops.fleet import models, transfer
from sparkops.fleet.connected import Member
from sparkops.fleet.meter import Meter
from sparkops.fleet.progress import Event, Tell
from sparkops.plan import steps as planning


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


def plan(member: Member, recipe: Recipe, image: str, *, replace: bool) -> Preparation:
    """The steps that are due. Raises NotReady for a model directory that cannot be used."""
    model = recipe.model
    there = models.room(member, *planning.paths(model))
    steps = planning.outstanding(model, there)
    for step in steps:
        models.refuse_to_lose(member, planning.made(model, step), there, replace=replace)
    user = (there.user, there.group)
    inside = commands.container(model_dir(member.config), image, user, network="none", task="prepare")
    due = [
        Due(
            step,
            commands.take_step(programs.load_step(step.script), inside, step, planning.marker(model, step)),
        )
        for step in steps
    ]
    return Preparation(tuple(due), _problem(member, recipe, image, planning.lacking(recipe, member.name, steps, there)))


def _problem(member: Member, recipe: Recipe, image: str, lack: planning.Lack | None) -> NotReady | None:
    if lack:
        return NotReady(member.name, lack.problem, next_step=lack.next_step)
    if member.engine.trusted(image) is None:
        step = f"sparkops build {recipe.name} --node {member.name}"
        return NotReady(member.name, f"it does not have the image {image}", next_step=step)
    return None


def prepare(member: Member, preparation: Preparation, tell: Tell) -> None:
    """Take the steps. One that is interrupted goes on with its next shard when it is run again. Raises NodeError."""
    if preparation.steps and preparation.problem:
        raise preparation.problem
    for due in preparation.steps:
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
        match facts.parse(line):
            case facts.Written(done, total):
                self.meter = self.meter or Meter(self.tell, self.node, f"writing {self.output}", total, done)
                self.meter(done)
            case str(words):
                self.tell(Event(self.node, words))
            case None:
                pass
