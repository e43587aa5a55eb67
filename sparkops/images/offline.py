"""Images for nodes without a network: from a node into a directory of this machine, and from there onto nodes."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass

from sparkops import __version__
from sparkops.command import Command
from sparkops.engines.image_facts import GateVerdict
from sparkops.errors import CommandFailed, ConnectionLost, ImageRejected, Interrupted, NodeError, NotReady, UsageError
from sparkops.guard_client import leases
from sparkops.images import delivery, distribute, gated
from sparkops.images.build import BuildOrder, build_noted, pass_gate
from sparkops.images.delivery import CopiedImage, ImageCopy, ImageSource, OfferedImage, removed_on_interrupt
from sparkops.images.layers import missing_bytes, saved_share
from sparkops.images.layout import ImageCutOff, Layout, StoredImage
from sparkops.names import INPUTS
from sparkops.nodes import ssh
from sparkops.nodes.connected import Connected
from sparkops.nodes.member import Member
from sparkops.nodes.node import Stream
from sparkops.nodes.progress import MB, Event, Meter, OnEvent, silent
from sparkops.release import recipe_of
from sparkops.transfer.commands import DAY_S, EndProgram
from sparkops.transfer.transfer import in_words

CHUNK = 256 * 1024
TICK_S = 0.5
SILENCE_S = 1800.0
"""Time without a byte after which a stream has ended: `docker save` first writes a whole image to the node's disk."""


@dataclass(frozen=True)
class ExportedImage:
    """An image in the directory, and the bytes that were received for it."""

    stored: StoredImage
    received: int


@dataclass(frozen=True)
class LoadedImage(CopiedImage):
    """The result on one node. `verdicts` are those of the gate; none where the image was there, or was copied."""

    verdicts: tuple[GateVerdict, ...] = ()


# --- export


def export(connected: Connected, orders: Sequence[BuildOrder], layout: Layout, report: OnEvent) -> list[ExportedImage]:
    """Store the images of `orders` from the only connected node, which builds what it lacks.

    Raises the errors of a build, ImageRejected for an image that differs from what passed its gate, NodeError, and
    SparkopsError for a directory that cannot be written. What is stored stays for the next try.
    """

    def work(member: Member) -> list[ExportedImage]:
        with layout.writing():
            return [_export(connected, member, order, layout, report) for order in orders]

    [images] = connected.all(work).values()
    return images


def preview_export(connected: Connected, orders: Sequence[BuildOrder], layout: Layout) -> list[str]:
    """Return what `export` would do, a line for each image. Changes nothing."""

    def work(member: Member) -> list[str]:
        return [_previewed(member, order, layout) for order in orders]

    [lines] = connected.all(work).values()
    return lines


def _previewed(member: Member, order: BuildOrder, layout: Layout) -> str:
    if member.engine.trusted(order.tag) is None:
        return f"{member.name}: {order.tag}: build and export"
    source = distribute.source_on(member, order.tag, silent)
    if up_to_date(layout, source):
        return f"{member.name}: {order.tag}: up to date"
    layers = len(source.image.layers)
    lacking, need = layers - layout.stored_below(source.image), _lacking(layout, source)
    return f"{member.name}: {order.tag}: export {lacking} of {layers} layers, about {need / MB:.1f} MB"


def _export(connected: Connected, member: Member, order: BuildOrder, layout: Layout, report: OnEvent) -> ExportedImage:
    build_noted(connected, member, order, report, 0.0)
    source = distribute.source_on(member, order.tag, report)
    gated.of(connected.fleet).require(order.tag, source.image.content, member.name)
    if stored := up_to_date(layout, source):
        report(Event(member.name, f"{order.tag} is up to date in {layout.directory}"))
        return ExportedImage(stored, 0)
    layout.require_room(_lacking(layout, source))
    failed: NodeError | None = None
    for skip, quickly in _tries(layout, source):
        if failed:
            report(Event(member.name, f"trying another method after: {failed.problem}"))
            if not (quickly or source.store.containerd):  # the reader needed none
                distribute.require_room(member, source.image.size, "docker save")
        try:
            return _receive(layout, source, report, skip, quickly=quickly)
        except NodeError as error:
            if type(error) is not NodeError:  # such as a lost connection
                raise
            failed = error
    raise failed or AssertionError("there is a try")


def _tries(layout: Layout, source: ImageSource) -> Iterator[tuple[int, bool]]:
    """Yield how many of the lowest layers to skip, and whether to do it without `docker save`, for each try.

    A try skips what an earlier one has stored. The last one skips nothing: Docker before 25 and containerd's store name
    layers otherwise than by their content, so that skipped ones are not recognized.
    """
    if source.reader:
        yield layout.stored_below(source.image), True
    skip = layout.stored_below(source.image)
    yield skip, False
    if skip:
        yield 0, False


def _receive(layout: Layout, source: ImageSource, report: OnEvent, skip: int, *, quickly: bool) -> ExportedImage:
    """Store an image without its first `skip` layers in one try.

    Raises NodeError for a stream that ends early or lacks a layer; complete layers stay.
    """
    program = source.program(skip, quickly=quickly)
    with closing(_receiving(source, program, report, skip)) as stream:
        try:
            stored = layout.receive(io.BufferedReader(stream, CHUNK), source.image, source.tag, __version__)
        except ImageCutOff as error:
            problem, step = f"{source.tag}: {error}", error.next_step
            if why := ssh.failure(stream.stream):
                problem += f"; {program.called} {why}"
                step = "Remove the cause, then run the command again: it continues."
            raise NodeError(source.origin, problem, next_step=step) from error
        received = stream.count
    report(Event(source.origin, f"{source.tag} is stored in {layout.directory}"))
    return ExportedImage(stored, received)


def up_to_date(layout: Layout, source: ImageSource) -> StoredImage | None:
    """Return the stored image of the same content and labels; None if it is missing or incomplete."""
    stored = {image.tag: image for image in layout.readable()}.get(source.tag)
    if stored is None or (stored.content, stored.labels) != (source.image.content, source.image.labels):
        return None
    blobs = (stored.config, *stored.layers)
    return stored if all(layout.has(blob.digest, blob.size) for blob in blobs) else None


def _lacking(layout: Layout, source: ImageSource) -> int:
    """Estimate the bytes that the directory lacks of an image."""
    return _above(source, layout.stored_below(source.image))


def _above(source: ImageSource, skip: int) -> int:
    """Estimate the bytes of an image without its first `skip` layers."""
    return round(missing_bytes(source.image, source.sizes, skip) * saved_share(source.image, source.sizes))


def _receiving(source: ImageSource, program: EndProgram, report: OnEvent, skip: int) -> Receiving:
    need = _above(source, skip)
    layers = len(source.image.layers)
    about = f", about {need / MB:.1f} MB" if need > MB else ""
    report(Event(source.origin, f"{source.tag}: receiving {layers - skip} of {layers} layers{about}"))
    command = Command(program.argv, timeout_s=DAY_S)
    try:
        stream = source.node.node.pipe(command)
    except OSError as error:
        raise ConnectionLost(source.origin, f"{source.tag} cannot be read: {error}") from error
    stream.settimeout(TICK_S)
    meter = Meter(report, source.origin, f"receiving {source.tag}", need) if need > MB else None
    return Receiving(source.node, stream, meter)


class Receiving(io.RawIOBase):
    """The output of a program on a node as a file. Ctrl-C and a long silence end it."""

    def __init__(self, source: Member, stream: Stream, meter: Meter | None) -> None:
        self.source, self.stream, self.meter, self.count = source, stream, meter, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: object) -> int:
        """Read what has arrived. Raises Interrupted, ConnectionLost."""
        view = memoryview(buffer)  # type: ignore[arg-type]
        piece = self._piece(len(view))
        view[: len(piece)] = piece
        self.count += len(piece)
        if self.meter and piece:
            self.meter(min(self.count, self.meter.total))
        return len(piece)

    def _piece(self, most: int) -> bytes:
        began = time.monotonic()
        while time.monotonic() - began < SILENCE_S:
            if self.source.node.cancel.is_set():
                raise Interrupted(f"{self.source.name}: interrupted")
            try:
                piece: bytes = self.stream.recv(most)
            except TimeoutError:
                continue
            except OSError as error:
                raise ConnectionLost(self.source.name, f"the stream of an image broke: {error}") from error
            return piece
        raise ConnectionLost(self.source.name, f"no byte of the image within {SILENCE_S:g} s")

    def close(self) -> None:
        """End the program as well."""
        if not self.closed:
            self.stream.close()
        super().close()


# --- load


def chosen(layout: Layout, orders: Sequence[BuildOrder]) -> dict[str, StoredImage]:
    """Return the stored images of `orders` by tag. Raises UsageError where one is missing, and for damaged files.

    An image of another tag was made from other files: recipe, templates, or the inventory's `build` section.
    """
    stored = layout.images()
    for order in orders:
        if order.tag not in stored:
            others = [
                f"{tag} of sparkops {image.version}" for tag, image in stored.items() if recipe_of(tag) == order.name
            ]
            has = f"; it has {', '.join(others)}" if others else ""
            problem = f"{layout.directory} has no {order.tag}{has}"
            step = (
                f"Export with sparkops {__version__}, the same recipe and the same `build` section of the inventory: "
                f"sparkops images export RECIPE {layout.directory}"
            )
            raise UsageError(problem, next_step=step)
    images = {order.tag: stored[order.tag] for order in orders}
    for image in images.values():
        layout.require_whole(image)
    return images


@dataclass(frozen=True)
class Loading:
    """A directory of images and the nodes that get them. `wait_s`: how long to wait while an engine loads there."""

    connected: Connected
    layout: Layout
    report: OnEvent
    wait_s: float = 0.0


def load(loading: Loading, orders: Mapping[str, Sequence[BuildOrder]]) -> dict[str, dict[str, CopiedImage]]:
    """Load the images of `orders`, by node, and check them as a build does. Returns the results by node and tag.

    The first node of an image gets it from this machine, and the others from that node. Raises UsageError,
    SparkopsError for damaged files, NotReady, ImageRejected, NodeError and Busy.
    """
    connected = loading.connected
    images = chosen(loading.layout, all_of(orders))
    _require_suitable(connected, orders, images)
    results: dict[str, dict[str, CopiedImage]] = {name: {} for name in orders}
    for order in all_of(orders):

        def load_first(member: Member, order: BuildOrder = order) -> CopiedImage:
            return _load(loading, member, order, images[order.tag])

        first, *others = nodes_of(orders, order)
        loaded = connected.only([first]).all(load_first)
        if others:
            with _leased(loading, others, order):
                loaded |= distribute.copy(connected.only([first, *others]), order.tag, first, loading.report)
        for name, result in loaded.items():
            results[name][order.tag] = result
    return results


def _require_suitable(
    connected: Connected, orders: Mapping[str, Sequence[BuildOrder]], images: Mapping[str, StoredImage]
) -> None:
    """Require of all nodes that they can run the images that they lack, before one is sent. Raises NotReady."""

    def require(member: Member) -> None:
        for order in orders[member.name]:
            if member.engine.trusted(order.tag) is None and (refused := unsuitable(member, images[order.tag])):
                raise refused

    connected.only([*orders]).all(require)


@contextmanager
def _leased(loading: Loading, names: Sequence[str], order: BuildOrder) -> Iterator[None]:
    """Block engine loads on the nodes that lack the image while they receive it. Raises Busy."""
    with ExitStack() as leased:
        for member in map(loading.connected.member, names):
            if member.engine.trusted(order.tag) is None:
                leased.enter_context(_lease(loading, member, order))
        yield


def _lease(loading: Loading, member: Member, order: BuildOrder) -> AbstractContextManager[None]:
    return leases.on_node(member, f"load of image {order.tag}", loading.report, loading.wait_s)


def all_of(orders: Mapping[str, Sequence[BuildOrder]]) -> list[BuildOrder]:
    """Return the orders of all nodes, each once."""
    return [*{order.tag: order for named in orders.values() for order in named}.values()]


def nodes_of(orders: Mapping[str, Sequence[BuildOrder]], order: BuildOrder) -> list[str]:
    """Return the nodes that get the image of an order."""
    return [name for name, named in orders.items() if order.tag in {other.tag for other in named}]


def preview(loading: Loading, orders: Mapping[str, Sequence[BuildOrder]]) -> list[str]:
    """Return what `load` would do, a line for each image and node. Changes nothing."""
    images = chosen(loading.layout, all_of(orders))
    lines = []
    for order in all_of(orders):
        first, *others = nodes_of(orders, order)
        for name in (first, *others):
            copy = _copy(loading, loading.connected.member(name), images[order.tag])
            layers = len(copy.source.image.layers)
            text = f"{layers - copy.skip} of {layers} layers, {copy.need / MB:.1f} MB"
            if copy.target.engine.trusted(order.tag) is not None:
                text = "up to date"
            elif refused := unsuitable(copy.target, images[order.tag]):
                text = refused.problem
            elif copy.present is not None:
                text = "0 layers: the node has the content"
            lines.append(f"{name}: {order.tag}: {text}" + (f", from {first}" if name != first else ""))
    return lines


def _copy(loading: Loading, member: Member, stored: StoredImage) -> ImageCopy:
    origin = str(loading.layout.directory)
    return ImageCopy(OfferedImage(stored.image, stored.tag, stored.sizes, loading.report, origin), member)


def _load(loading: Loading, member: Member, order: BuildOrder, stored: StoredImage) -> CopiedImage:
    present = member.engine.trusted(order.tag)
    if present is not None:
        loading.report(Event(member.name, f"{order.tag} is up to date"))
        return CopiedImage(present["Id"], 0, present["Size"])
    with _lease(loading, member, order):
        copy = _copy(loading, member, stored)
        with removed_on_interrupt([copy]):
            if copy.present is None:
                distribute.require_room(member, copy.room, "docker load")
                _send(copy, stored, loading.layout)
        verdicts = _accept(member, order, copy, loading.report)
        loaded = copy.finish(copy.arrived())
        gated.of(loading.connected.fleet).add(order.tag, stored.content)
    return LoadedImage(loaded.image, loaded.sent, loaded.size, verdicts)


def unsuitable(member: Member, stored: StoredImage) -> NotReady | None:
    """Return why a node cannot run an image; None if it can."""
    return delivery.unsuitable(member, stored.image, stored.tag, "Export from a node that is {machine}.")


def _send(copy: ImageCopy, stored: StoredImage, layout: Layout) -> None:
    """Send what the target lacks; all of it to a target that cannot use its own layers, as containerd's store."""
    for last, skip in enumerate(tries := [*dict.fromkeys((copy.lack.shared, 0))], 1):
        try:
            _send_once(copy, stored, layout, skip)
            copy.verify()
        except NodeError as error:
            if last == len(tries) or type(error) is not NodeError:
                raise
            copy.report(f"sending all layers after: {error}")
        else:
            return


def _send_once(copy: ImageCopy, stored: StoredImage, layout: Layout, skip: int) -> None:
    observer, member = copy.start(skip), copy.target

    def counted() -> Iterator[bytes]:
        count = 0
        for piece in layout.tar(stored, skip):
            yield piece
            count += len(piece)
            observer.on_bytes(count)
        observer.on_all()

    command = Command(delivery.load_image().argv, timeout_s=DAY_S, changes=True)
    try:
        member.node.run(command, stdin=counted(), on_line=lambda _: None)
    except CommandFailed as failed:
        raise in_words(member, failed) from failed


def _accept(member: Member, order: BuildOrder, copy: ImageCopy, report: OnEvent) -> tuple[GateVerdict, ...]:
    """Run the gate of the loaded image on its node, as after a build. An image that fails it is removed."""
    image = copy.arrived()
    try:
        if (inputs := image.labels.get(INPUTS)) != order.context.digest:
            problem = f"{order.tag} was built from other inputs: {inputs}, expected {order.context.digest}"
            raise ImageRejected(member.name, problem)
        verdicts, labels = pass_gate(member, order, copy.inspect(), report)
        if differing := sorted(key for key, value in labels.items() if image.labels.get(key) != value):
            raise ImageRejected(member.name, f"{order.tag}: labels differ from its content: {', '.join(differing)}")
    except ImageRejected:
        copy.discard()
        raise
    return verdicts
