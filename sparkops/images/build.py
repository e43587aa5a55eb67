"""Build an image on every node at once, and tag it only after it has passed its gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from sparkops.command import Command, quote
from sparkops.config.recipe import Recipe
from sparkops.docker import commands
from sparkops.errors import BuildFailed, CommandFailed, ImageRejected, NotReady
from sparkops.guard_client import leases
from sparkops.images import buildkit, gate, lock_check
from sparkops.images.gate import GateVerdict
from sparkops.nodes import host
from sparkops.nodes.connected import Connected, Member
from sparkops.nodes.docker_api import Facts
from sparkops.nodes.progress import Event, Tell
from sparkops.nodes.waiting import retry_start
from sparkops.release import candidate_tag, content_labels, image_labels, image_tag, mod_labels
from sparkops.render.archive import tar
from sparkops.render.context import Context

OLDEST_ENGINE = 20  # the first whose BuildKit has the mounts of the templates


@dataclass(frozen=True)
class Gate:
    """The check of an image before its tag. `ask` returns the command that runs in the image."""

    ask: Callable[[str], Command]
    judge: Callable[[str, Facts], Sequence[GateVerdict]] = lambda _, __: ()
    """Returns the verdicts, from the output and Docker's inspect. Raises ValueError for unreadable output."""
    labels: Callable[[str], Mapping[str, str]] = lambda _: {}
    """Returns labels of the image, from the output."""


@dataclass(frozen=True)
class BuildOrder:
    """A build: a name for the image, its context, the space that it needs and the gate before its tag."""

    name: str
    context: Context
    disk_gib: float
    gate: Gate
    disk_key: str = ""
    """The key of a recipe that sets `disk_gib`."""
    open_file: Callable[[Path], BinaryIO] = lambda path: path.open("rb")
    machine: str | None = None
    """The architecture of the recipe's lock, such as aarch64; None without a lock."""

    @property
    def tag(self) -> str:
        """The tag that only a passed gate gives."""
        return image_tag(self.name, self.context.digest)

    @property
    def candidate(self) -> str:
        """The tag of the image before its gate."""
        return candidate_tag(self.name, self.context.digest)


def of_recipe(recipe: Recipe, context: Context, gate_script: bytes) -> BuildOrder:
    """Return the build of a recipe's image. `gate_script` prints versions, which are compared with the recipe."""

    def judge(printed: str, image: Facts) -> Sequence[GateVerdict]:
        facts, layers = gate.parse(printed), image["RootFS"].get("Layers") or ()
        return (
            *gate.verdicts(recipe, facts),
            *(lock_check.verdicts(recipe.lock, facts, layers) if recipe.lock else ()),
        )

    def labels(printed: str) -> Mapping[str, str]:
        facts = gate.parse(printed)
        return {**mod_labels(facts.mods), **content_labels(facts.torch.version, facts.cuda, facts.packages_digest)}

    checks = Gate(lambda image: commands.ask_image(image, gate_script), judge, labels)
    machine = recipe.lock.machine if recipe.lock else None
    return BuildOrder(recipe.name, context, recipe.image.disk_gib, checks, disk_key="image.disk_gib", machine=machine)


@dataclass(frozen=True)
class Built:
    """The result on one node. `image` is the image ID; `new` is False where it existed, past its gates."""

    image: str
    new: bool
    size_gib: float
    verdicts: tuple[GateVerdict, ...] = ()


def build_on_all(connected: Connected, order: BuildOrder, tell: Tell, wait_s: float = 0.0) -> dict[str, Built]:
    """Build on every connected node. Raises Busy, NotReady, BuildFailed or ImageRejected, for all nodes at once."""
    return connected.all(lambda member: build_leased(member, order, tell, wait_s))


def build_leased(member: Member, order: BuildOrder, tell: Tell, wait_s: float) -> Built:
    """Build on one node while no engine loads there; wait up to `wait_s` for one that loads. Raises Busy."""
    if member.engine.trusted(order.tag) is not None:
        return build_on(member, order, tell)
    with leases.on_node(member, f"build of image {order.tag}", tell, wait_s):
        return build_on(member, order, tell)


def build_on(member: Member, order: BuildOrder, tell: Tell) -> Built:
    """Build on one node. Raises NotReady, BuildFailed or ImageRejected. Two builds at once have the same result."""
    image = member.engine.trusted(order.tag)
    if image is not None:
        tell(Event(member.name, f"{order.tag} is up to date"))
        return Built(image["Id"], new=False, size_gib=image["Size"] / host.GIB)
    facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
    if refused := refusal(member.name, order, facts, str(member.engine.version.get("Version", "0"))):
        raise refused
    tell(Event(member.name, f"building {order.tag}"))
    run_build(member, order, tell)
    image = member.engine.image(order.candidate) or member.engine.trusted(order.tag)
    if image is None:
        raise BuildFailed(member.name, f"the build succeeded, but {order.candidate} does not exist")
    try:
        verdicts, labels = _pass_gate(member, order, image, tell)
        image = _name(member, order, image, labels)
    finally:
        with suppress(CommandFailed):  # another build of the same image has removed the name
            member.node.run(commands.remove_image(order.candidate))
    tell(Event(member.name, f"{order.tag} passed its gates"))
    return Built(image["Id"], new=True, size_gib=image["Size"] / host.GIB, verdicts=verdicts)


def _name(member: Member, order: BuildOrder, image: Facts, labels: Mapping[str, str]) -> Facts:
    """Give the image its tag, and the labels from its gate. The layers stay the same."""
    if labels:
        try:
            member.node.run(commands.label(order.candidate, order.tag, labels))
        except CommandFailed:
            faster = member.engine.trusted(order.tag)
            if faster is None:  # no other build of the same image was faster
                raise
            return faster
        named = member.engine.image(order.tag)
        if named is None or named["RootFS"] != image["RootFS"]:
            problem = f"{order.tag} is not the image that passed its gate: another program changed the tag"
            raise ImageRejected(member.name, problem, next_step="Run it again.")
    else:
        named = image
        member.node.run(commands.tag(image["Id"], order.tag))
    member.node.run(commands.trust(order.tag, named["Id"]))
    return named


def refusal(node: str, order: BuildOrder, facts: host.HostFacts, engine: str) -> NotReady | None:
    """Return why `node`, which has the Docker Engine of version `engine`, cannot build; None if it can."""
    need, free = order.disk_gib, facts.disk_free_gib
    if order.machine and order.machine != facts.arch:
        problem = f"made for another architecture: expected {order.machine}, the node is {facts.arch}"
        step = f"sparkops lock {order.name} --node {node} --update"
        return NotReady(node, f"{order.name}.lock: {problem}", next_step=step)
    if int(engine.split(".", maxsplit=1)[0]) < OLDEST_ENGINE:
        return NotReady(node, f"Docker {engine} is too old", next_step="Install Docker Engine 24 or newer.")
    if not facts.buildkit:
        step = "Install the buildx plugin (package docker-buildx or docker-buildx-plugin)."
        return NotReady(node, "the docker program cannot use BuildKit", next_step=step)
    if free is not None and free < need:
        key = f" ({order.disk_key})" if order.disk_key else ""
        problem = f"{free:.1f} GiB free on Docker's disk, {need:g} GiB needed{key}"
        return NotReady(node, problem, next_step="Free space: docker system df; docker builder prune")
    return None


def run_build(member: Member, order: BuildOrder, tell: Tell) -> None:
    """Build the candidate, again from a step that Docker failed to start. Raises BuildFailed."""
    retry_start(lambda: _run_build(member, order, tell), raised=(BuildFailed,), cancel=member.node.cancel)


def _run_build(member: Member, order: BuildOrder, tell: Tell) -> None:
    labels = image_labels(order.name, order.context.digest)
    command = commands.build(order.candidate, labels, order.context.build_args, order.context.secrets)
    progress = buildkit.BuildProgress()

    def on_line(line: str) -> None:
        nonlocal progress
        before, progress = progress, buildkit.advance(progress, line)
        if progress.step != before.step or progress.completed != before.completed:
            lasting = progress.step != before.step
            tell(Event(member.name, progress.step, progress.completed, progress.total, lasting=lasting))

    try:
        member.node.run(command, stdin=tar(order.context, order.open_file), on_line=on_line)
    except CommandFailed as failed:
        raise _explain(member.name, progress, failed) from failed


def _explain(node: str, progress: buildkit.BuildProgress, failed: CommandFailed) -> BuildFailed:
    if progress.disk_full:
        step = "Free space on the node: docker system df; docker builder prune"
        return BuildFailed(node, f"the node's disk is full, at: {progress.step}", next_step=step)
    place = progress.failed or progress.step or "before its first step"
    output = "\n".join(progress.tail[-10:]) or failed.completed.last_lines
    step = f"The whole command: {quote('ssh', node)} {quote(str(failed.completed.command))}"
    return BuildFailed(node, f"the build failed at {place}\n{output}", next_step=step)


def _pass_gate(
    member: Member, order: BuildOrder, image: Facts, tell: Tell
) -> tuple[tuple[GateVerdict, ...], Mapping[str, str]]:
    """Check the image. Without a pass it never gets its tag, so nothing can start it by mistake."""
    tell(Event(member.name, "checking the image"))
    try:
        printed = member.node.run(order.gate.ask(image["Id"])).stdout
        verdicts = tuple(order.gate.judge(printed, image))
    except (CommandFailed, ValueError) as error:
        raise ImageRejected(member.name, f"the image report failed: {error}") from error
    for verdict in verdicts:
        tell(Event(member.name, f"gate {'passed' if verdict.ok else 'refused'}: {verdict}"))
    wrong = [str(verdict) for verdict in verdicts if not verdict.ok]
    if wrong:
        problem = "\n".join(["the image differs from the recipe:", *wrong])
        raise ImageRejected(member.name, problem, verdicts=[asdict(verdict) for verdict in verdicts])
    return verdicts, order.gate.labels(printed)
