"""Images from node to node: only what a target lacks is sent, and the tag comes after a look at the content."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from sparkops.commands import docker
from sparkops.commands import images as commands
from sparkops.config import programs
from sparkops.errors import BuildFailed, CommandFailed, NodeError, NotReady
from sparkops.facts import host
from sparkops.facts import images as facts
from sparkops.facts.images import Image
from sparkops.fleet import models, transfer
from sparkops.fleet.build import Built, Order, build_on
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.meter import Meter
from sparkops.fleet.progress import Event, Tell
from sparkops.plan import images as planning
from sparkops.plan.models import amount
from sparkops.plan.routes import addresses

FREE = "sparkops prune frees space; docker system df shows what takes it."


@dataclass(frozen=True)
class Cargo:
    """An image on its way. `named` are its layers in the tar, if known; `sizes` about the bytes of each layer."""

    image: Image
    tag: str
    source: Member
    named: tuple[str, ...]
    sizes: tuple[int, ...]
    tell: Tell


@dataclass(frozen=True)
class Copied:
    """What one node has got: the ID of the image there, the bytes that were sent to it, and those of the image."""

    image: str
    sent: int
    size: int


def copy(connected: Connected, tag: str, source: str, tell: Tell) -> dict[str, Copied]:
    """Bring the image `tag` from one connected node to all others at once. Raises NodeError, for all nodes at once."""
    made = _cargo(connected.members[source], tag, tell)
    targets = {name: each for name, each in connected.members.items() if name != source}
    return replace(connected, members=targets).all(lambda target: _bring(made, target))


def build_once(connected: Connected, order: Order, tell: Tell) -> tuple[str, dict[str, Built | Copied]]:
    """Let all connected nodes have one and the same image: built on one of them, unless one has it, and copied.

    Returns the name of that one, and what was done on each. Raises what a build and a copy raise.
    """
    there = connected.all(lambda member: member.engine.image(order.tag) is not None)
    source = next((name for name, has_it in there.items() if has_it), next(iter(there)))
    one = replace(connected, members={source: connected.members[source]})
    built = one.all(lambda member: build_on(member, order, tell))
    return source, {**built, **copy(connected, order.tag, source, tell)}


def _cargo(source: Member, tag: str, tell: Tell) -> Cargo:
    inspect = source.engine.image(tag)
    if inspect is None:
        step = f"sparkops build {planning.recipe_of(tag)} --node {source.name}"
        raise NotReady(source.name, f"it does not have the image {tag}", next_step=step)
    image = facts.parse(inspect)
    store = facts.store(source.engine.info(), str(source.engine.version.get("Version", "0")))
    if not store.containerd:
        _require_room(source, image.size, "docker save")
    return Cargo(image, tag, source, store.names(image), facts.layer_sizes(source.engine.history(image.id)), tell)


def _require_room(member: Member, need: int, what: str) -> None:
    free = host.parse(member.node.run(host.PREFLIGHT).stdout).disk_free_gib
    if short := planning.room(None if free is None else free * host.GIB, need):
        raise NotReady(member.name, f"on Docker's disk, for {what}: {short}", next_step=FREE)


def _images(member: Member) -> list[Image]:
    return [facts.parse(each) for each in member.engine.images()]


def _bring(cargo: Cargo, target: Member) -> Copied:
    lack, sent = planning.lack(cargo.image, cargo.tag, _images(target)), 0
    there = lack.there
    if there is None:
        there, sent = _send(cargo, target, lack.held)
    if not lack.named:
        _name(cargo, target, there)
    told = "has the same content" if sent else "is there already"
    cargo.tell(Event(target.name, f"{cargo.tag} {told}"))
    return Copied(there.id, sent, cargo.image.size)


def _name(cargo: Cargo, target: Member, image: Image) -> None:
    """Give it the tag. An image that had it goes, unless something still needs it."""
    before = target.engine.image(cargo.tag)
    target.node.run(docker.tag(image.id, cargo.tag))
    if before is not None and before["RepoTags"] == [cargo.tag]:
        with suppress(CommandFailed):
            target.node.run(docker.remove_image(before["Id"]))


def _send(cargo: Cargo, target: Member, held: int) -> tuple[Image, int]:
    """The image as the target has it then, and the bytes that were sent."""
    need = planning.missing_bytes(cargo.image, cargo.sizes, held)
    _require_room(target, need * planning.TWICE, "docker load")
    meter = _Sent(Meter(cargo.tell, target.name, f"receiving {cargo.tag} from {cargo.source.name}", need), need)
    try:
        _transfer(cargo, target, held, meter)
    except NodeError as error:
        if not (held and type(error) is NodeError):
            raise
        cargo.tell(Event(target.name, f"it cannot use layers that it has, so all are sent: {error.problem}"))
        _transfer(cargo, target, 0, meter)
    there = planning.lack(cargo.image, cargo.tag, _images(target)).there
    if there is None:
        raise BuildFailed(target.name, f"what has arrived is not the image that {cargo.source.name} has")
    return there, meter.sent


@dataclass
class _Sent:
    """Counts what is sent. How much it will be is known only about, so more is never told than was expected."""

    meter: Meter
    need: int
    before: int = 0
    now: int = 0

    def __call__(self, count: int) -> None:
        if count < self.now:  # a second try begins anew
            self.before += self.now
        self.now = count
        self.meter(min(count, self.need))

    @property
    def sent(self) -> int:
        """All bytes so far."""
        return self.before + self.now


def _transfer(cargo: Cargo, target: Member, held: int, on_bytes: _Sent) -> None:
    def detour() -> None:
        where = f"{target.name} cannot be reached from {cargo.source.name}: it goes through this machine"
        cargo.tell(Event(target.name, where))

    what = f"{len(cargo.image.layers) - held} of {len(cargo.image.layers)} layers of {cargo.tag}"
    cargo.tell(Event(target.name, f"receiving {what} from {cargo.source.name}: {amount(0, on_bytes.need, 0, 0.0)}"))
    filtering = programs.load(*programs.LAYERS)[programs.LAYERS[-1]]
    give = commands.save(filtering, cargo.image.id, held, cargo.named)
    places = addresses(models.host(cargo.source), models.host(target))
    transfer.send(transfer.Ends(cargo.source, give, target, commands.LOAD, places), on_bytes, detour)
