"""Build an image on every node at once, and let it in only after it has said what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sparkops.command import quote
from sparkops.commands import docker
from sparkops.config.recipe import Recipe
from sparkops.errors import BuildFailed, CommandFailed, GateRefused, NotReady
from sparkops.facts import buildkit, gate, host
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.progress import Event, Tell
from sparkops.release import candidate_tag, image_labels, image_tag
from sparkops.render.archive import tar
from sparkops.render.context import Context

OLDEST_ENGINE = 20  # the first whose BuildKit has the mounts that our templates use


@dataclass(frozen=True)
class Order:
    """What to build: one recipe, its context and the script that asks the image what it is."""

    recipe: Recipe
    context: Context
    gate_script: bytes
    open_file: Callable[[Path], BinaryIO] = lambda path: path.open("rb")

    @property
    def tag(self) -> str:
        """The tag that only a passed gate gives."""
        return image_tag(self.recipe.name, self.context.digest)

    @property
    def candidate(self) -> str:
        """The tag of the image before its gate."""
        return candidate_tag(self.recipe.name, self.context.digest)


@dataclass(frozen=True)
class Built:
    """The outcome on one node. `image` is the image ID; `new` is False where it was there already."""

    image: str
    new: bool
    size_gib: float


def build(connected: Connected, order: Order, tell: Tell) -> dict[str, Built]:
    """Build on every connected node. Raises NotReady, BuildFailed or GateRefused, for all nodes at once."""
    return connected.all(lambda member: _build(member, order, tell))


def _build(member: Member, order: Order, tell: Tell) -> Built:
    there = member.engine.image(order.tag)
    if there is not None:
        tell(Event(member.name, f"{order.tag} is there already"))
        return Built(there["Id"], new=False, size_gib=there["Size"] / host.GIB)
    _preflight(member, order)
    tell(Event(member.name, f"building {order.tag}"))
    _run_build(member, order, tell)
    image = member.engine.image(order.candidate)
    if image is None:
        raise BuildFailed(member.name, f"the build ended well, and {order.candidate} is not there")
    _pass_gates(member, order, tell)
    member.node.run(docker.tag(image["Id"], order.tag))
    member.node.run(docker.remove_image(order.candidate))
    tell(Event(member.name, f"{order.tag} passed its gates"))
    return Built(image["Id"], new=True, size_gib=image["Size"] / host.GIB)


def _preflight(member: Member, order: Order) -> None:
    facts = host.parse(member.node.run(host.preflight("/")).stdout)
    engine = str(member.engine.version.get("Version", "0"))
    need, free = order.recipe.image.disk_gib, facts.disk_free_gib
    if int(engine.split(".", maxsplit=1)[0]) < OLDEST_ENGINE:
        raise NotReady(member.name, f"Docker {engine} is too old", next_step="Install Docker Engine 24 or newer.")
    if not facts.buildkit:
        step = "Install the buildx plugin (package docker-buildx or docker-buildx-plugin)."
        raise NotReady(member.name, "the docker program cannot use BuildKit", next_step=step)
    if free is not None and free < need:
        problem = f"{free:.1f} GiB free on Docker's disk, {need:g} GiB needed (image.disk_gib)"
        raise NotReady(member.name, problem, next_step="Free space: docker system df; docker builder prune")


def _run_build(member: Member, order: Order, tell: Tell) -> None:
    labels = image_labels(order.recipe.name, order.context.digest)
    command = docker.build(order.candidate, labels, order.context.build_args)
    progress = buildkit.Progress()

    def on_line(line: str) -> None:
        nonlocal progress
        before, progress = progress, buildkit.advance(progress, line)
        if progress.step != before.step or progress.done != before.done:
            lasting = progress.step != before.step
            tell(Event(member.name, progress.step, progress.done, progress.total, lasting=lasting))

    try:
        member.node.run(command, stdin=tar(order.context, order.open_file), on_line=on_line)
    except CommandFailed as failed:
        raise _explain(member.name, progress, failed) from failed


def _explain(node: str, progress: buildkit.Progress, failed: CommandFailed) -> BuildFailed:
    if progress.disk_full:
        step = "Free space on the node: docker system df; docker builder prune"
        return BuildFailed(node, f"the node's disk is full, at: {progress.step}", next_step=step)
    where = progress.failed or progress.step or "before its first step"
    said = "\n".join(progress.tail[-10:]) or failed.completed.last_lines
    step = f"The whole command: {quote('ssh', node)} {quote(str(failed.completed.command))}"
    return BuildFailed(node, f"the build failed at {where}\n{said}", next_step=step)


def _pass_gates(member: Member, order: Order, tell: Tell) -> None:
    """Ask the image. One that is not what the recipe says is removed: nothing can start it by mistake."""
    tell(Event(member.name, "asking the image what it is"))
    try:
        said = member.node.run(docker.ask_image(order.candidate, order.gate_script)).stdout
        wrong = [verdict for verdict in gate.verdicts(order.recipe, gate.parse(said)) if not verdict.ok]
    except (CommandFailed, ValueError) as error:
        member.node.run(docker.remove_image(order.candidate))
        raise GateRefused(member.name, f"the image could not say what it is: {error}") from error
    if wrong:
        member.node.run(docker.remove_image(order.candidate))
        raise GateRefused(member.name, "\n".join(["the image is not what the recipe says:", *map(str, wrong)]))
