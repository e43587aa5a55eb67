"""One image on its way to one node. fleet/distribute.py sends it to several."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from sparkops.commands import docker
from sparkops.commands import images as commands
from sparkops.commands.transfer import Program
from sparkops.config import programs
from sparkops.errors import CommandFailed, Interrupted, NodeError, SparkopsError
from sparkops.facts import images as facts
from sparkops.facts.images import Image, Store
from sparkops.fleet.connected import Member
from sparkops.fleet.meeting import Told
from sparkops.fleet.meter import Meter
from sparkops.fleet.progress import Event, Tell
from sparkops.plan import images as planning
from sparkops.plan.images import Lack
from sparkops.plan.models import MB

UNPACK_S, POLL_S = 120.0, 0.5


@dataclass(frozen=True)
class Cargo:
    """An image on its way. `sizes` are about the bytes of each layer.

    `reader` is an image that can read Docker's `store` on the source, and prints the same tar without `docker save`.
    """

    image: Image
    tag: str
    source: Member
    store: Store
    reader: str | None
    sizes: tuple[int, ...]
    tell: Tell

    def give(self, held: int, *, quickly: bool) -> Program:
        """What prints it on the source, without its first `held` layers."""
        if quickly and self.reader:
            [reading] = programs.load(*programs.GRAPH).values()
            return commands.read(reading, self.store.graph, self.reader, self.image.id, held, self.image.layers)
        [filtering] = programs.load(*programs.LAYERS).values()
        return commands.save(filtering, self.image.id, held, self.store.names(self.image))


@dataclass(frozen=True)
class Copied:
    """What one node has got: the ID of the image there, the bytes that were sent to it, and those of the image."""

    image: str
    sent: int
    size: int


@dataclass
class Delivery:
    """A cargo for one target. It counts what is sent; how much that will be, is known only about."""

    cargo: Cargo
    target: Member
    before: Sequence[Image] = ()
    lack: Lack = field(init=False)
    there: Image | None = None
    """The image of the same content at the target, once it was seen."""
    held: int = 0
    """How many of the target's layers are left out in this try."""
    meter: Meter | None = None
    earlier: int = 0
    now: int = 0
    unpacks: bool = False
    """All has arrived, and Docker makes an image of it, whoever waits for that."""

    def __post_init__(self) -> None:
        self.before = images(self.target)
        self.lack = planning.lack(self.cargo.image, self.cargo.tag, self.before)
        self.there, self.held = self.lack.there, self.lack.held

    @property
    def need(self) -> int:
        """About the bytes that are to be sent."""
        return planning.missing_bytes(self.cargo.image, self.cargo.sizes, self.held)

    @property
    def sent(self) -> int:
        """All bytes so far, those of a try that was in vain as well."""
        return self.earlier + self.now

    def say(self, text: str) -> None:
        """Tell what happens at the target."""
        self.cargo.tell(Event(self.target.name, text))

    def begin(self, held: int) -> Told:
        """A try, in which the target's first `held` layers are left out. Who is told of it."""
        self.earlier, self.now, self.meter, self.held = self.sent, 0, None, held
        layers, source = len(self.cargo.image.layers), self.cargo.source.name
        about = f", about {self.need / MB:.1f} MB" if self.need > MB else ""
        self.say(f"{self.cargo.tag}: {layers - held} of {layers} layers come from {source}{about}")
        detour = f"{source} does not reach it: it goes through this machine"
        return Told(on_bytes=self._heard, on_detour=lambda: self.say(detour), on_all=self._arrived)

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
        self.there = planning.lack(self.cargo.image, self.cargo.tag, images(self.target)).there
        if self.there is None:
            raise NodeError(self.target.name, f"what has arrived is not the image that {self.cargo.source.name} has")

    def finish(self, image: Image) -> Copied:
        """Give `image` the tag. One that had it goes, unless something still needs it."""
        tag, target = self.cargo.tag, self.target
        if not self.lack.named:
            other = target.engine.image(tag)
            target.node.run(docker.tag(image.id, tag))
            if other is not None and other["RepoTags"] == [tag]:
                with suppress(CommandFailed):
                    target.node.run(docker.remove_image(other["Id"]))
        target.node.run(docker.trust(tag, image.id))
        self.say(f"{tag} {'has the same content' if self.sent else 'is there already'}")
        return Copied(image.id, self.sent, self.cargo.image.size)

    def remove_again(self) -> None:
        """Remove what this copy has brought, once Docker has unpacked it."""
        known, end = {image.id for image in self.before}, time.monotonic() + UNPACK_S
        while time.monotonic() < end:
            found = planning.lack(self.cargo.image, self.cargo.tag, images(self.target)).there
            if found and found.id not in known:
                with suppress(SparkopsError):  # after Ctrl-C it is started, and nobody waits for it
                    self.target.node.run(docker.remove_image(found.id))
                return
            time.sleep(POLL_S)


def images(member: Member) -> list[Image]:
    """Every image of a node."""
    return [facts.parse(each) for each in member.engine.images()]


@contextmanager
def cleared(due: Sequence[Delivery]) -> Iterator[None]:
    """Whoever interrupts leaves nothing on the targets. What has arrived, Docker unpacks first: nothing stops that."""
    try:
        yield
    except Interrupted:
        for each in (each for each in due if each.unpacks):
            each.say("waiting until Docker has unpacked it, to remove it again")
            each.remove_again()
        raise
