"""Images for nodes without a network: which of a directory fit, and how a stream from a node ends."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest

from sparkops import __version__
from sparkops.agents.agents import guard_order
from sparkops.command import Command
from sparkops.config import assets
from sparkops.errors import Interrupted, NodeError, NotReady, SparkopsError, UsageError
from sparkops.guard_client import image as guard_render
from sparkops.guard_client import leases
from sparkops.images import distribute, gated, offline
from sparkops.images.build import BuildOrder
from sparkops.images.delivery import CopiedImage, ImageSource
from sparkops.images.layers import Store
from sparkops.images.layout import Layout
from sparkops.nodes.connected import Connected
from sparkops.nodes.member import Member
from sparkops.nodes.progress import OnEvent, silent
from tests.images.test_layout import DIFFS, FORMS, GRAPH, HIGH, IMAGE, LOW, OWN, receive, tar

ORDER = guard_order(assets.load_templates(), assets.load_package(), guard_render.DEBIAN)


def other(order: BuildOrder) -> BuildOrder:
    """The same image made from other files."""
    return replace(order, context=replace(order.context, digest="f" * 64))


def test_the_images_of_a_directory_are_those_with_the_tags_of_recipe_and_inventory(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    stored = receive(layout, tar(GRAPH), tag=ORDER.tag)

    assert offline.chosen(layout, [ORDER]) == {ORDER.tag: stored}
    with pytest.raises(UsageError) as raised:
        offline.chosen(layout, [ORDER, other(ORDER)])
    assert str(raised.value) == f"{tmp_path} has no sparkops/guard:ffffffffffff; it has {ORDER.tag} of sparkops 0.2.0"
    assert f"Export with sparkops {__version__}, the same recipe" in raised.value.next_step


def test_an_image_with_a_missing_layer_is_refused_before_a_node_is_asked(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    stored = receive(layout, tar(GRAPH), tag=ORDER.tag)
    layout.path(stored.blobs[0]).unlink()

    with pytest.raises(SparkopsError, match=f"of {ORDER.tag}: expected a file of"):
        offline.chosen(layout, [ORDER])


@pytest.mark.parametrize(("machine", "refused"), [("arm64", ""), ("amd64", "is for arm64, the node is amd64")])
def test_a_node_of_another_architecture_is_refused(tmp_path: Path, machine: str, refused: str) -> None:
    stored = receive(Layout(tmp_path), tar(GRAPH), tag=ORDER.tag)
    member: Any = SimpleNamespace(name="n1", engine=SimpleNamespace(version={"Arch": machine}))

    assert refused in str(offline.unsuitable(member, stored) or "")
    assert (offline.unsuitable(member, stored) is None) is not bool(refused)


def test_each_image_goes_to_the_nodes_that_name_it_and_is_listed_once() -> None:
    orders = {"a": [ORDER, other(ORDER)], "b": [ORDER]}

    assert [order.tag for order in offline.all_of(orders)] == [ORDER.tag, other(ORDER).tag]
    assert offline.nodes_of(orders, ORDER) == ["a", "b"]
    assert offline.nodes_of(orders, other(ORDER)) == ["a"]


@dataclass
class Source:
    """A node's stream: what is written to `far` arrives."""

    near: socket.socket
    far: socket.socket
    cancel: threading.Event

    @property
    def file(self) -> io.BufferedReader:
        member: Any = SimpleNamespace(name="n1", node=SimpleNamespace(cancel=self.cancel))
        self.near.settimeout(0.05)
        return io.BufferedReader(offline.Receiving(member, self.near, None))


@pytest.fixture
def source() -> Iterator[Source]:
    near, far = socket.socketpair()
    with near, far:
        yield Source(near, far, threading.Event())


def test_a_stream_from_a_node_is_read_to_its_end(source: Source) -> None:
    source.far.sendall(b"x" * 1000)
    source.far.close()

    assert source.file.read() == b"x" * 1000


def test_ctrl_c_ends_a_stream_that_says_nothing(source: Source) -> None:
    source.far.sendall(b"x")
    source.cancel.set()

    with pytest.raises(Interrupted, match="n1: interrupted"):
        source.file.read()


OLD = FORMS["Docker before 25"]


@dataclass(frozen=True)
class SavingNode:
    """A node whose programs print an image, by the number of layers that they leave out."""

    saved: Mapping[int, bytes | paramiko.Channel]
    asked: list[tuple[str, int]] = field(default_factory=list)
    """Each program and the number of layers that it was to leave out."""
    rooms: list[str] = field(default_factory=list)
    """Disk space that was required on the node."""
    name: str = "n1"
    cancel: threading.Event = field(default_factory=threading.Event)

    def pipe(self, command: Command) -> socket.socket | paramiko.Channel:
        skip = json.loads(command.argv[-1])["skip"]
        self.asked.append(("reader" if command.argv[0] == "docker" else "save", skip))
        content = b"" if command.argv[0] == "docker" else self.saved[skip]
        if isinstance(content, paramiko.Channel):
            return content
        near, far = socket.socketpair()
        with far:
            far.sendall(content)
        return near


def export(
    monkeypatch: pytest.MonkeyPatch, layout: Layout, node: SavingNode, reader: str | None = None
) -> offline.ExportedImage:
    """Export the guard's image, which the node has."""
    member: Any = SimpleNamespace(name="n1", node=node)
    connected: Any = SimpleNamespace(fleet=None)
    image = replace(IMAGE, tags=(ORDER.tag,))
    source = ImageSource(
        image, ORDER.tag, (len(LOW), len(HIGH)), silent, "n1", member, Store(False, 24, "/store"), reader
    )
    monkeypatch.setattr(offline, "build_noted", lambda *_: None)
    monkeypatch.setattr(distribute, "require_room", lambda _, need, what: node.rooms.append(f"{need} for {what}"))
    monkeypatch.setattr(distribute, "source_on", lambda *_: source)
    monkeypatch.setattr(gated, "of", lambda _: SimpleNamespace(require=lambda *_: False))
    with layout.writing():
        return offline._export(connected, member, ORDER, layout, silent)


@pytest.mark.parametrize("reader", [None, "sha256:guard"])
def test_layers_that_docker_names_otherwise_are_received_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str | None
) -> None:
    """Docker before 25 names a layer by an ID of its own, which does not tell that the layer is stored."""
    layout = Layout(tmp_path)
    receive(layout, tar(GRAPH))
    without = {name: content for name, content in OLD.items() if not name.endswith("layer.tar")}
    node = SavingNode({2: tar(without), 0: tar(OLD)})

    exported = export(monkeypatch, layout, node, reader)

    assert exported.stored.blobs == DIFFS
    assert node.asked == [*([("reader", 2)] if reader else []), ("save", 2), ("save", 0)]
    assert set(node.rooms) == {f"{IMAGE.size} for docker save"}


def test_a_docker_save_that_fails_is_named_with_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = paramiko.Channel(1)
    channel.in_stderr_buffer.feed(b"a banner\nwrite /var/lib/docker/tmp/x: no space left on device\n")
    channel.in_buffer.close()
    channel.exit_status = 1
    channel.status_event.set()
    channel.in_window_size = channel.in_window_threshold = 2**20

    with pytest.raises(NodeError) as raised:
        export(monkeypatch, Layout(tmp_path), SavingNode({0: channel}))

    assert raised.value.problem.endswith(
        "; docker save exited with code 1: write /var/lib/docker/tmp/x: no space left on device"
    )
    assert raised.value.next_step == "Remove the cause, then run the command again: it continues."


def test_a_layer_that_was_cut_off_on_the_disk_is_received_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path)
    receive(layout, tar(GRAPH))
    layout.path(DIFFS[0]).write_bytes(LOW[:-1])
    rest = {OWN: GRAPH[OWN], "manifest.json": GRAPH["manifest.json"]}
    node = SavingNode({2: tar(rest), 0: tar(GRAPH)})

    exported = export(monkeypatch, layout, node)

    assert node.asked == [("save", 2), ("save", 0)]
    assert exported.stored.sizes == (len(LOW), len(HIGH))
    assert b"".join(layout.tar(exported.stored))


def test_an_export_into_an_empty_directory_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = SavingNode({0: tar(OLD)[:2000]})

    with pytest.raises(NodeError, match="the image ended early"):
        export(monkeypatch, Layout(tmp_path), node)

    assert node.asked == [("save", 0)]


@dataclass(frozen=True)
class Fleet:
    """Nodes without the guard's image, of which the first gets it from a directory. `steps`: the lease and the copy."""

    loading: offline.Loading
    steps: list[str] = field(default_factory=list)

    @property
    def orders(self) -> dict[str, list[BuildOrder]]:
        return {name: [ORDER] for name in self.loading.connected.members}


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: tuple[str, ...]) -> Fleet:
    receive(Layout(tmp_path), tar(GRAPH), tag=ORDER.tag)
    members: Any = {
        name: SimpleNamespace(name=name, engine=SimpleNamespace(version={"Arch": machine}, trusted=lambda _: None))
        for name, machine in zip("abc", machines, strict=False)
    }
    config: Any = None
    fleet = Fleet(offline.Loading(Connected(config, members), Layout(tmp_path), silent, 3.0))
    result = CopiedImage("sha256:1", 1, 1)

    def load(_: offline.Loading, member: Member, *__: object) -> CopiedImage:
        fleet.steps.append(f"load {member.name}")
        return result

    def copy(connected: Connected, _: str, source: str, __: OnEvent) -> dict[str, CopiedImage]:
        fleet.steps.append(f"copy {source}")
        return {name: result for name in connected.members if name != source}

    @contextmanager
    def lease(member: Member, work: str, _: OnEvent, wait_s: float) -> Iterator[None]:
        fleet.steps.append(f"{work} on {member.name} within {wait_s:g} s")
        yield
        fleet.steps.append(f"end {member.name}")

    monkeypatch.setattr(offline, "_load", load)
    monkeypatch.setattr(distribute, "copy", copy)
    monkeypatch.setattr(leases, "on_node", lease)
    return fleet


@pytest.mark.parametrize("machines", [("arm64", "amd64"), ("amd64", "arm64")])
def test_nothing_is_sent_where_one_node_has_another_architecture(fleet: Fleet) -> None:
    with pytest.raises(NotReady, match="is for arm64, the node is amd64"):
        offline.load(fleet.loading, fleet.orders)

    assert fleet.steps == []


@pytest.mark.parametrize("machines", [("arm64", "arm64", "arm64")])
def test_no_engine_loads_on_a_node_while_it_receives_an_image_from_the_first(fleet: Fleet) -> None:
    results = offline.load(fleet.loading, fleet.orders)

    assert list(results) == ["a", "b", "c"]
    leased = [f"load of image {ORDER.tag} on {name} within 3 s" for name in "bc"]
    assert fleet.steps == ["load a", *leased, "copy a", "end c", "end b"]
