"""Build an image on all nodes in parallel; tag it only after it has passed its gate."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from sparkops.command import Command, quote
from sparkops.config.recipe import Recipe
from sparkops.config.release import candidate_tag, content_labels, image_labels, image_tag, mod_labels
from sparkops.engines import image_facts
from sparkops.engines.image_facts import GateVerdict
from sparkops.errors import BuildFailed, CommandFailed, ImageRejected, NodeError, NotReady
from sparkops.foreign import one_line
from sparkops.names import INPUTS
from sparkops.node import host
from sparkops.node.docker import commands
from sparkops.node.docker.facts import image_content
from sparkops.node.docker_api import Facts
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.node.waiting import Waiting, retry_start
from sparkops.operator.build.images import arguments, buildkit, gate, gated, lock_check
from sparkops.operator.build.images.arguments import Arguments
from sparkops.operator.build.images.gated import GatedImages
from sparkops.operator.build.render.archive import tar
from sparkops.operator.build.render.context import Context
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards import leases
from sparkops.units import GIB

OLDEST_ENGINE = 20  # the first whose BuildKit supports the mounts of the templates
NAME_EXISTS = re.compile(r'image "\S+": already exists')
"""BuildKit's message if a parallel build has created the name meanwhile. Only containerd's image store refuses that."""
DENIED = re.compile(
    r"failed to resolve source metadata for (?P<image>\S{1,512}): .{0,512}"
    r"(?:authorization failed|no basic auth credentials|401 Unauthorized|403 Forbidden|insufficient_scope)"
)
"""BuildKit's message where a registry wants another login, or none for an image that does not exist there."""
NO_REGISTRY = re.compile(
    r"failed to (?:do request|resolve source metadata).{0,512}"
    r"(?:no such host|network is unreachable|no route to host|Temporary failure in name resolution|i/o timeout)"
)
"""BuildKit's message where the node does not reach the registry at all."""
OTHER_PLATFORM = re.compile(
    r"failed to resolve source metadata for (?P<image>\S{1,512}): .{0,512}no match for platform in manifest"
)
"""BuildKit's message for an image of other architectures."""
CUT_OFF = re.compile(
    r"failed to copy|httpReadSeeker|unexpected EOF|connection reset by peer|connection refused|broken pipe|i/o timeout|"
    r"TLS handshake timeout|50[0234] (?:Internal|Bad|Service|Gateway)"
)
"""Messages for a registry whose connection ended in the middle of a layer, or that failed for now."""
REFUSED = re.compile(r"\b(?:40[134]|429)\b|not found|toomanyrequests|denied|unauthorized", re.IGNORECASE)
"""Part of a message of BuildKit where the registry has answered: another try gets the same answer."""
CUT = "the connection to the registry was cut off while"
NAME_TRIES, NAME_PAUSE_S = 3, 0.5
PULL_TRIES, PULL_PAUSE_S = 3, 1.0
"""Tries of a build whose pull was cut off. BuildKit itself retries a layer before, and keeps complete ones."""
PULL_TIMEOUT_S = 3600.0
"""A base with the CUDA toolkit has several GB."""
T = TypeVar("T")


@dataclass(frozen=True)
class Gate:
    """The check of an image before its tag. `command` returns one that runs in the image and prints facts."""

    command: Callable[[str], Command]
    judge: Callable[[str, Facts], Sequence[GateVerdict]] = lambda _, __: ()
    """Return the verdicts from that output and `docker inspect`. Raises ValueError for other output."""
    labels: Callable[[str], Mapping[str, str]] = lambda _: {}
    """Return labels of the image from that output."""


@dataclass(frozen=True)
class BuildOrder:
    """A build: the name in the image's tag, its context, the disk space that it needs, and its gate."""

    name: str
    context: Context
    disk_gib: float
    gate: Gate
    disk_key: str = ""
    """The key of a recipe that sets `disk_gib`."""
    open_file: Callable[[Path], BinaryIO] = lambda path: path.open("rb")
    machine: str | None = None
    """The architecture of the recipe's lock, such as aarch64; None without a lock."""
    finished: str = ""
    """An image of the same inputs by its digest, which a node pulls in place of the build."""
    arguments: Arguments | None = None
    """The arguments of the recipe, which the parser in the image judges; None for an engine without one."""
    recipe: str = ""
    """The name of the recipe that it is built for; empty for an image of sparkops itself."""
    noted_in: GatedImages | None = None
    """The record of what passed its gate, where a build notes the image. `build_noted` sets it."""

    @property
    def tag(self) -> str:
        """The tag of an image that has passed its gate."""
        return image_tag(self.name, self.context.digest)

    @property
    def candidate(self) -> str:
        """The tag of the image before its gate."""
        return candidate_tag(self.name, self.context.digest)

    @property
    def labels(self) -> dict[str, str]:
        """The labels that the build gives the image."""
        return image_labels(self.recipe or self.name, self.context.digest)


def of_recipe(recipe: Recipe, context: Context, gate_script: bytes, parser_script: bytes = b"") -> BuildOrder:
    """Return the build of a recipe's image. `gate_script` prints the facts to compare with the recipe.

    `parser_script` lets the engine's own parser judge the recipe's arguments; empty for an engine without one.
    """

    def judge(printed: str, image: Facts) -> Sequence[GateVerdict]:
        facts, layers = image_facts.parse(printed), image["RootFS"].get("Layers") or ()
        return (
            *gate.verdicts(recipe, facts),
            *(lock_check.verdicts(recipe.lock, facts, layers) if recipe.lock else ()),
        )

    def labels(printed: str) -> Mapping[str, str]:
        facts = image_facts.parse(printed)
        return {**mod_labels(facts.mods), **content_labels(facts.torch.version, facts.cuda, facts.packages_digest)}

    checks = Gate(lambda image: commands.check_image(image, gate_script), judge, labels)
    machine = recipe.lock.machine if recipe.lock else None
    return BuildOrder(
        recipe.engine,
        context,
        recipe.image.disk_gib,
        checks,
        recipe=recipe.name,
        disk_key="image.disk_gib",
        machine=machine,
        arguments=arguments.of(recipe, parser_script),
    )


@dataclass(frozen=True)
class Built:
    """The result on one node. `image` is the image ID; `new` is False if the image existed.

    `verdicts` are those of the gate; none if the image was trusted before.
    """

    image: str
    new: bool
    size_gib: float
    verdicts: tuple[GateVerdict, ...] = ()


def build_on_all(connected: Connected, order: BuildOrder, report: OnEvent, wait_s: float = 0.0) -> dict[str, Built]:
    """Build on all connected nodes. Raises Busy, NotReady, BuildFailed or ImageRejected for all nodes together."""
    return connected.all(lambda member: build_noted(connected, member, order, report, wait_s))


def build_noted(connected: Connected, member: Member, order: BuildOrder, report: OnEvent, wait_s: float) -> Built:
    """Build on one node, and note on the operator's machine what has passed its gate, whatever other nodes do.

    Raises SparkopsError, and what `build_leased` raises.
    """
    return build_leased(member, replace(order, noted_in=gated.of(connected.fleet)), report, wait_s)


def build_leased(member: Member, order: BuildOrder, report: OnEvent, wait_s: float) -> Built:
    """Build on one node; wait up to `wait_s` while an engine loads there. Raises Busy.

    The parser of an image that exists judges arguments that it has not accepted yet.
    """
    image = member.engine.trusted(order.tag)
    if image is not None:
        if order.arguments:
            require_accepted(member, order.tag, order.arguments, report, wait_s)
        return build_on(member, order, report)
    with leases.on_node(member, f"build of image {order.tag}", report, wait_s):
        return build_on(member, order, report)


def build_on(member: Member, order: BuildOrder, report: OnEvent) -> Built:
    """Build on one node, or check the image that `docker load` brought. Parallel builds have one result.

    Raises NotReady, BuildFailed or ImageRejected.
    """
    image = member.engine.trusted(order.tag)
    if image is not None:
        report(Event(member.name, f"{order.tag} is up to date"))
        return Built(image["Id"], new=False, size_gib=image["Size"] / GIB)
    loaded = _take_loaded(member, order, report)
    if not loaded:
        facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
        if refused := refusal(member.name, order, facts, str(member.engine.version.get("Version", "0"))):
            raise refused
        if not (order.finished and _take_finished(member, order, report)):
            report(Event(member.name, f"building {order.tag}"))
            run_build(member, order, report)
    image = member.engine.image(order.candidate) or member.engine.trusted(order.tag)
    if image is None:
        raise BuildFailed(member.name, f"image not found after the build: {order.candidate}")
    try:
        verdicts, labels = pass_gate(member, order, image, report)
        image = _name(member, order, image, labels)
    finally:
        with suppress(CommandFailed):  # a parallel build of the same image may have removed it
            member.node.run(commands.remove_image(order.candidate))
    report(Event(member.name, f"{order.tag} passed its gates"))
    if order.noted_in:
        order.noted_in.add(order.tag, image_content(image))
    return Built(image["Id"], new=not loaded, size_gib=image["Size"] / GIB, verdicts=verdicts)


def _take_loaded(member: Member, order: BuildOrder, report: OnEvent) -> bool:
    """Name an image as the candidate that has the tag of the order and its content, such as after `docker load`.

    The content is known if the image passed its gate on another node. A tag comes with any tar that Docker loads.
    """
    image = member.engine.image(order.tag)
    if image is None or order.noted_in is None:
        return False
    content, known = image_content(image), order.noted_in.contents(order.tag)
    if content not in known:
        problem = f"content {content[:12]} is not in {order.noted_in.file}"
        report(Event(member.name, f"the node's {order.tag} is unknown, so it is built: {problem}"))
        return False
    member.node.run(commands.tag(image["Id"], order.candidate))
    return True


def _take_finished(member: Member, order: BuildOrder, report: OnEvent) -> bool:
    """Pull the finished image of an order as its candidate. False, with the reason told, where it has to be built."""
    report(Event(member.name, f"pulling {order.finished}"))
    try:
        pull(member, order.finished, report)
    except CommandFailed as failed:
        report(Event(member.name, f"{order.finished} cannot be pulled, so it is built: {failed.completed.last_lines}"))
        return False
    image = member.engine.image(order.finished)
    if image is None:
        raise NotReady(member.name, f"image not found after its pull: {order.finished}")
    inputs = (image["Config"].get("Labels") or {}).get(INPUTS, "")
    same: bool = inputs == order.context.digest
    if same:
        member.node.run(commands.tag(image["Id"], order.candidate))
    else:
        problem = f"image {inputs[:12] or 'of no inputs'}, expected {order.context.digest[:12]}"
        report(Event(member.name, f"{order.finished} is of another version, so it is built: {problem}"))
    member.node.run(commands.remove_image(order.finished))  # the candidate keeps its layers
    return same


def pull(member: Member, image: str, report: OnEvent) -> str:
    """Return what `docker pull` prints. Repeats one that was cut off: Docker keeps complete layers."""

    def passing(error: BaseException) -> bool:
        return isinstance(error, CommandFailed) and cut_off(error.completed.stderr)

    def retried(error: CommandFailed) -> None:
        report(Event(member.name, f"retrying after: {error.completed.last_lines}"))

    command = commands.docker("pull", image, timeout_s=PULL_TIMEOUT_S)
    waiting = Waiting(PULL_PAUSE_S, cancel=member.node.cancel, tries=PULL_TRIES)
    return waiting.retry(lambda: member.node.run(command).stdout, passing, retried)


def _name(member: Member, order: BuildOrder, image: Facts, labels: Mapping[str, str]) -> Facts:
    """Set the tag of the image, and the labels from its gate that it lacks. The layers stay the same."""
    if not labels.items() <= (image["Config"].get("Labels") or {}).items():
        try:
            label = commands.label(order.candidate, order.tag, labels)
            _retry_name(member, lambda: member.node.run(label))
        except CommandFailed:
            faster = member.engine.trusted(order.tag)
            if faster is None:  # not tagged by a parallel build either
                raise
            return faster
        named = member.engine.image(order.tag)
        if named is None or named["RootFS"] != image["RootFS"]:
            problem = f"{order.tag} differs from the image that passed its gate: another program changed the tag"
            raise ImageRejected(member.name, problem, next_step="Run the command again.")
    else:
        named = image
        member.node.run(commands.tag(image["Id"], order.tag))
    member.node.run(commands.trust(order.tag, named["Id"]))
    return named


def refusal(node: str, order: BuildOrder, facts: host.HostFacts, engine: str) -> NotReady | None:
    """Return why `node` cannot build; None if it can. `engine` is the version of its Docker Engine."""
    need, free = order.disk_gib, facts.disk_free_gib
    if order.machine and order.machine != facts.arch:
        problem = f"locked for {order.machine}, the node is {facts.arch}"
        step = f"sparkops recipe lock {order.recipe} --node {node} --update"
        return NotReady(node, f"the lock of {order.recipe}: {problem}", next_step=step)
    if unable := without_buildkit(node, facts, engine):
        return unable
    if free is not None and free < need:
        key = f" ({order.disk_key})" if order.disk_key else ""
        problem = f"{free:.1f} GiB free on Docker's disk, {need:g} GiB needed{key}"
        return NotReady(node, problem, next_step="Free space: docker system df; docker builder prune")
    return None


def run_build(member: Member, order: BuildOrder, report: OnEvent) -> None:
    """Build the candidate; retry after a step that Docker failed to start, and a pull that was cut off.

    Raises BuildFailed. Until the last step has ended, the candidate has no name.
    """
    cancel = member.node.cancel

    def build() -> None:
        retry_start(lambda: _run_build(member, order, report), (), (BuildFailed,), cancel)

    def retried(error: BuildFailed) -> None:
        report(Event(member.name, f"retrying after: {error.problem}"))

    waiting = Waiting(PULL_PAUSE_S, cancel=cancel, tries=PULL_TRIES)
    pull = partial(waiting.retry, build, lambda error: isinstance(error, BuildFailed) and CUT in error.problem, retried)
    _retry_name(member, pull)


def _retry_name(member: Member, build: Callable[[], T]) -> T:
    """Run a build; retry if a parallel one has created its name meanwhile. The cache then has every step."""
    waiting = Waiting(NAME_PAUSE_S, cancel=member.node.cancel, tries=NAME_TRIES)
    return waiting.retry(build, lambda error: isinstance(error, NodeError) and bool(NAME_EXISTS.search(str(error))))


def _run_build(member: Member, order: BuildOrder, report: OnEvent) -> None:
    command = commands.build(order.candidate, order.labels, order.context.build_args, order.context.secrets)
    progress = buildkit.BuildProgress()

    def on_line(line: str) -> None:
        nonlocal progress
        before, progress = progress, buildkit.advance(progress, line)
        if progress.step != before.step or progress.completed != before.completed:
            lasting = progress.step != before.step
            report(Event(member.name, progress.step, progress.completed, progress.total, lasting=lasting))

    try:
        member.node.run(command, stdin=tar(order.context, order.open_file), on_line=on_line)
    except CommandFailed as failed:
        raise _explain(member, order, progress, failed) from failed


def _explain(member: Member, order: BuildOrder, progress: buildkit.BuildProgress, failed: CommandFailed) -> BuildFailed:
    node, printed = member.name, "\n".join((*progress.tail, failed.completed.stderr))
    if progress.disk_full:
        step = "Free space on the node: docker system df; docker builder prune"
        return BuildFailed(node, f"the node's disk is full (step {progress.step})", next_step=step)
    place = progress.failed or progress.step or "no step started"
    if other := OTHER_PLATFORM.search(printed):
        return other_architecture(member, other["image"])
    if " FROM " in place and cut_off(failed.completed.stderr):
        words = failed.completed.last_lines.splitlines()[-1:] or [""]
        problem = f"{CUT} the node pulled {place.partition(' FROM ')[2]}: {words[0]}"
        return BuildFailed(node, problem, next_step="Run the command again: layers that are complete are kept.")
    if denied := DENIED.search(printed):
        image = denied["image"]
        host = image.partition("/")[0]
        registry = host if "/" in image and re.search(r"[.:]|^localhost$", host) else "docker.io"
        login = f"sparkops node login {quote(registry)} --user NAME --password-file FILE --node {quote(node)}"
        step = f"Check the name, or log in: {login}"
        return BuildFailed(node, f"the registry has no {image}, or wants a login for it", next_step=step)
    if found := NO_REGISTRY.search(printed):
        image = place.partition(" FROM ")[2] or "the base image"
        step = f"Name a mirror, or an image of the node, for {image} in build.parent_images of the inventory"
        return BuildFailed(node, f"the node does not reach a registry: {one_line(found[0])}", next_step=step)
    output = "\n".join(progress.tail[-10:] if progress.failed else ()) or failed.completed.last_lines
    step = "Retry with --verbose: complete layers are kept"
    if order.recipe:
        step = f"sparkops --verbose build {quote(order.recipe)} --node {quote(node)}"
    return BuildFailed(node, f"the build failed: {place}\n{output}", next_step=step)


def cut_off(printed: str) -> bool:
    """Return whether a pull failed for a passing reason, from the output of Docker."""
    return any(CUT_OFF.search(line) and not REFUSED.search(line) for line in printed.splitlines())


def other_architecture(member: Member, image: str) -> BuildFailed:
    """Return the error for an image that a registry has for other architectures only, with those that it has."""
    machine = str(member.engine.version.get("Arch", "its architecture"))
    try:
        listed = member.node.run(commands.read_manifest(image)).stdout
        has = f"; it has {', '.join(buildkit.platforms(listed))}"
    except (CommandFailed, ValueError):
        has = "; those that it has could not be read"
    problem = f"{image} has no image for {machine}{has}"
    return BuildFailed(member.name, problem, next_step="Name an image for the node's architecture in the recipe.")


def pass_gate(
    member: Member, order: BuildOrder, image: Facts, report: OnEvent
) -> tuple[tuple[GateVerdict, ...], Mapping[str, str]]:
    """Check the image, and return the verdicts with the labels that tell its contents. Raises ImageRejected.

    Only an image that passes is trusted, so no other can start.
    """
    report(Event(member.name, "checking the image"))
    try:
        printed = member.node.run(order.gate.command(image["Id"])).stdout
        verdicts = tuple(order.gate.judge(printed, image))
    except (CommandFailed, ValueError) as error:
        raise ImageRejected(member.name, f"the check of the image failed: {error}") from error
    for verdict in verdicts:
        report(Event(member.name, f"gate {'passed' if verdict.ok else 'failed'}: {verdict}"))
    wrong = [str(verdict) for verdict in verdicts if not verdict.ok]
    if wrong:
        problem = "\n".join(["the image differs from the recipe:", *wrong])
        raise ImageRejected(member.name, problem, verdicts=[asdict(verdict) for verdict in verdicts])
    labels = order.gate.labels(printed)
    if order.arguments is None:
        return verdicts, labels
    answer = _ask(member, image["Id"], order.arguments, report, verdicts)
    accepted = {} if answer.unjudged else {arguments.KEY: order.arguments.digest}
    return (*verdicts, answer.verdict), {**labels, **accepted}


def require_accepted(member: Member, tag: str, asked: Arguments, report: OnEvent, wait_s: float) -> None:
    """Require that the parser of a gated image accepts the arguments of a recipe. Raises ImageRejected, Busy.

    It is asked only where the image has accepted others, as its label says: the recipe has changed since its gate.
    """
    image = member.engine.trusted(tag)
    if image is None or not asked.changed(image["Config"].get("Labels")):
        return
    with leases.on_node(member, f"check of the arguments for {tag}", report, wait_s):
        _ask(member, image["Id"], asked, report, ())


def _ask(
    member: Member, image: str, asked: Arguments, report: OnEvent, passed: Sequence[GateVerdict]
) -> arguments.Answer:
    """Let the parser of an image judge the arguments of a recipe. Raises ImageRejected where it refuses them."""
    report(Event(member.name, "checking the arguments with the parser of the image"))
    try:
        answer = asked.answer(member.node.run(asked.command(image)).stdout)
    except CommandFailed as failed:
        answer = arguments.Answer(unjudged=f"the parser does not run: {failed.completed.last_lines[-300:]}")
    except ValueError as error:
        answer = arguments.Answer(unjudged=str(error))
    verdict = answer.verdict
    report(Event(member.name, f"gate {'passed' if verdict.ok else 'failed'}: {verdict}"))
    if answer.problem:
        problem = f"the parser of the image refuses the arguments:\n{asked.refusal(answer)}"
        rows = [asdict(verdict) for verdict in (*passed, answer.verdict)]
        raise ImageRejected(member.name, problem, next_step=arguments.STEP, verdicts=rows)
    return answer


def without_buildkit(node: str, facts: host.HostFacts, engine: str) -> NotReady | None:
    """Return why `node` cannot build anything; None if it can. `engine` is the version of its Docker Engine."""
    if int(engine.split(".", maxsplit=1)[0]) < OLDEST_ENGINE:
        problem = f"Docker Engine {engine} is too old: expected {OLDEST_ENGINE} or newer"
        return NotReady(node, problem, next_step="Install a current Docker Engine.")
    if not facts.buildkit:
        step = "Install the buildx plugin (package docker-buildx or docker-buildx-plugin)."
        return NotReady(node, "docker has no BuildKit: the buildx plugin is missing", next_step=step)
    return None
