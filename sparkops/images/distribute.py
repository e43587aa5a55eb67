"""Images from node to node: only what a target lacks is sent, and the tag comes after a look at the content."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparkops.config import programs
from sparkops.docker import places
from sparkops.errors import NodeError, NotReady, SparkopsError
from sparkops.images import commands, facts
from sparkops.images.build import BuildOrder, Built, build_leased
from sparkops.images.delivery import CopiedImage, ImageCopy, ImageSource, cleared
from sparkops.images.plan import TWICE, room
from sparkops.network.routes import addresses
from sparkops.nodes import host
from sparkops.nodes.connected import Connected, Member
from sparkops.nodes.parallel import all_or_raise, on_each
from sparkops.nodes.progress import Tell
from sparkops.release import recipe_of
from sparkops.transfer import transfer
from sparkops.transfer.rendezvous import Ends
from sparkops.weights import models


def copy(connected: Connected, tag: str, source: str, tell: Tell) -> dict[str, CopiedImage]:
    """Bring the image `tag` from one connected node to all others at once. Raises NodeError, for all nodes at once.

    It is read once for all that lack the same. A node gets the tag when it was seen that it has the same content.
    """
    cargo, cancel = _cargo(connected.members[source], tag, tell), connected.cancel
    targets = {name: member for name, member in connected.members.items() if name != source}
    looked = on_each(targets, lambda name: _look(cargo, targets[name]), cancel)
    due = {name: delivery for name, delivery in looked.items() if isinstance(delivery, ImageCopy)}
    with cleared([*due.values()]):
        failed = _ship([delivery for delivery in due.values() if delivery.there is None], cancel)
        present = {name: delivery.there for name, delivery in due.items() if delivery.there and name not in failed}
        done = on_each(present, lambda name: due[name].finish(present[name]), cancel)
    wrong = {name: error for name, error in looked.items() if isinstance(error, SparkopsError)}
    outcomes: Mapping[str, CopiedImage | SparkopsError] = {**wrong, **failed, **done}
    return all_or_raise({name: outcomes[name] for name in targets})


def build_once(
    connected: Connected, order: BuildOrder, tell: Tell, wait_s: float = 0.0
) -> tuple[str, dict[str, Built | CopiedImage]]:
    """Let all connected nodes have one and the same image: built on the first, unless one has it, and copied.

    Returns the name of the one that it is copied from, and what was done on each. Raises what a build and a copy raise.
    """
    present = connected.all(lambda member: member.engine.trusted(order.tag) is not None)
    source = next((name for name, has_it in present.items() if has_it), next(iter(present)))
    one = replace(connected, members={source: connected.members[source]})
    built = one.all(lambda member: build_leased(member, order, tell, wait_s))
    return source, {**built, **copy(connected, order.tag, source, tell)}


def _cargo(source: Member, tag: str, tell: Tell) -> ImageSource:
    inspect = source.engine.trusted(tag)
    if inspect is None:
        step = f"sparkops build {recipe_of(tag)} --node {source.name}"
        raise NotReady(source.name, f"it does not have the image {tag}, built or copied by sparkops", next_step=step)
    image = facts.parse(inspect)
    store = facts.store(source.engine.info(), str(source.engine.version.get("Version", "0")))
    guard = source.engine.container(places.CONTAINER) if store.graph else None
    if not (store.containerd or guard):
        _require_room(source, image.size, "docker save")
    sizes = facts.layer_sizes(source.engine.history(image.id))
    return ImageSource(image, tag, source, store, guard["Image"] if guard else None, sizes, tell)


def _require_room(member: Member, need: int, what: str) -> None:
    free = host.parse(member.node.run(host.PREFLIGHT).stdout).disk_free_gib
    if short := room(free, need):
        step = "docker system df shows what takes the space; docker image rm frees it."
        raise NotReady(member.name, f"on Docker's disk, for {what}: {short}", next_step=step)


def _look(cargo: ImageSource, target: Member) -> ImageCopy:
    delivery = ImageCopy(cargo, target)
    if delivery.there is None:
        _require_room(target, delivery.need * TWICE, "docker load")
    return delivery


def _ship(due: Sequence[ImageCopy], cancel: threading.Event) -> dict[str, SparkopsError]:
    """Send to all; what is the same for several is read once. The errors by target."""
    alike: dict[str, list[ImageCopy]] = defaultdict(list)
    for delivery in due:
        alike[str(delivery.lack.held)].append(delivery)
    outcomes = all_or_raise(on_each(alike, lambda held: _send(alike[held], int(held)), cancel))
    return {name: error for errors in outcomes.values() for name, error in errors.items()}


def _send(due: Sequence[ImageCopy], held: int) -> dict[str, SparkopsError]:
    """Send to those that hold the first `held` layers, in the quickest way that works. Returns the errors by target.

    One that cannot use what it holds gets all: containerd's store knows layers by how they were packed as well, which
    Docker does not tell.
    """
    ways = [(held, True)] if due[0].cargo.reader else []
    ways += [(count, False) for count in dict.fromkeys((held, 0))]
    left, errors = list(due), dict[str, SparkopsError]()
    for number, (now, quickly) in enumerate(ways):
        for delivery in left if number else ():
            delivery.say(f"so it is tried in another way: {errors.pop(delivery.target.name)}")
        errors |= _try(left, now, quickly=quickly)
        left = [delivery for delivery in left if type(errors.get(delivery.target.name)) is NodeError]
        if not left:
            break
    return errors


def _try(due: Sequence[ImageCopy], held: int, *, quickly: bool) -> dict[str, SparkopsError]:
    cargo = due[0].cargo
    give = cargo.give(held, quickly=quickly)
    here = models.host(cargo.source)
    [checking] = programs.load(*programs.LOAD).values()
    take = commands.load(checking)

    def ends(target: Member) -> Ends:
        return Ends(cargo.source, give, target, take, addresses(here, models.host(target)))

    outcomes = transfer.send_to_all([(ends(delivery.target), delivery.begin(held)) for delivery in due])
    sent = {delivery.target.name: delivery for delivery in due if outcomes[delivery.target.name] is None}
    looked = on_each(sent, lambda name: sent[name].look(), cargo.source.node.cancel)
    errors = {name: error for name, error in {**outcomes, **looked}.items() if error}
    for delivery in due:
        delivery.unpacks = delivery.unpacks and delivery.target.name not in errors
    return errors
