"""Build an image on every node at once, and let it in only after it has said what it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from sparkops.command import Command, quote
from sparkops.commands import docker
from sparkops.config.recipe import Recipe
from sparkops.errors import BuildFailed, CommandFailed, GateRefused, NotReady
from sparkops.facts import buildkit, gate, held, host
from sparkops.facts.gate import Verdict
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.progress import Event, Tell
from sparkops.nodes.again import until_begun
from sparkops.nodes.engine import Facts
from sparkops.release import candidate_tag, content_labels, image_labels, image_tag, mod_labels
from sparkops.render.archive import tar
from sparkops.render.context import Context

OLDEST_ENGINE = 20  # the first whose BuildKit has the mounts that our templates use


def _nothing(_: str, __: Facts) -> Sequence[Verdict]:
    return ()


@dataclass(frozen=True)
class Gate:
    """What an image must pass. `ask` makes the command that asks it; `wrong` reads what that printed."""

    ask: Callable[[str], Command]
    judge: Callable[[str, Facts], Sequence[Verdict]] = _nothing
    """The verdict on each thing, of what it said and of Docker's inspect. Raises ValueError for what it cannot read."""
    labels: Callable[[str], Mapping[str, str]] = lambda _: {}
    """What the image is labelled with, of what it said."""


@dataclass(frozen=True)
class Order:
    """What to build: a name for the image, its context, the space that it needs and the gate before its tag."""

    name: str
    context: Context
    disk_gib: float
    gate: Gate
    disk_key: str = ""
    """Where the operator can say another `disk_gib`."""
    open_file: Callable[[Path], BinaryIO] = lambda path: path.open("rb")

    @property
    def tag(self) -> str:
        """The tag that only a passed gate gives."""
        return image_tag(self.name, self.context.digest)

    @property
    def candidate(self) -> str:
        """The tag of the image before its gate."""
        return candidate_tag(self.name, self.context.digest)


def of_recipe(recipe: Recipe, context: Context, gate_script: bytes) -> Order:
    """The image of a recipe. `gate_script` asks it for versions, and the recipe says which are right."""

    def judge(said: str, image: Facts) -> Sequence[Verdict]:
        facts, layers = gate.parse(said), image["RootFS"].get("Layers") or ()
        return (*gate.verdicts(recipe, facts), *(held.held(recipe.lock, facts, layers) if recipe.lock else ()))

    def labels(said: str) -> Mapping[str, str]:
        facts = gate.parse(said)
        return {**mod_labels(facts.mods), **content_labels(facts.torch.version, facts.cuda, facts.packages_digest)}

    asking = Gate(lambda image: docker.ask_image(image, gate_script), judge, labels)
    return Order(recipe.name, context, recipe.image.disk_gib, asking, disk_key="image.disk_gib")


@dataclass(frozen=True)
class Built:
    """The outcome on one node. `image` is the image ID; `new` is False where it was there already, past its gates."""

    image: str
    new: bool
    size_gib: float
    verdicts: tuple[Verdict, ...] = ()


def build(connected: Connected, order: Order, tell: Tell) -> dict[str, Built]:
    """Build on every connected node. Raises NotReady, BuildFailed or GateRefused, for all nodes at once."""
    return connected.all(lambda member: build_on(member, order, tell))


def build_on(member: Member, order: Order, tell: Tell) -> Built:
    """Build on one node. Raises NotReady, BuildFailed or GateRefused. Two at once end alike."""
    there = member.engine.trusted(order.tag)
    if there is not None:
        tell(Event(member.name, f"{order.tag} is there already"))
        return Built(there["Id"], new=False, size_gib=there["Size"] / host.GIB)
    _preflight(member, order)
    tell(Event(member.name, f"building {order.tag}"))
    run_build(member, order, tell)
    image = member.engine.image(order.candidate) or member.engine.trusted(order.tag)
    if image is None:
        raise BuildFailed(member.name, f"the build ended well, and {order.candidate} is not there")
    try:
        verdicts, labels = _pass_gate(member, order, image, tell)
        image = _name(member, order, image, labels)
    finally:
        with suppress(CommandFailed):  # another build of the same took the name away
            member.node.run(docker.remove_image(order.candidate))
    tell(Event(member.name, f"{order.tag} passed its gates"))
    return Built(image["Id"], new=True, size_gib=image["Size"] / host.GIB, verdicts=verdicts)


def _name(member: Member, order: Order, image: Facts, labels: Mapping[str, str]) -> Facts:
    """Give the image its tag, and the labels that only its gate could tell. Layers stay as they are."""
    if not labels:
        member.node.run(docker.tag(image["Id"], order.tag))
        return _trust(member, order, image)
    try:
        member.node.run(docker.label(order.candidate, order.tag, labels))
    except CommandFailed:
        faster = member.engine.trusted(order.tag)
        if faster is None:  # no other build of the same was faster
            raise
        return faster
    named = member.engine.image(order.tag)
    if named is None or named["RootFS"] != image["RootFS"]:
        problem = f"{order.tag} is not the image that passed its gate: another program changed the tag"
        raise GateRefused(member.name, problem, next_step="Run it again.")
    return _trust(member, order, named)


def _trust(member: Member, order: Order, image: Facts) -> Facts:
    member.node.run(docker.trust(order.tag, image["Id"]))
    return image


def _preflight(member: Member, order: Order) -> None:
    facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
    engine = str(member.engine.version.get("Version", "0"))
    need, free = order.disk_gib, facts.disk_free_gib
    if int(engine.split(".", maxsplit=1)[0]) < OLDEST_ENGINE:
        raise NotReady(member.name, f"Docker {engine} is too old", next_step="Install Docker Engine 24 or newer.")
    if not facts.buildkit:
        step = "Install the buildx plugin (package docker-buildx or docker-buildx-plugin)."
        raise NotReady(member.name, "the docker program cannot use BuildKit", next_step=step)
    if free is not None and free < need:
        key = f" ({order.disk_key})" if order.disk_key else ""
        problem = f"{free:.1f} GiB free on Docker's disk, {need:g} GiB needed{key}"
        raise NotReady(member.name, problem, next_step="Free space: docker system df; docker builder prune")


def run_build(member: Member, order: Order, tell: Tell) -> None:
    """Build the candidate, again from a step on that Docker could not begin. Raises BuildFailed."""
    until_begun(lambda: _run_build(member, order, tell), raised=(BuildFailed,))


def _run_build(member: Member, order: Order, tell: Tell) -> None:
    labels = image_labels(order.name, order.context.digest)
    command = docker.build(order.candidate, labels, order.context.build_args, order.context.secrets)
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


def _pass_gate(member: Member, order: Order, image: Facts, tell: Tell) -> tuple[tuple[Verdict, ...], Mapping[str, str]]:
    """Ask the image. One that does not pass never gets its tag: nothing can start it by mistake."""
    tell(Event(member.name, "asking the image what it is"))
    try:
        said = member.node.run(order.gate.ask(image["Id"])).stdout
        verdicts = tuple(order.gate.judge(said, image))
    except (CommandFailed, ValueError) as error:
        raise GateRefused(member.name, f"the image could not say what it is: {error}") from error
    for verdict in verdicts:
        tell(Event(member.name, f"gate {'passed' if verdict.ok else 'refused'}: {verdict}"))
    wrong = [str(verdict) for verdict in verdicts if not verdict.ok]
    if wrong:
        problem = "\n".join(["the image is not what the recipe says:", *wrong])
        raise GateRefused(member.name, problem, verdicts=[asdict(verdict) for verdict in verdicts])
    return verdicts, order.gate.labels(said)
