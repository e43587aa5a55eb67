"""Copy images between nodes: send only missing layers, and tag after a check of the content."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparkops.errors import NodeError, NotReady, SparkopsError
from sparkops.node import host
from sparkops.node.docker import places
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.operator.build.images import delivery, gated, layers
from sparkops.operator.build.images.build import BuildOrder, Built, build_noted
from sparkops.operator.build.images.delivery import CopiedImage, ImageCopy, ImageSource, removed_on_interrupt
from sparkops.operator.build.images.layers import room
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.network.routes import addresses, host_of
from sparkops.operator.fleet.parallel import all_or_raise, on_each
from sparkops.operator.fleet.transfer import transfer
from sparkops.operator.fleet.transfer.rendezvous import Ends


def copy(
    connected: Connected, tag: str, source: str, report: OnEvent, recipe: str = "RECIPE"
) -> dict[str, CopiedImage]:
    """Copy an image from one connected node to all others in parallel. Raises NodeError for all nodes together.

    `recipe`: its name, for next steps.
    """
    image, cancel = _source(connected.members[source], tag, report, recipe), connected.cancel
    if gated.of(connected.fleet).require(tag, image.image.content, source):
        report(Event(source, f"{tag} was not built from this machine: content {image.image.content[:12]} noted"))
    targets = {name: member for name, member in connected.members.items() if name != source}
    outcomes = on_each(targets, lambda name: _prepare(image, targets[name], recipe), cancel)
    copies = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, ImageCopy)}
    refused = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, SparkopsError)}
    with removed_on_interrupt([*copies.values()]):
        failed = _send_all(image, [copy for copy in copies.values() if copy.present is None], cancel)
        present = {name: copy.present for name, copy in copies.items() if copy.present and name not in failed}
        finished = on_each(present, lambda name: copies[name].finish(present[name]), cancel)
    results: Mapping[str, CopiedImage | SparkopsError] = {**refused, **failed, **finished}
    return all_or_raise({name: results[name] for name in targets})


def build_once(
    connected: Connected, order: BuildOrder, report: OnEvent, wait_s: float = 0.0
) -> tuple[str, dict[str, Built | CopiedImage]]:
    """Build on the first node unless another one has the image, and copy it to all. Return source and results."""
    present = connected.all(lambda member: member.engine.trusted(order.tag) is not None)
    source = next((name for name, has_it in present.items() if has_it), next(iter(present)))
    builder = replace(connected, members={source: connected.members[source]})
    built = builder.all(lambda member: build_noted(connected, member, order, report, wait_s))
    return source, {**built, **copy(connected, order.tag, source, report, order.recipe)}


def _source(node: Member, tag: str, report: OnEvent, recipe: str) -> ImageSource:
    inspect = node.engine.trusted(tag)
    if inspect is None:
        step = f"sparkops build {recipe} --node {node.name}"
        raise NotReady(node.name, f"image of sparkops not found: {tag}", next_step=step)
    image = layers.parse(inspect)
    store = layers.store(node.engine.info(), str(node.engine.version.get("Version", "0")))
    guard = node.engine.container(places.CONTAINER) if store.graph else None
    if not (store.containerd or guard):
        _require_room(node, image.size, "docker save")
    sizes = layers.layer_sizes(node.engine.history(image.id), len(image.layers))
    return ImageSource(image, tag, sizes, report, node, store, guard["Image"] if guard else None)


def _require_room(member: Member, need: int, what: str) -> None:
    free = host.parse(member.node.run(host.PREFLIGHT).stdout).disk_free_gib
    if short := room(free, need):
        step = "Free space: docker system df; docker image rm"
        raise NotReady(member.name, f"no space on Docker's disk for {what}: {short}", next_step=step)


def _prepare(source: ImageSource, target: Member, recipe: str) -> ImageCopy:
    """Return the copy to a target. Raises NotReady for one of another architecture, and for one without room."""
    architecture = source.image.architecture
    machine = str(target.engine.version.get("Arch", architecture))
    if machine != architecture:
        problem = f"{source.tag} is for {architecture}, the node is {machine}"
        step = f"sparkops build {recipe} --node {target.name}"
        raise NotReady(target.name, problem, next_step=step)
    prepared = ImageCopy(source, target)
    if prepared.present is None:
        _require_room(target, prepared.room, "docker load")
    return prepared


def _send_all(source: ImageSource, copies: Sequence[ImageCopy], cancel: threading.Event) -> dict[str, SparkopsError]:
    """Send to all targets, grouped by shared layers. Return the errors by target."""
    alike: dict[str, list[ImageCopy]] = defaultdict(list)
    for copy in copies:
        alike[str(copy.lack.shared)].append(copy)
    outcomes = all_or_raise(on_each(alike, lambda shared: _send(source, alike[shared], int(shared)), cancel))
    return {name: error for errors in outcomes.values() for name, error in errors.items()}


def _send(source: ImageSource, copies: Sequence[ImageCopy], shared: int) -> dict[str, SparkopsError]:
    """Send to targets that share the first `shared` layers, by the fastest method that works. Return errors by target.

    A target that cannot use its own layers gets all: containerd's store identifies layers also by their compression,
    which Docker does not report.
    """
    tries = [(shared, True)] if source.reader else []
    tries += [(skip, False) for skip in dict.fromkeys((shared, 0))]
    remaining, errors = list(copies), dict[str, SparkopsError]()
    for number, (skip, quickly) in enumerate(tries):
        for copy in remaining if number else ():
            copy.report(f"trying another method after: {errors.pop(copy.target.name)}")
        errors |= _try(source, remaining, skip, quickly=quickly)
        remaining = [copy for copy in remaining if type(errors.get(copy.target.name)) is NodeError]
        if not remaining:
            break
    return errors


def _try(source: ImageSource, copies: Sequence[ImageCopy], skip: int, *, quickly: bool) -> dict[str, SparkopsError]:
    give, take, sender = source.program(skip, quickly=quickly), delivery.load_image(), host_of(source.node)

    def ends(target: Member) -> Ends:
        return Ends(source.node, give, target, take, addresses(sender, host_of(target)))

    sent = transfer.send_to_all([(ends(copy.target), copy.start(skip)) for copy in copies])
    arrived = {copy.target.name: copy for copy in copies if sent[copy.target.name] is None}
    verified = on_each(arrived, lambda name: arrived[name].verify(), source.node.node.cancel)
    errors = {name: error for name, error in {**sent, **verified}.items() if error}
    for copy in copies:
        copy.unpacks = copy.unpacks and copy.target.name not in errors
    return errors
