"""Images from node to node: only what a target lacks is sent, and the tag comes after a look at the content."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sparkops.commands import docker
from sparkops.commands import images as commands
from sparkops.config import programs
from sparkops.errors import CommandFailed, NodeError, NotReady, SparkopsError
from sparkops.facts import host
from sparkops.facts import images as facts
from sparkops.facts.images import Image
from sparkops.fleet import models, transfer
from sparkops.fleet.build import Built, Order, build_on
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.meeting import Ends, Told
from sparkops.fleet.meter import Meter
from sparkops.fleet.parallel import all_or_raise, on_each
from sparkops.fleet.progress import Event, Tell
from sparkops.plan import images as planning
from sparkops.plan.images import Lack
from sparkops.plan.models import MB
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
    """Bring the image `tag` from one connected node to all others at once. Raises NodeError, for all nodes at once.

    It is read once for all that lack the same. A node gets the tag when it was seen that it has the same content.
    """
    cargo = _cargo(connected.members[source], tag, tell)
    targets = {name: each for name, each in connected.members.items() if name != source}
    looked = on_each(targets, lambda name: _look(cargo, targets[name]), connected.cancel)
    due = {name: each for name, each in looked.items() if isinstance(each, Delivery)}
    failed = _ship([each for each in due.values() if each.lack.there is None], connected.cancel)
    done = on_each([name for name in due if name not in failed], lambda name: _finish(due[name]), connected.cancel)
    wrong = {name: each for name, each in looked.items() if isinstance(each, SparkopsError)}
    outcomes = {**wrong, **failed, **done}
    return all_or_raise({name: outcomes[name] for name in targets})


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


@dataclass
class Delivery:
    """A cargo for one target, that counts what is sent. How much it will be is known only about."""

    cargo: Cargo
    target: Member
    lack: Lack
    before: int = 0
    now: int = 0

    def __post_init__(self) -> None:
        self.need = planning.missing_bytes(self.cargo.image, self.cargo.sizes, self.lack.held)
        self.meter = Meter(self.cargo.tell, self.target.name, f"receiving {self.cargo.tag}", self.need)

    def say(self, text: str) -> None:
        """Tell what happens at the target."""
        self.cargo.tell(Event(self.target.name, text))

    def heard(self, count: int) -> None:
        """So many bytes have arrived in this try; no more are told than were expected."""
        self.now = count
        self.meter(min(count, self.need))

    def begin(self, held: int) -> Delivery:
        """Another try, in which the target's first `held` layers are left out."""
        self.before, self.now = self.before + self.now, 0
        lacking, layers = len(self.cargo.image.layers) - held, len(self.cargo.image.layers)
        source = self.cargo.source.name
        self.say(f"{self.cargo.tag}: {lacking} of {layers} layers come from {source}, about {self.need / MB:.1f} MB")
        return self

    @property
    def sent(self) -> int:
        """All bytes so far."""
        return self.before + self.now


def _look(cargo: Cargo, target: Member) -> Delivery:
    made = Delivery(cargo, target, planning.lack(cargo.image, cargo.tag, _images(target)))
    if made.lack.there is None:
        _require_room(target, made.need * planning.TWICE, "docker load")
    return made


def _images(member: Member) -> list[Image]:
    return [facts.parse(each) for each in member.engine.images()]


def _ship(due: Sequence[Delivery], cancel: threading.Event) -> dict[str, SparkopsError]:
    """Send to all; what is the same for several is read once. The errors by target."""
    alike: dict[str, list[Delivery]] = defaultdict(list)
    for each in due:
        alike[str(each.lack.held)].append(each)
    outcomes = on_each(alike, lambda held: _send(alike[held], int(held)), cancel)
    return {name: error for errors in all_or_raise(outcomes).values() for name, error in errors.items()}


def _send(due: Sequence[Delivery], held: int) -> dict[str, SparkopsError]:
    """Send to those that hold the first `held` layers. One that cannot use what it holds gets all."""
    errors = _transfer(due, held)
    again = [each for each in due if held and type(errors.get(each.target.name)) is NodeError]
    for each in again:
        each.say(f"it cannot use the layers that it holds: {errors.pop(each.target.name)}")
    return {**errors, **(_transfer(again, 0) if again else {})}


def _transfer(due: Sequence[Delivery], held: int) -> dict[str, SparkopsError]:
    cargo = due[0].cargo
    give = commands.save(programs.load(*programs.LAYERS)[programs.LAYERS[-1]], cargo.image.id, held, cargo.named)
    here = models.host(cargo.source)

    def ends(target: Member) -> Ends:
        return Ends(cargo.source, give, target, commands.LOAD, addresses(here, models.host(target)))

    outcomes = transfer.send_to_all([(ends(each.target), _told(each.begin(held))) for each in due])
    return {name: error for name, error in outcomes.items() if error}


def _told(made: Delivery) -> Told:
    source = made.cargo.source.name
    return Told(
        on_bytes=made.heard,
        on_detour=lambda: made.say(f"{source} does not reach it: it goes through this machine"),
        on_all=lambda: made.say("all has arrived; Docker unpacks it"),
    )


def _finish(made: Delivery) -> Copied:
    """Look at what is there now, and give it the tag."""
    cargo, target, there = made.cargo, made.target, made.lack.there
    there = there or planning.lack(cargo.image, cargo.tag, _images(target)).there
    if there is None:
        raise NodeError(target.name, f"what has arrived is not the image that {cargo.source.name} has")
    if not made.lack.named:
        _name(cargo, target, there)
    made.say(f"{cargo.tag} {'has the same content' if made.sent else 'is there already'}")
    return Copied(there.id, made.sent, cargo.image.size)


def _name(cargo: Cargo, target: Member, image: Image) -> None:
    """Give it the tag. An image that had it goes, unless something still needs it."""
    before = target.engine.image(cargo.tag)
    target.node.run(docker.tag(image.id, cargo.tag))
    if before is not None and before["RepoTags"] == [cargo.tag]:
        with suppress(CommandFailed):
            target.node.run(docker.remove_image(before["Id"]))
