"""Images from node to node: only what a target lacks is sent, and the tag comes after a look at the content."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparkops.commands import images as commands
from sparkops.commands.places import CONTAINER as GUARD
from sparkops.config import programs
from sparkops.errors import NodeError, NotReady, SparkopsError
from sparkops.facts import host
from sparkops.facts import images as facts
from sparkops.fleet import models, transfer
from sparkops.fleet.build import Built, Order, build_on
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.delivery import Cargo, Copied, Delivery, cleared
from sparkops.fleet.meeting import Ends
from sparkops.fleet.parallel import all_or_raise, on_each
from sparkops.fleet.progress import Tell
from sparkops.plan import images as planning
from sparkops.plan.routes import addresses


def copy(connected: Connected, tag: str, source: str, tell: Tell) -> dict[str, Copied]:
    """Bring the image `tag` from one connected node to all others at once. Raises NodeError, for all nodes at once.

    It is read once for all that lack the same. A node gets the tag when it was seen that it has the same content.
    """
    cargo, cancel = _cargo(connected.members[source], tag, tell), connected.cancel
    targets = {name: each for name, each in connected.members.items() if name != source}
    looked = on_each(targets, lambda name: _look(cargo, targets[name]), cancel)
    due = {name: each for name, each in looked.items() if isinstance(each, Delivery)}
    with cleared([*due.values()]):
        failed = _ship([each for each in due.values() if each.there is None], cancel)
        there = {name: each.there for name, each in due.items() if each.there and name not in failed}
        done = on_each(there, lambda name: due[name].finish(there[name]), cancel)
    wrong = {name: each for name, each in looked.items() if isinstance(each, SparkopsError)}
    outcomes: Mapping[str, Copied | SparkopsError] = {**wrong, **failed, **done}
    return all_or_raise({name: outcomes[name] for name in targets})


def build_once(connected: Connected, order: Order, tell: Tell) -> tuple[str, dict[str, Built | Copied]]:
    """Let all connected nodes have one and the same image: built on the first, unless one has it, and copied.

    Returns the name of the one that it is copied from, and what was done on each. Raises what a build and a copy raise.
    """
    there = connected.all(lambda member: member.engine.trusted(order.tag) is not None)
    source = next((name for name, has_it in there.items() if has_it), next(iter(there)))
    one = replace(connected, members={source: connected.members[source]})
    built = one.all(lambda member: build_on(member, order, tell))
    return source, {**built, **copy(connected, order.tag, source, tell)}


def _cargo(source: Member, tag: str, tell: Tell) -> Cargo:
    inspect = source.engine.trusted(tag)
    if inspect is None:
        step = f"sparkops build {planning.recipe_of(tag)} --node {source.name}"
        raise NotReady(source.name, f"it does not have the image {tag}, built or copied by sparkops", next_step=step)
    image = facts.parse(inspect)
    store = facts.store(source.engine.info(), str(source.engine.version.get("Version", "0")))
    guard = source.engine.container(GUARD) if store.graph else None
    if not (store.containerd or guard):
        _require_room(source, image.size, "docker save")
    sizes = facts.layer_sizes(source.engine.history(image.id))
    return Cargo(image, tag, source, store, guard["Image"] if guard else None, sizes, tell)


def _require_room(member: Member, need: int, what: str) -> None:
    free = host.parse(member.node.run(host.PREFLIGHT).stdout).disk_free_gib
    if short := planning.room(free, need):
        step = "docker system df shows what takes the space; docker image rm frees it."
        raise NotReady(member.name, f"on Docker's disk, for {what}: {short}", next_step=step)


def _look(cargo: Cargo, target: Member) -> Delivery:
    made = Delivery(cargo, target)
    if made.there is None:
        _require_room(target, made.need * planning.TWICE, "docker load")
    return made


def _ship(due: Sequence[Delivery], cancel: threading.Event) -> dict[str, SparkopsError]:
    """Send to all; what is the same for several is read once. The errors by target."""
    alike: dict[str, list[Delivery]] = defaultdict(list)
    for each in due:
        alike[str(each.lack.held)].append(each)
    outcomes = all_or_raise(on_each(alike, lambda held: _send(alike[held], int(held)), cancel))
    return {name: error for errors in outcomes.values() for name, error in errors.items()}


def _send(due: Sequence[Delivery], held: int) -> dict[str, SparkopsError]:
    """Send to those that hold the first `held` layers, in the quickest way that works. Returns the errors by target.

    One that cannot use what it holds gets all: containerd's store knows layers by how they were packed as well, which
    Docker does not tell.
    """
    ways = [(held, True)] if due[0].cargo.reader else []
    ways += [(each, False) for each in dict.fromkeys((held, 0))]
    left, errors = list(due), dict[str, SparkopsError]()
    for number, (now, quickly) in enumerate(ways):
        for each in left if number else ():
            each.say(f"so it is tried in another way: {errors.pop(each.target.name)}")
        errors |= _try(left, now, quickly=quickly)
        left = [each for each in left if type(errors.get(each.target.name)) is NodeError]
        if not left:
            break
    return errors


def _try(due: Sequence[Delivery], held: int, *, quickly: bool) -> dict[str, SparkopsError]:
    cargo = due[0].cargo
    give = cargo.give(held, quickly=quickly)
    here = models.host(cargo.source)
    [checking] = programs.load(*programs.LOAD).values()
    take = commands.load(checking)

    def ends(target: Member) -> Ends:
        return Ends(cargo.source, give, target, take, addresses(here, models.host(target)))

    outcomes = transfer.send_to_all([(ends(each.target), each.begin(held)) for each in due])
    sent = {each.target.name: each for each in due if outcomes[each.target.name] is None}
    looked = on_each(sent, lambda name: sent[name].look(), cargo.source.node.cancel)
    errors = {name: error for name, error in {**outcomes, **looked}.items() if error}
    for each in due:
        each.unpacks = each.unpacks and each.target.name not in errors
    return errors
