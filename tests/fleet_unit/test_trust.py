"""Which image a node starts: the one that sparkops gave the tag there, whatever else has the tag."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote

import pytest

from sparkops.command import Command, Completed
from sparkops.config import recipe_file, shipped
from sparkops.config.inventory import Build, Fleet
from sparkops.config.release import trust_mark
from sparkops.engines.image_facts import GateVerdict
from sparkops.errors import CommandFailed, ImageRejected, NotReady, SparkopsError
from sparkops.node import host
from sparkops.node.docker.facts import image_content
from sparkops.node.docker_api import Engine, Facts
from sparkops.node.member import Member
from sparkops.node.node import OnLine, Stream
from sparkops.node.progress import Event, silent
from sparkops.operator.build.images import distribute, gated, layers
from sparkops.operator.build.images.build import BuildOrder, Gate, build_on, build_on_all
from sparkops.operator.build.lock import locking
from sparkops.operator.build.render.context import Context
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards import leases
from tests.examples import node
from tests.fleet_unit.listener import converse

OURS, FOREIGN = ("sha256:" + digit * 64 for digit in "af")
ORDER = BuildOrder("q", Context((), {}, "0123456789abcdef"), 0.0, Gate(lambda image: Command(("docker", "run", image))))
WITHOUT_PYTHON = recipe_file.load(shipped.recipes()["122b-heretic-atlas"])
LABELLED = Gate(ORDER.gate.command, labels=lambda _: {"sparkops.torch": "2"})


@dataclass
class Store:
    """Docker's images and volumes: IDs by tag. A build gives `built`; labels keep the layers of `labelled`."""

    tags: dict[str, str] = field(default_factory=dict)
    volumes: set[str] = field(default_factory=set)
    labelled: str = ""
    builds: int = 0
    gated: list[str] = field(default_factory=list)
    """Images whose gate ran."""
    name: str = "n1"
    machine: str = "arm64"
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
            case ("docker", "run", image):
                self.gated.append(image)
            case _:
                raise AssertionError(argv)
        return 0, ""

    def api(self, path: str) -> tuple[int, bytes]:
        """Docker's API."""
        kind, _, name = unquote(path.partition("?")[0].removesuffix("/json")).partition("s/")
        if path.endswith("/version"):
            return 200, json.dumps({"Version": "28.0.0", "Arch": self.machine}).encode()
        if path.endswith("/info"):
            return 200, json.dumps({"DriverStatus": [["driver-type", layers.CONTAINERD]]}).encode()
        if path.endswith("/history"):
            return 200, b"[]"
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


class Broken(Store):
    """Docker that builds nothing."""

    def _do(self, argv: tuple[str, ...]) -> tuple[int, str]:
        return (1, "") if argv[0] == "env" else super()._do(argv)


def inspect(image: str) -> Facts:
    content = ["one"] if image in (OURS, OURS + "labelled") else ["other"]
    platform = {"Os": "linux", "Architecture": "arm64"}
    return {"Id": image, "Size": 1, "RootFS": {"Layers": content}, "Config": {}, "RepoTags": [], **platform}


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


def test_an_image_that_docker_has_loaded_is_checked_and_not_built_if_it_passed_its_gate_elsewhere(
    store: Store, connected: Connected
) -> None:
    gated.of(connected.fleet).add(ORDER.tag, image_content(inspect(OURS)))
    store.tags[ORDER.tag] = OURS

    loaded = build_on_all(connected, ORDER, silent)["n1"]

    assert (loaded.image, loaded.new, store.builds, store.gated) == (OURS, False, 0, [OURS])
    assert store.tags == {ORDER.tag: OURS}
    assert store.volumes == {trust_mark(ORDER.tag, OURS)}


def test_an_image_that_docker_has_loaded_and_nothing_is_known_of_is_built_over(
    store: Store, connected: Connected
) -> None:
    gated.of(connected.fleet).add(ORDER.tag, image_content(inspect(OURS)))
    store.tags[ORDER.tag] = FOREIGN
    lines: list[Event] = []

    built = build_on_all(connected, ORDER, lines.append)["n1"]

    assert (built.image, built.new, store.builds, store.gated) == (OURS, True, 1, [OURS])
    [unknown] = [event.text for event in lines if "unknown" in event.text]
    content, file = image_content(inspect(FOREIGN))[:12], gated.of(connected.fleet).file
    assert unknown == f"the node's {ORDER.tag} is unknown, so it is built: content {content} is not in {file}"


def test_an_image_that_docker_has_loaded_and_its_gate_rejects_is_not_trusted(
    store: Store, connected: Connected
) -> None:
    gated.of(connected.fleet).add(ORDER.tag, image_content(inspect(OURS)))
    store.tags[ORDER.tag] = OURS
    rejecting = replace(ORDER, gate=replace(ORDER.gate, judge=lambda _, __: [GateVerdict("torch", False, "2", "3")]))

    with pytest.raises(ImageRejected, match="the image differs from the recipe"):
        build_on_all(connected, rejecting, silent)

    assert (store.builds, store.tags, store.volumes) == (0, {ORDER.tag: OURS}, set())


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


@pytest.fixture
def connected(store: Store, member: Member, tmp_path: Path) -> Connected:
    fleet = Fleet(
        file=tmp_path / "inventory.yaml", nodes={"n1": node()}, build=Build(), gateway=None, known_hosts=tmp_path / "k"
    )
    return Connected(fleet, {"n1": member}, cancel=store.cancel)


def taken_over(store: Store) -> None:
    """A node that was compromised after the build: its own image has the tag, and its mark."""
    store.tags[ORDER.tag] = FOREIGN
    store.volumes.add(trust_mark(ORDER.tag, FOREIGN))


def test_a_node_that_was_compromised_after_the_build_cannot_send_another_image(
    store: Store, connected: Connected, tmp_path: Path
) -> None:
    build_on_all(connected, ORDER, silent)
    assert distribute.copy(connected, ORDER.tag, "n1", silent) == {}
    taken_over(store)

    with pytest.raises(ImageRejected, match="is another image than the one that passed its gate") as refused:
        distribute.copy(connected, ORDER.tag, "n1", silent)
    with pytest.raises(ImageRejected):
        distribute.build_once(connected, ORDER, silent)

    assert str(tmp_path / "gated-images") in refused.value.next_step


def test_a_build_beside_one_that_failed_is_known(store: Store, connected: Connected) -> None:
    """Otherwise the next copy of a tag that was built before would take its node for compromised."""
    gated.of(connected.fleet).add(ORDER.tag, "earlier")
    broken = Broken(name="n2")
    with closing(Engine(broken)) as engine:
        member = Member("n2", node(), broken, engine)
        with pytest.raises(SparkopsError):
            build_on_all(replace(connected, members={**connected.members, "n2": member}), ORDER, silent)

    assert store.builds == 1
    assert distribute.copy(connected, ORDER.tag, "n1", silent) == {}


def test_an_image_that_a_deploy_builds_for_itself_is_known(store: Store, connected: Connected) -> None:
    """Guard, gateway and hub: otherwise one of theirs that `docker load` brings to another node would be unknown."""
    gated.of(connected.fleet).add(ORDER.tag, "earlier")
    build_on(connected.members["n1"], replace(ORDER, noted_in=gated.of(connected.fleet)), silent)

    assert store.builds == 1
    assert distribute.copy(connected, ORDER.tag, "n1", silent) == {}


def test_an_image_that_a_lock_was_made_with_is_known(store: Store, connected: Connected) -> None:
    """It is of a tag that was built before where a newer lock is the same, and each build has another content."""
    gated.of(connected.fleet).add(ORDER.tag, "earlier")
    for _ in range(2):
        locking.built_contents(connected, connected.members["n1"], WITHOUT_PYTHON, ORDER, b"", silent)
    lines: list[Event] = []
    assert distribute.copy(connected, ORDER.tag, "n1", lines.append) == {}

    assert (store.builds, lines) == (1, [])


def test_no_engine_loads_while_a_lock_builds(connected: Connected, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM is compiled with all cores and much memory, as in `build`."""
    works: list[str] = []

    @contextmanager
    def lease(_: Member, work: str, *__: object) -> Iterator[None]:
        works.append(work)
        yield

    monkeypatch.setattr(leases, "on_node", lease)
    locking.built_contents(connected, connected.members["n1"], WITHOUT_PYTHON, ORDER, b"", silent)

    assert works == [f"build of image {ORDER.tag}"]


def test_a_node_of_another_architecture_keeps_its_own_image(store: Store, connected: Connected) -> None:
    """Two architectures build one tag: a copy between them would replace an image that runs with one that cannot."""
    build_on_all(connected, ORDER, silent)
    other = Store(name="n2", machine="amd64", tags={ORDER.tag: FOREIGN})
    with closing(Engine(other)) as engine:
        member = Member("n2", node(), other, engine)
        both = replace(connected, members={**connected.members, "n2": member})
        with pytest.raises(NotReady, match=f"n2: {ORDER.tag} is for arm64, the node is amd64") as refused:
            distribute.copy(both, ORDER.tag, "n1", silent, "q")

    assert refused.value.next_step == "sparkops build q --node n2"
    assert (store.builds, other.tags, other.volumes) == (1, {ORDER.tag: FOREIGN}, set())


def test_an_image_of_another_machine_is_noted_at_its_first_copy(store: Store, connected: Connected) -> None:
    build_on(connected.members["n1"], ORDER, silent)
    lines: list[Event] = []

    distribute.copy(connected, ORDER.tag, "n1", lines.append)
    distribute.copy(connected, ORDER.tag, "n1", lines.append)

    assert [event.text.partition(":")[0] for event in lines] == ["sparkops/q"]
    assert gated.of(connected.fleet).contents(ORDER.tag) == {image_content(inspect(OURS))}
    taken_over(store)
    with pytest.raises(ImageRejected):
        distribute.copy(connected, ORDER.tag, "n1", silent)


def test_each_build_of_a_tag_is_known_and_no_other_tag(tmp_path: Path) -> None:
    images = gated.GatedImages(tmp_path / "gated-images")
    for content in ("one", "two", "two"):
        images.add("sparkops/q:1", content)

    assert images.contents("sparkops/q:1") == {"one", "two"}
    assert images.contents("sparkops/q:2") == frozenset()
    assert images.file.read_text().splitlines() == ["sparkops/q:1 one", "sparkops/q:1 two"]


def test_a_record_that_cannot_be_read_trusts_nothing(tmp_path: Path) -> None:
    (tmp_path / "gated-images").mkdir()

    with pytest.raises(SparkopsError, match="gated-images: cannot be read: "):
        gated.GatedImages(tmp_path / "gated-images").require("sparkops/q:1", "one", "n1")
