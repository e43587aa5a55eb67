"""The weights on the nodes: looked at, fetched brought from node to node, verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkops.commands import models as commands
from sparkops.commands.docker import model_dir
from sparkops.commands.transfer import Files, Into
from sparkops.config import programs
from sparkops.config.recipe import Recipe
from sparkops.errors import CommandFailed, NodeError, NotReady
from sparkops.facts import checkpoint
from sparkops.facts.checkpoint import Checkpoint, ModelDirectory
from sparkops.fleet import preflight, transfer
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.meeting import Ends
from sparkops.fleet.meter import Meter
from sparkops.fleet.progress import Event, Tell
from sparkops.plan import models as planning
from sparkops.plan.models import PARTIAL, Copy, Hashes, Wanted
from sparkops.plan.routes import Host, addresses
from sparkops.plan.steps import engine_reads


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
    found, where = look(member, paths), model_dir(member.config)
    if not found.writable:
        what = "cannot be written to" if found.there else "is not there"
        step = f"On {member.name}: sudo install -d -o {found.user} -g {found.group} {where}"
        raise NotReady(member.name, f"the model directory {where} {what}", next_step=step)
    return found


def refuse_to_lose(member: Member, wanted: Wanted, there: ModelDirectory, *, replace: bool) -> None:
    """Raise NotReady where another model, whole, has the name: a release that runs or waits may read it."""
    other = planning.may_be_in_use(wanted, there.checkpoints.get(wanted.path))
    if other and not replace:
        step = "Give the model a path of its own in the recipe; or, if nothing needs what is there: --replace."
        raise NotReady(member.name, f"{wanted.path} is taken: {other}", next_step=step)


def publish(member: Member, path: str) -> Checkpoint:
    """Give what lies in PATH.partial its name, if an engine may count on it. Raises NodeError."""
    begun = look(member, [path + PARTIAL]).checkpoints.get(path + PARTIAL)
    if begun is None:
        raise NodeError(member.name, f"{path}{PARTIAL} is gone", next_step="Run it again.")
    whole = replace(begun, path=path)
    if reasons := planning.in_words(checkpoint.problems(whole)):
        raise NodeError(member.name, f"{path} is not complete: {reasons}")
    transfer.run(member, commands.publish(programs.load(*programs.STORE), model_dir(member.config), path))
    return whole


# --- node to node


@dataclass(frozen=True)
class Options:
    """`checksum`: compare files by sha256, too. `replace`: also a whole directory that is known to be another model."""

    checksum: bool = False
    replace: bool = False


@dataclass(frozen=True)
class Haul:
    """One checkpoint on its way from a node to others. `hashes` of the source: files are compared by content."""

    wanted: Wanted
    source: Member
    found: Checkpoint
    options: Options
    tell: Tell
    hashes: Hashes | None = None


@dataclass(frozen=True)
class Copied:
    """What one node has got: the bytes that were sent to it, and the bytes of the whole checkpoint."""

    sent: int
    size: int


def copy(connected: Connected, wanted: Wanted, source: str, options: Options, tell: Tell) -> dict[str, Copied]:
    """Bring a checkpoint from one connected node to all others at once. Raises NodeError, for all nodes at once.

    Only what a node lacks is sent. It is put into PATH.partial and gets its name when it is whole.
    """
    member = connected.members[source]
    found = look(member, [wanted.path]).checkpoints.get(wanted.path)
    if found is None or (reasons := planning.in_words(planning.refused(wanted, found))):
        why = "it is not there" if found is None else reasons
        raise NotReady(source, f"{wanted.path} cannot be copied from there: {why}", next_step="sparkops models list")
    hashes = hash_files(member, found, list(found.files), tell) if options.checksum else None
    haul = Haul(wanted, member, found, options, tell, hashes)
    targets = {name: each for name, each in connected.members.items() if name != source}
    return replace(connected, members=targets).all(lambda target: _bring(haul, target))


def _bring(haul: Haul, target: Member) -> Copied:
    path = haul.found.path
    there = room(target, path, path + PARTIAL)
    plan = _plan(haul, target, there)
    if plan.nothing:
        haul.tell(Event(target.name, f"{path} is there already"))
        return Copied(0, haul.found.size)
    refuse_to_lose(target, haul.wanted, there, replace=haul.options.replace)
    if plan.replaced:
        haul.tell(Event(target.name, f"{path} there has other files, which are replaced: {', '.join(plan.replaced)}"))
    if short := planning.enough_room(there.free, plan.sent):
        raise NotReady(target.name, short, next_step=f"Free space under {model_dir(target.config)}.")
    _send(haul, target, plan)
    publish(target, path)
    haul.tell(Event(target.name, f"{path} is complete"))
    return Copied(plan.sent, haul.found.size)


def _plan(haul: Haul, target: Member, there: ModelDirectory) -> Copy:
    path = haul.found.path
    own, begun = there.checkpoints.get(path), there.checkpoints.get(path + PARTIAL)
    if haul.hashes is None or own is None:
        return planning.copy(haul.found, own, begun)
    theirs = hash_files(target, own, planning.comparable(haul.found, own), haul.tell)
    return planning.copy(haul.found, own, begun, (haul.hashes, theirs))


def hash_files(member: Member, found: Checkpoint, names: Sequence[str], tell: Tell) -> Hashes:
    """The sha256 of files of a checkpoint, by name."""
    meter = Meter(tell, member.name, f"reading {found.path}", sum(found.files[name][0] for name in names))
    command = commands.hash_files(programs.load(*programs.STORE), model_dir(member.config), found.path, names)

    def heard(line: str) -> None:
        if (done := checkpoint.bytes_read(line)) is not None:
            meter(done)

    return checkpoint.hashes(transfer.run(member, command, heard).stdout)


def _send(haul: Haul, target: Member, plan: Copy) -> None:
    source, there = f"{model_dir(haul.source.config)}/{plan.path}", f"{model_dir(target.config)}/{plan.path}"
    give = Files(source, tuple((name, size, begun) for name, size, begun, _ in plan.files))
    take = Into(there + PARTIAL, plan.identity, plan.files, beside=there, keep=plan.keep)
    what = f"receiving {plan.path} from {haul.source.name}"
    meter = Meter(haul.tell, target.name, what, plan.sent)

    def detour() -> None:
        where = f"{target.name} cannot be reached from {haul.source.name}: it goes through this machine"
        haul.tell(Event(target.name, where))

    haul.tell(Event(target.name, f"{what}: {planning.amount(0, plan.sent, 0, 0.0)}"))
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
    found = connected.all(lambda member: look(member, [wanted.path]).checkpoints.get(wanted.path))
    asked = {name: each for name, each in found.items() if each or everywhere}
    said = {name: planning.in_words(planning.refused(wanted, each)) for name, each in asked.items()}
    whole = {name: each for name, each in asked.items() if each and not said[name]}
    if reasons := planning.in_words(planning.disagreements(whole)):
        said |= dict.fromkeys(whole, reasons)
    return said
