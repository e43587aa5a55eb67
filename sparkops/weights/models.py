"""The weights on the nodes: looked at, fetched brought from node to node, verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkops.config import programs
from sparkops.config.recipe import Recipe
from sparkops.docker.commands import model_dir
from sparkops.errors import CommandFailed, NodeError, NotReady
from sparkops.network import preflight
from sparkops.network.routes import Host, addresses
from sparkops.nodes.connected import Connected, Member
from sparkops.nodes.progress import Event, Tell
from sparkops.transfer import transfer
from sparkops.transfer.commands import Into, SentFiles
from sparkops.transfer.rendezvous import Ends
from sparkops.weights import checkpoint, commands
from sparkops.weights.checkpoint import Checkpoint, ModelDirectory
from sparkops.weights.meter import Meter
from sparkops.weights.plan import (
    PARTIAL,
    Copy,
    Hashes,
    WantedModel,
    amount,
    comparable,
    disagreements,
    enough_room,
    in_words,
    may_be_in_use,
    plan_copy,
    refused,
)
from sparkops.weights.steps import engine_reads


def look(member: Member, paths: Sequence[str] | None = None) -> ModelDirectory:
    """What a node holds under these paths of its model directory; everything for None. Raises NodeError."""
    command = commands.look(programs.load(*programs.STORE), model_dir(member.config), paths)
    answer = transfer.run(member, command).stdout
    try:
        return checkpoint.parse((answer.splitlines() or [""])[-1])
    except ValueError as error:
        raise NodeError(member.name, str(error)) from error


def room(member: Member, *paths: str) -> ModelDirectory:
    """The same for a node that is about to get something. Raises NotReady where nothing can be written."""
    directory, where = look(member, paths), model_dir(member.config)
    if not directory.writable:
        what = "cannot be written to" if directory.there else "is not there"
        step = f"On {member.name}: sudo install -d -o {directory.user} -g {directory.group} {where}"
        raise NotReady(member.name, f"the model directory {where} {what}", next_step=step)
    return directory


def refuse_to_lose(member: Member, wanted: WantedModel, directory: ModelDirectory, *, replace: bool) -> None:
    """Raise NotReady where another model, whole, has the name: a release that runs or waits may read it."""
    other = may_be_in_use(wanted, directory.checkpoints.get(wanted.path))
    if other and not replace:
        step = "Give the model a path of its own in the recipe; or, if nothing needs what is there: --replace."
        raise NotReady(member.name, f"{wanted.path} is taken: {other}", next_step=step)


def publish(member: Member, path: str) -> Checkpoint:
    """Give what lies in PATH.partial its name, if an engine may count on it. Raises NodeError."""
    begun = look(member, [path + PARTIAL]).checkpoints.get(path + PARTIAL)
    if begun is None:
        raise NodeError(member.name, f"{path}{PARTIAL} is gone", next_step="Run it again.")
    whole = replace(begun, path=path)
    if reasons := in_words(checkpoint.problems(whole)):
        raise NodeError(member.name, f"{path} is not complete: {reasons}")
    transfer.run(member, commands.publish(programs.load(*programs.STORE), model_dir(member.config), path))
    return whole


# --- node to node


@dataclass(frozen=True)
class CopyOptions:
    """`checksum`: compare files by sha256, too. `replace`: also a whole directory that is known to be another model."""

    checksum: bool = False
    replace: bool = False


@dataclass(frozen=True)
class WeightsCopy:
    """One checkpoint on its way from a node to others. `hashes` of the source: files are compared by content."""

    wanted: WantedModel
    source: Member
    found: Checkpoint
    options: CopyOptions
    tell: Tell
    hashes: Hashes | None = None


@dataclass(frozen=True)
class CopiedWeights:
    """What one node has got: the bytes that were sent to it, and the bytes of the whole checkpoint."""

    sent: int
    size: int


def copy(
    connected: Connected, wanted: WantedModel, source: str, options: CopyOptions, tell: Tell
) -> dict[str, CopiedWeights]:
    """Bring a checkpoint from one connected node to all others at once. Raises NodeError, for all nodes at once.

    Only what a node lacks is sent. It is put into PATH.partial and gets its name when it is whole.
    """
    member = connected.members[source]
    present = look(member, [wanted.path]).checkpoints.get(wanted.path)
    if present is None or (reasons := in_words(refused(wanted, present))):
        why = "it is not there" if present is None else reasons
        raise NotReady(source, f"{wanted.path} cannot be copied from there: {why}", next_step="sparkops models list")
    hashes = hash_files(member, present, list(present.files), tell) if options.checksum else None
    haul = WeightsCopy(wanted, member, present, options, tell, hashes)
    targets = {name: member for name, member in connected.members.items() if name != source}
    return replace(connected, members=targets).all(lambda target: _bring(haul, target))


def _bring(haul: WeightsCopy, target: Member) -> CopiedWeights:
    path = haul.found.path
    directory = room(target, path, path + PARTIAL)
    plan = _plan(haul, target, directory)
    if plan.nothing:
        haul.tell(Event(target.name, f"{path} is up to date"))
        return CopiedWeights(0, haul.found.size)
    refuse_to_lose(target, haul.wanted, directory, replace=haul.options.replace)
    if plan.replaced:
        haul.tell(Event(target.name, f"{path} there has other files, which are replaced: {', '.join(plan.replaced)}"))
    if short := enough_room(directory.free, plan.sent):
        raise NotReady(target.name, short, next_step=f"Free space under {model_dir(target.config)}.")
    _send(haul, target, plan)
    publish(target, path)
    haul.tell(Event(target.name, f"{path} is complete"))
    return CopiedWeights(plan.sent, haul.found.size)


def _plan(haul: WeightsCopy, target: Member, directory: ModelDirectory) -> Copy:
    path = haul.found.path
    present, begun = directory.checkpoints.get(path), directory.checkpoints.get(path + PARTIAL)
    if haul.hashes is None or present is None:
        return plan_copy(haul.found, present, begun)
    theirs = hash_files(target, present, comparable(haul.found, present), haul.tell)
    return plan_copy(haul.found, present, begun, (haul.hashes, theirs))


def hash_files(member: Member, found: Checkpoint, names: Sequence[str], tell: Tell) -> Hashes:
    """The sha256 of files of a checkpoint, by name."""
    meter = Meter(tell, member.name, f"reading {found.path}", sum(found.files[name][0] for name in names))
    command = commands.hash_files(programs.load(*programs.STORE), model_dir(member.config), found.path, names)

    def report(line: str) -> None:
        if (done := checkpoint.bytes_read(line)) is not None:
            meter(done)

    return checkpoint.hashes(transfer.run(member, command, report).stdout)


def _send(haul: WeightsCopy, target: Member, plan: Copy) -> None:
    source, target_path = f"{model_dir(haul.source.config)}/{plan.path}", f"{model_dir(target.config)}/{plan.path}"
    give = SentFiles(source, tuple((name, size, begun) for name, size, begun, _ in plan.files))
    take = Into(target_path + PARTIAL, plan.identity, plan.files, beside=target_path, keep=plan.keep)
    what = f"receiving {plan.path} from {haul.source.name}"
    meter = Meter(haul.tell, target.name, what, plan.sent)

    def detour() -> None:
        where = f"{target.name} cannot be reached from {haul.source.name}: it goes through this machine"
        haul.tell(Event(target.name, where))

    haul.tell(Event(target.name, f"{what}: {amount(0, plan.sent, 0, 0.0)}"))
    places = addresses(host(haul.source), host(target))
    transfer.send(Ends(haul.source, give, target, take, places), meter, detour)


def host(member: Member) -> Host:
    """A node as others reach it. One that cannot tell its network is reached at its address."""
    try:
        return Host(member.name, member.config, preflight.facts_of(member))
    except (CommandFailed, ValueError):
        return Host(member.name, member.config)


# --- verify


def verify(connected: Connected, recipe: Recipe, *, everywhere: bool) -> dict[str, str]:
    """Why the recipe's weights cannot be counted on, in words, for each node that has them; no text where they can.

    With `everywhere` a node that has nothing of them is told as well.
    """
    wanted = engine_reads(recipe)
    checkpoints = connected.all(lambda member: look(member, [wanted.path]).checkpoints.get(wanted.path))
    checked = {name: present for name, present in checkpoints.items() if present or everywhere}
    problems = {name: in_words(refused(wanted, present)) for name, present in checked.items()}
    whole = {name: present for name, present in checked.items() if present and not problems[name]}
    if reasons := in_words(disagreements(whole)):
        problems |= dict.fromkeys(whole, reasons)
    return problems
