"""One image on its way to one node. images/distribute.py sends it to several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from sparkops.config import programs
from sparkops.docker import commands
from sparkops.errors import CommandFailed, Interrupted, NodeError, SparkopsError
from sparkops.images import facts
from sparkops.images.commands import read_layers, save_image
from sparkops.images.facts import DockerImage, Store
from sparkops.images.plan import ImageLack, lack, missing_bytes
from sparkops.nodes.connected import Member
from sparkops.nodes.progress import Event, Tell
from sparkops.nodes.waiting import Waiting
from sparkops.transfer.commands import EndProgram
from sparkops.transfer.rendezvous import TransferObserver
from sparkops.weights.meter import Meter
from sparkops.weights.plan import MB

UNPACK_S, POLL_S = 120.0, 0.5


@dataclass(frozen=True)
class ImageSource:
    """An image on its way. `sizes` are about the bytes of each layer.

    `reader` is an image that can read Docker's `store` on the source, and prints the same tar without `docker save`.
    """

    image: DockerImage
    tag: str
    source: Member
    store: Store
    reader: str | None
    sizes: tuple[int, ...]
    tell: Tell

    def give(self, held: int, *, quickly: bool) -> EndProgram:
        """What prints it on the source, without its first `held` layers."""
        if quickly and self.reader:
            [reading] = programs.load(*programs.GRAPH).values()
            return read_layers(reading, self.store.graph, self.reader, self.image.id, held, self.image.layers)
        [filtering] = programs.load(*programs.LAYERS).values()
        return save_image(filtering, self.image.id, held, self.store.names(self.image))


@dataclass(frozen=True)
class CopiedImage:
    """What one node has got: the ID of the image there, the bytes that were sent to it, and those of the image."""

    image: str
    sent: int
    size: int


@dataclass
class ImageCopy:
    """A cargo for one target. It counts what is sent; how much that will be, is known only about."""

    cargo: ImageSource
    target: Member
    before: Sequence[DockerImage] = ()
    lack: ImageLack = field(init=False)
    there: DockerImage | None = None
    """The image of the same content at the target, once it was seen."""
    held: int = 0
    """How many of the target's layers are left out in this try."""
    meter: Meter | None = None
    earlier: int = 0
    now: int = 0
    unpacks: bool = False
    """All bytes have arrived, and Docker unpacks them even if the client ends."""

    def __post_init__(self) -> None:
        self.before = images(self.target)
        self.lack = lack(self.cargo.image, self.cargo.tag, self.before)
        self.there, self.held = self.lack.there, self.lack.held

    @property
    def need(self) -> int:
        """About the bytes that are to be sent."""
        return missing_bytes(self.cargo.image, self.cargo.sizes, self.held)

    @property
    def sent(self) -> int:
        """All bytes so far, those of failed tries included."""
        return self.earlier + self.now

    def say(self, text: str) -> None:
        """Tell what happens at the target."""
        self.cargo.tell(Event(self.target.name, text))

    def begin(self, held: int) -> TransferObserver:
        """A try, in which the target's first `held` layers are left out. Who is told of it."""
        self.earlier, self.now, self.meter, self.held = self.sent, 0, None, held
        layers, source = len(self.cargo.image.layers), self.cargo.source.name
        about = f", about {self.need / MB:.1f} MB" if self.need > MB else ""
        self.say(f"{self.cargo.tag}: {layers - held} of {layers} layers come from {source}{about}")
        detour = f"{source} does not reach it: it goes through this machine"
        return TransferObserver(on_bytes=self._heard, on_detour=lambda: self.say(detour), on_all=self._arrived)

    def _heard(self, count: int) -> None:
        """So many bytes have arrived; no more are told than were expected."""
        self.now, shown = count, min(count, self.need)
        if self.meter is None:
            self.meter = Meter(self.cargo.tell, self.target.name, f"receiving {self.cargo.tag}", self.need, shown)
        if self.need > MB:
            self.meter(shown)

    def _arrived(self) -> None:
        self.unpacks = True
        self.say("all has arrived; Docker unpacks it")

    def look(self) -> None:
        """See whether the target has it now. Raises NodeError.

        By its content, among the images that Docker lists: it lists none whose layers are not all there.
        """
        self.there = lack(self.cargo.image, self.cargo.tag, images(self.target)).there
        if self.there is None:
            raise NodeError(self.target.name, f"what has arrived is not the image that {self.cargo.source.name} has")

    def finish(self, image: DockerImage) -> CopiedImage:
        """Give `image` the tag. One that had it goes, unless something still needs it."""
        tag, target = self.cargo.tag, self.target
        if not self.lack.named:
            other = target.engine.image(tag)
            target.node.run(commands.tag(image.id, tag))
            if other is not None and other["RepoTags"] == [tag]:
                with suppress(CommandFailed):
                    target.node.run(commands.remove_image(other["Id"]))
        target.node.run(commands.trust(tag, image.id))
        self.say(f"{tag} {'has the same content' if self.sent else 'is up to date'}")
        return CopiedImage(image.id, self.sent, self.cargo.image.size)

    def remove_again(self) -> None:
        """Remove what this copy has brought, once Docker has unpacked it."""
        known = {image.id for image in self.before}

        def arrived() -> DockerImage | None:
            image = lack(self.cargo.image, self.cargo.tag, images(self.target)).there
            return image if image and image.id not in known else None

        image = Waiting(POLL_S, UNPACK_S).poll(arrived, bool)
        if image:
            with suppress(SparkopsError):  # after Ctrl-C the command starts, and its end is not awaited
                self.target.node.run(commands.remove_image(image.id))


def images(member: Member) -> list[DockerImage]:
    """Every image of a node."""
    return [facts.parse(image) for image in member.engine.images()]


@contextmanager
def cleared(due: Sequence[ImageCopy]) -> Iterator[None]:
    """Whoever interrupts leaves nothing on the targets. What has arrived, Docker unpacks first: nothing stops that."""
    try:
        yield
    except Interrupted:
        for delivery in (delivery for delivery in due if delivery.unpacks):
            delivery.say("waiting until Docker has unpacked it, to remove it again")
            delivery.remove_again()
        raise
