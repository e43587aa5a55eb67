"""List, describe, copy and verify weights on the nodes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sparkops.config.recipe import Recipe
from sparkops.errors import NodeError, NotReady
from sparkops.node.docker.commands import model_dir
from sparkops.node.member import Member
from sparkops.node.progress import Event, Meter, OnEvent, amount
from sparkops.operator.build.weights import checkpoint, commands, description
from sparkops.operator.build.weights.checkpoint import Checkpoint, ModelDirectory
from sparkops.operator.build.weights.description import Description
from sparkops.operator.build.weights.plan import (
    PARTIAL,
    Copy,
    Hashes,
    RequiredModel,
    closed,
    comparable,
    disagreements,
    enough_room,
    in_words,
    may_be_in_use,
    plan_copy,
    recorded_alike,
    refused,
)
from sparkops.operator.build.weights.steps import read_by_engine
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.network.routes import addresses, host_of
from sparkops.operator.fleet.transfer import transfer
from sparkops.operator.fleet.transfer.commands import Into, SentFiles
from sparkops.operator.fleet.transfer.rendezvous import Ends


def look(member: Member, paths: Sequence[str] | None = None) -> ModelDirectory:
    """Return the checkpoints under these paths of a node's model directory; all for None. Raises NodeError."""
    printed = transfer.run(member, commands.look(model_dir(member.config), paths)).stdout
    try:
        return checkpoint.parse((printed.splitlines() or [""])[-1])
    except ValueError as error:
        raise NodeError(member.name, str(error)) from error


def room(member: Member, *paths: str) -> ModelDirectory:
    """Return the same, for a node that will receive files. Raises NotReady if its directory is not writable."""
    directory = look(member, paths)
    if refusal := closed(member.name, model_dir(member.config), directory):
        raise refusal
    return directory


def refuse_to_lose(member: Member, model: RequiredModel, directory: ModelDirectory, *, replace: bool) -> None:
    """Raise NotReady if the path has another complete model, which a release may use."""
    other = may_be_in_use(model, directory.checkpoints.get(model.path))
    if other and not replace:
        step = "Set another model.path in the recipe, or pass --replace to overwrite the files."
        raise NotReady(member.name, f"{model.path} has another model: {other}", next_step=step)


def publish(member: Member, path: str) -> Checkpoint:
    """Rename PATH.partial to PATH if it is complete. Raises NodeError."""
    partial = look(member, [path + PARTIAL]).checkpoints.get(path + PARTIAL)
    if partial is None:
        raise NodeError(member.name, f"{path}{PARTIAL} was removed", next_step="Run the command again.")
    complete = replace(partial, path=path)
    if reasons := in_words(checkpoint.problems(complete)):
        raise NodeError(member.name, f"{path} is incomplete: {reasons}")
    transfer.run(member, commands.publish(model_dir(member.config), path))
    return complete


# --- node to node


@dataclass(frozen=True)
class WeightsCopy:
    """A copy of one checkpoint from a node to others.

    `replace`: also replace a complete directory that is known to be another model. `checksum`: compare all files by
    content, also where the records are the same. `hashes` are those of the source.
    """

    model: RequiredModel
    source: Member
    checkpoint: Checkpoint
    report: OnEvent
    hashes: SourceHashes
    replace: bool = False
    checksum: bool = False


@dataclass
class SourceHashes:
    """The sha256 of the source's files, each computed once for all targets."""

    source: Member
    checkpoint: Checkpoint
    report: OnEvent
    known: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, names: Sequence[str]) -> Hashes:
        """Return those of these files; the other targets wait meanwhile. Raises NodeError."""
        with self.lock:
            if missing := [name for name in names if name not in self.known]:
                self.known |= hash_files(self.source, self.checkpoint, missing, self.report)
            return {name: self.known[name] for name in names}


@dataclass(frozen=True)
class CopiedWeights:
    """The result on one node: sent bytes, and bytes of the checkpoint."""

    sent: int
    size: int


def copy(
    connected: Connected,
    model: RequiredModel,
    source: str,
    report: OnEvent,
    *,
    checksum: bool = False,
    replace_other: bool = False,
) -> dict[str, CopiedWeights]:
    """Copy a checkpoint from one connected node to all others in parallel. Raises NodeError for all nodes together.

    Sends only missing files, to PATH.partial, which is renamed when it is complete. Files of the same name and size are
    compared also by sha256 on a target without the source's record, and with `checksum` on each. `replace_other`: also
    replace a complete directory that is known to be another model.
    """
    member = connected.members[source]
    present = look(member, [model.path]).checkpoints.get(model.path)
    if present is None or (reasons := in_words(refused(model, present))):
        why = "not found" if present is None else reasons
        raise NotReady(source, f"{model.path} cannot be copied from this node: {why}", next_step="sparkops models list")
    hashes = SourceHashes(member, present, report)
    job = WeightsCopy(model, member, present, report, hashes, replace_other, checksum)
    targets = {name: member for name, member in connected.members.items() if name != source}
    return replace(connected, members=targets).all(lambda target: _copy_to(target, job))


def _copy_to(target: Member, job: WeightsCopy) -> CopiedWeights:
    path = job.checkpoint.path
    directory = room(target, path, path + PARTIAL)
    plan = _plan(job, target, directory)
    if plan.nothing:
        job.report(Event(target.name, f"{path} is up to date"))
        return CopiedWeights(0, job.checkpoint.size)
    refuse_to_lose(target, job.model, directory, replace=job.replace)
    if plan.replaced:
        job.report(Event(target.name, f"{path}: replacing files that differ: {', '.join(plan.replaced)}"))
    if short := enough_room(directory.free, plan.sent):
        raise NotReady(target.name, short, next_step=f"Free space under {model_dir(target.config)}.")
    _send(job, target, plan)
    publish(target, path)
    job.report(Event(target.name, f"{path} is complete"))
    return CopiedWeights(plan.sent, job.checkpoint.size)


def _plan(job: WeightsCopy, target: Member, directory: ModelDirectory) -> Copy:
    path = job.checkpoint.path
    present, partial = directory.checkpoints.get(path), directory.checkpoints.get(path + PARTIAL)
    alike = comparable(job.checkpoint, present)
    if present is None or not alike or (recorded_alike(job.checkpoint, present) and not job.checksum):
        return plan_copy(job.checkpoint, present, partial)
    if not job.checksum:
        why = f"{path} has no record of the same model: comparing the files by sha256"
        job.report(Event(target.name, why))
    hashes = job.hashes.of(alike), hash_files(target, present, alike, job.report)
    return plan_copy(job.checkpoint, present, partial, hashes)


def hash_files(member: Member, source: Checkpoint, names: Sequence[str], report: OnEvent) -> Hashes:
    """Return the sha256 of files of a checkpoint, by name. Raises NodeError."""
    meter = Meter(report, member.name, f"reading {source.path}", sum(source.files[name][0] for name in names))
    command = commands.hash_files(model_dir(member.config), source.path, names)

    def read_line(line: str) -> None:
        if (count := checkpoint.bytes_read(line)) is not None:
            meter(count)

    printed = transfer.run(member, command, read_line).stdout
    try:
        return checkpoint.hashes(printed)
    except ValueError as error:
        raise NodeError(member.name, str(error)) from error


def _send(job: WeightsCopy, target: Member, plan: Copy) -> None:
    source, target_path = f"{model_dir(job.source.config)}/{plan.path}", f"{model_dir(target.config)}/{plan.path}"
    give = SentFiles(source, tuple((name, size, offset) for name, size, offset, _ in plan.files))
    take = Into(target_path + PARTIAL, plan.identity, plan.files, beside=target_path, keep=plan.keep)
    what = f"receiving {plan.path} from {job.source.name}"
    meter = Meter(job.report, target.name, what, plan.sent)

    def detour() -> None:
        where = f"no direct route from {job.source.name} to {target.name}; relaying through this machine"
        job.report(Event(target.name, where))

    job.report(Event(target.name, f"{what}: {amount(0, plan.sent, 0, 0.0)}"))
    places = addresses(host_of(job.source), host_of(target))
    transfer.send(Ends(job.source, give, target, take, places), meter, detour)


# --- verify


def verify(connected: Connected, recipe: Recipe, *, everywhere: bool) -> dict[str, str]:
    """Return the problems of the recipe's weights on each node that has them, as text; empty if usable.

    `everywhere` includes nodes without the weights.
    """
    required = read_by_engine(recipe)
    found = connected.all(lambda member: look(member, [model.path for model in required]).checkpoints)
    checked = {
        name: have for name, have in found.items() if everywhere or any(model.path in have for model in required)
    }
    problems: dict[str, list[str]] = {name: [] for name in checked}
    for number, model in enumerate(required):
        reasons = {name: in_words(refused(model, have.get(model.path))) for name, have in checked.items()}
        usable = {name: checked[name][model.path] for name, reason in reasons.items() if not reason}
        if differing := in_words(disagreements(usable)):
            reasons |= dict.fromkeys(usable, differing)
        for name, reason in reasons.items():
            problems[name] += [f"{model.path}: {reason}" if number else reason] if reason else []
    return {name: ", ".join(reasons) for name, reasons in problems.items()}


def describe(member: Member, path: str) -> Description | None:
    """Return the checkpoint under `path` of a node's model directory; None without one. Raises NodeError."""
    directory = f"{model_dir(member.config)}/{path}"
    command = commands.describe(directory)
    answer = transfer.run(member, command).stdout
    try:
        return description.parse((answer.splitlines() or [""])[-1], f"{member.name}: {directory}")
    except ValueError as error:
        step = "sparkops models list"
        raise NodeError(member.name, f"{directory}: {error}", next_step=step) from error
