"""Copy one image to one node. operator/build/images/distribute.py copies an image to several nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from sparkops.config import programs
from sparkops.errors import CommandFailed, Interrupted, NodeError, SparkopsError
from sparkops.node.docker import commands
from sparkops.node.member import Member
from sparkops.node.progress import Event, Meter, OnEvent
from sparkops.node.waiting import Waiting
from sparkops.operator.build.images import layers
from sparkops.operator.build.images.layers import DockerImage, ImageLack, Store, lack, missing_bytes, saved_share
from sparkops.operator.fleet.transfer.commands import EndProgram
from sparkops.operator.fleet.transfer.rendezvous import TransferObserver
from sparkops.units import MIB, shown_size

UNPACK_S, POLL_S = 120.0, 0.5
READS = ("--user=0", "--read-only", "--cap-drop=ALL", "--cap-add=DAC_READ_SEARCH", "--security-opt=no-new-privileges")
"""Rights to read all files and write none."""


@dataclass(frozen=True)
class ImageSource:
    """An image on the node that sends it. `sizes` are estimates of each layer in bytes.

    `reader` is an image whose Python can read Docker's `store` there, as a faster `docker save`.
    """

    image: DockerImage
    tag: str
    sizes: tuple[int, ...]
    report: OnEvent
    node: Member
    store: Store
    reader: str | None

    def program(self, skip: int, *, quickly: bool) -> EndProgram:
        """Return the program that prints all but the first `skip` layers; `quickly`: without `docker save`."""
        if quickly and self.reader:
            return read_layers(self.store.graph, self.reader, self.image.id, skip, self.image.layers)
        return save_image(self.image.id, skip, self.store.names(self.image))


@dataclass(frozen=True)
class CopiedImage:
    """The result on one node: the image ID there, sent bytes, and bytes of the image."""

    image: str
    sent: int
    size: int


@dataclass
class ImageCopy:
    """The copy of an image to one target. It counts sent bytes; their total is an estimate."""

    source: ImageSource
    target: Member
    before: Sequence[DockerImage] = ()
    lack: ImageLack = field(init=False)
    present: DockerImage | None = None
    """The image of the same content on the target, once it is verified."""
    skip: int = 0
    """Number of lowest layers that this attempt does not send."""
    meter: Meter | None = None
    earlier: int = 0
    now: int = 0
    unpacks: bool = False
    """Whether all bytes have arrived; Docker then unpacks them even if the client ends."""

    def __post_init__(self) -> None:
        self.before = images(self.target)
        self.lack = self._lack(self.before)
        self.present, self.skip = self.lack.same, self.lack.shared

    def _lack(self, present: Sequence[DockerImage]) -> ImageLack:
        return lack(self.source.image, self.source.tag, present)

    @property
    def unpacked(self) -> int:
        """Estimate of the bytes that the missing layers take once they are unpacked."""
        return missing_bytes(self.source.image, self.source.sizes, self.skip)

    @property
    def need(self) -> int:
        """Estimate of the bytes to send."""
        return round(self.unpacked * saved_share(self.source.image, self.source.sizes))

    @property
    def room(self) -> int:
        """Estimate of the disk space for `docker load`, which stores its whole input before it unpacks it."""
        return self.need + self.unpacked

    @property
    def sent(self) -> int:
        """Bytes sent so far, including failed attempts."""
        return self.earlier + self.now

    def report(self, text: str) -> None:
        self.source.report(Event(self.target.name, text))

    def start(self, skip: int) -> TransferObserver:
        """Start an attempt without the first `skip` layers. Return its observer."""
        self.earlier, self.now, self.meter, self.skip = self.sent, 0, None, skip
        count, origin = len(self.source.image.layers), self.source.node.name
        about = f", about {shown_size(self.need)}" if self.need > MIB else ""
        self.report(f"{self.source.tag}: copying {count - skip} of {count} layers from {origin}{about}")
        detour = f"no direct route from {origin}; relaying through this machine"
        return TransferObserver(self._count, on_detour=lambda: self.report(detour), on_all=self._arrived)

    def _count(self, count: int) -> None:
        """Count arrived bytes. Shows at most the estimate."""
        self.now, shown = count, min(count, self.need)
        if self.meter is None:
            what = f"receiving {self.source.tag}"
            self.meter = Meter(self.source.report, self.target.name, what, self.need, shown)
        if self.need > MIB:
            self.meter(shown)

    def _arrived(self) -> None:
        self.unpacks = True
        self.report("received; Docker is unpacking it")

    def verify(self) -> None:
        """Check that the target now has an image of the same content. Raises NodeError."""
        self.present = self._lack(images(self.target)).same
        if self.present is None:
            raise NodeError(self.target.name, f"the received image differs from that of {self.source.node.name}")

    def finish(self, image: DockerImage) -> CopiedImage:
        """Set the tag of `image`. Remove the image that had it unless it is in use."""
        tag, target = self.source.tag, self.target
        if not self.lack.named:
            other = target.engine.image(tag)
            target.node.run(commands.tag(image.id, tag))
            if other is not None and other["RepoTags"] == [tag]:
                with suppress(CommandFailed):
                    target.node.run(commands.remove_image(other["Id"]))
        target.node.run(commands.trust(tag, image.id))
        self.report(f"{tag} {'has the same content' if self.sent else 'is up to date'}")
        return CopiedImage(image.id, self.sent, self.source.image.size)

    def remove_arrived(self) -> None:
        """Remove the image of this copy once Docker has unpacked it."""
        known = {image.id for image in self.before}

        def arrived() -> DockerImage | None:
            image = self._lack(images(self.target)).same
            return image if image and image.id not in known else None

        image = Waiting(POLL_S, UNPACK_S).poll(arrived, bool)
        if image:
            with suppress(SparkopsError):  # after Ctrl-C the command starts, but its end is not awaited
                self.target.node.run(commands.remove_image(image.id))


def images(member: Member) -> list[DockerImage]:
    return [layers.parse(image) for image in member.engine.images()]


@contextmanager
def removed_on_interrupt(copies: Sequence[ImageCopy]) -> Iterator[None]:
    """Remove partial copies on the targets after Ctrl-C, once Docker has unpacked them: nothing stops that."""
    try:
        yield
    except Interrupted:
        for copy in copies:
            if copy.unpacks:
                copy.report("interrupted; removing the image when Docker has unpacked it")
                copy.remove_arrived()
        raise


def load_image() -> EndProgram:
    """Pass stdin to `docker load` if it is one complete image without a name."""
    [text] = programs.load(*programs.LOAD).values()
    return EndProgram(("python3", "-c", text, "docker", "load", "--quiet"), called="docker load")


def save_image(image: str, skip: int, names: Sequence[str]) -> EndProgram:
    """Print `image` (an ID) without its first `skip` layers and without a name; the target tags it after a check."""
    [text] = programs.load(*programs.LAYERS).values()
    request = json.dumps({"image": image, "skip": skip, "names": names})
    return EndProgram(("python3", "-c", text, request), called="docker save")


def read_layers(store: str, reader: str, image: str, skip: int, layers: Sequence[str]) -> EndProgram:
    """Print the same without `docker save`, with templates/node/graph.py.

    It runs in a container of the image `reader`, which needs Python, with only Docker's `store` mounted, because layer
    directories belong to root. `layers` are the digests of all layers of the image.
    """
    [text] = programs.load(*programs.GRAPH).values()
    request = json.dumps({"image": image, "skip": skip, "layers": layers})
    mounts = {f"{store}/image/overlay2": "/store/image", f"{store}/overlay2": "/store/layers"}
    options = (f"--mount=type=bind,source={source},target={target},readonly" for source, target in mounts.items())
    run = ("docker", "run", "--rm", "--interactive", "--network=none", "--log-driver=none", "--pull=never")
    argv = (*run, *READS, *options, "--entrypoint=python3", reader, "-c", text, request)
    return EndProgram(argv, called="the reader of Docker's store")
