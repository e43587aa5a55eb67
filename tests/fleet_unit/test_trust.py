"""Which image a node starts: the one that sparkops gave the tag there, whatever else has the tag."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from urllib.parse import unquote

import pytest

from sparkops.command import Command, Completed
from sparkops.errors import CommandFailed, ImageRejected, NotReady
from sparkops.images import distribute
from sparkops.images.build import BuildOrder, Gate, build_on
from sparkops.nodes import host
from sparkops.nodes.connected import Connected, Member
from sparkops.nodes.docker_api import Engine, Facts
from sparkops.nodes.node import OnLine, Stream
from sparkops.nodes.progress import silent
from sparkops.render.context import Context
from tests.examples import node
from tests.fleet_unit.listener import converse

OURS, FOREIGN = ("sha256:" + digit * 64 for digit in "af")
ORDER = BuildOrder("q", Context((), {}, "0123456789abcdef"), 0.0, Gate(lambda image: Command(("docker", "run", image))))
LABELLED = Gate(ORDER.gate.command, labels=lambda _: {"sparkops.torch": "2"})


@dataclass
class Store:
    """Docker's images and volumes: IDs by tag. A build gives `built`; labels keep the layers of `labelled`."""

    tags: dict[str, str] = field(default_factory=dict)
    volumes: set[str] = field(default_factory=set)
    labelled: str = ""
    builds: int = 0
    name: str = "n1"
    cancel: threading.Event = field(default_factory=threading.Event)

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        """See Node.run."""
        _ = [*stdin], on_line
        code, printed = self._do(command.argv)
        completed = Completed(self.name, command, code, printed, "")
        if code:
            raise CommandFailed(completed)
        return completed

    def _do(self, argv: tuple[str, ...]) -> tuple[int, str]:
        tag = next((argument.removeprefix("--tag=") for argument in argv if argument.startswith("--tag=")), "")
        match argv:
            case ("sh", "-c", script, *_) if script.startswith(host.QUERY_SCRIPT):
                return 0, "arch x86_64\nnow 1.0\nMemTotal: 1\nMemAvailable: 1\ndisk 999999999\nbuildkit yes\n"
            case ("env", _, _, "docker", "build", *options):
                self.builds += "--quiet" not in options
                self.tags[tag] = self.labelled if "--quiet" in options else OURS
            case ("docker", "tag", image, name):
                self.tags[name] = image
            case ("docker", "volume", "create", name):
                self.volumes.add(name)
            case ("docker", "rmi", name):
                return (0, "") if self.tags.pop(name, "") else (1, "")
            case ("docker", "run", *_):
                return 0, ""
            case _:
                raise AssertionError(argv)
        return 0, ""

    def api(self, path: str) -> tuple[int, bytes]:
        """Docker's API."""
        kind, _, name = unquote(path.partition("?")[0].removesuffix("/json")).partition("s/")
        if path.endswith("/version"):
            return 200, json.dumps({"ApiVersion": "1.43", "Version": "28.0.0"}).encode()
        if kind.endswith("/volume"):
            return (200, b"{}") if name in self.volumes else (404, b'{"message": "no such volume"}')
        image = self.tags.get(name)
        return (200, json.dumps(inspect(image)).encode()) if image else (404, b'{"message": "no such image"}')

    def pipe(self, command: Command) -> Stream:
        """Docker's API."""
        _ = command
        ours, theirs = socket.socketpair()
        threading.Thread(target=converse, args=(theirs, self.api), daemon=True).start()
        return ours

    def dial(self, port: int | str) -> Stream:
        """See Node.dial."""
        raise ConnectionRefusedError(port)

    def close(self) -> None:
        """See Node.close."""


def inspect(image: str) -> Facts:
    layers = ["one"] if image in (OURS, OURS + "labelled") else ["other"]
    return {"Id": image, "Size": 1, "RootFS": {"Layers": layers}, "Config": {}, "RepoTags": []}


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def member(store: Store) -> Iterator[Member]:
    with closing(Engine(store)) as engine:
        yield Member("n1", node(), store, engine)


def test_an_image_is_trusted_by_its_id(store: Store, member: Member) -> None:
    built = build_on(member, ORDER, silent)
    second = build_on(member, ORDER, silent)

    assert (built.image, built.new, second.image, second.new, store.builds) == (OURS, True, OURS, False, 1)
    assert store.volumes == {f"sparkops-trusted-q-0123456789ab-{'a' * 64}"}


def test_a_tag_that_came_with_a_tar_is_built_over(store: Store, member: Member) -> None:
    store.tags[ORDER.tag] = FOREIGN

    assert member.engine.trusted(ORDER.tag) is None
    assert (build_on(member, ORDER, silent).image, store.tags[ORDER.tag]) == (OURS, OURS)


def test_a_tag_that_was_moved_is_not_trusted(store: Store, member: Member) -> None:
    build_on(member, ORDER, silent)
    store.tags[ORDER.tag] = FOREIGN

    assert member.engine.trusted(ORDER.tag) is None
    assert (build_on(member, ORDER, silent).image, store.builds) == (OURS, 2)


def test_a_trusted_image_under_another_tag_is_not_that_image(store: Store, member: Member) -> None:
    build_on(member, ORDER, silent)
    store.tags["sparkops/guard:0123456789ab"] = OURS

    assert member.engine.trusted("sparkops/guard:0123456789ab") is None


def test_labels_are_put_on_the_image_that_passed_its_gate(store: Store, member: Member) -> None:
    order = BuildOrder(ORDER.name, ORDER.context, 0.0, LABELLED)
    store.labelled = OURS + "labelled"
    assert build_on(member, order, silent).image == OURS + "labelled"
    store.volumes.clear()
    store.labelled = FOREIGN

    with pytest.raises(ImageRejected, match="differs from the image that passed its gate"):
        build_on(member, order, silent)

    assert store.volumes == set()


def test_only_a_trusted_image_is_copied(store: Store, member: Member) -> None:
    store.tags[ORDER.tag] = FOREIGN
    connected = Connected(None, {"n1": member}, cancel=store.cancel)  # type: ignore[arg-type]  # it is not looked at

    with pytest.raises(NotReady, match="image of sparkops not found: sparkops/q:0123456789ab"):
        distribute.copy(connected, ORDER.tag, "n1", silent)
