"""An image from node to node: only what a node lacks is sent, the content is verified, and nothing stays behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkops.config.inventory import Fleet
from sparkops.errors import ImageRejected, Interrupted, NodeError
from sparkops.node.docker.places import CONTAINER
from sparkops.node.progress import Event, OnEvent, silent
from sparkops.operator.build.images import delivery, distribute, gated
from sparkops.operator.build.images.delivery import CopiedImage
from sparkops.operator.fleet.connected import connect
from sparkops.operator.fleet.network.routes import addresses, host_of
from sparkops.operator.fleet.transfer import transfer
from sparkops.operator.fleet.transfer.commands import EndProgram
from sparkops.operator.fleet.transfer.rendezvous import Ends
from tests import image_layers
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.service import Service

pytestmark = [pytest.mark.fleet]

TAG, LARGE = "sparkops/copied:0123456789ab", 60_000_000
LEFT = "docker ps --all --quiet; ls /tmp /var/tmp; ps -e -o args | grep -c '[p]ython3 -c import' || true"


@pytest.fixture
def pair(nodes: RealFleet, fleet: Fleet) -> Iterator[tuple[FleetNode, FleetNode]]:
    one, two = nodes.nodes[:2]
    gated.of(fleet).file.unlink(missing_ok=True)
    yield one, two
    for node in (one, two):
        image_layers.forget(node, TAG)
    gated.of(fleet).file.unlink(missing_ok=True)


def copy(fleet: Fleet, report: OnEvent = silent) -> CopiedImage:
    with connect(fleet, ["node-1", "node-2"]) as connected:
        return distribute.copy(connected, TAG, "node-1", report)["node-2"]


def image_of(node: FleetNode) -> str:
    return node.exec("sh", "-c", f"docker image inspect --format '{{{{.Id}}}}' {TAG} || true").strip()


@pytest.fixture(params=[pytest.param("docker save", marks=pytest.mark.matrix), "Docker's store"])
def way(request: pytest.FixtureRequest, service: Service) -> Iterator[None]:
    """How layers are read: a guard on the source, which a service has brought there, can look into Docker's store."""
    source, away = service.nodes.node("node-1"), f"{CONTAINER}-away"
    if request.param == "docker save":
        source.exec("docker", "rename", CONTAINER, away)
        yield
        source.exec("docker", "rename", away, CONTAINER)
    else:
        assert source.exec("docker", "inspect", "--format", "{{.State.Running}}", CONTAINER).strip() == "true"
        yield


@pytest.mark.usefixtures("way")
def test_only_a_changed_layer_is_sent(fleet: Fleet, pair: tuple[FleetNode, FleetNode]) -> None:
    one, two = pair
    texts: list[str] = []
    image = image_layers.build(one, TAG, LARGE)
    whole = copy(fleet, lambda event: texts.append(event.text))
    assert LARGE <= whole.sent <= 1.05 * whole.size
    assert image_of(two) == whole.image == image
    repeated = copy(fleet)
    assert (repeated.image, repeated.sent) == (image, 0)

    changed = image_layers.change(one, TAG, 50_000)
    with pytest.raises(ImageRejected, match="is another image than the one that passed its gate"):
        copy(fleet)
    gated.of(fleet).file.unlink()  # as its error says
    part = copy(fleet, lambda event: texts.append(event.text))
    assert changed != image
    assert image_of(two) == part.image == changed
    assert part.sent < 0.01 * part.size
    assert not [text for text in texts if "another way" in text]


@pytest.mark.usefixtures("way")
@pytest.mark.matrix
def test_an_interrupted_copy_leaves_nothing(fleet: Fleet, pair: tuple[FleetNode, FleetNode]) -> None:
    one, two = pair
    image = image_layers.build(one, TAG, 6 * LARGE)
    before = two.exec("sh", "-c", LEFT)
    with connect(fleet, ["node-1", "node-2"]) as connected:

        def interrupt(event: Event) -> None:
            if event.text.startswith("receiving"):
                connected.cancel.set()

        with pytest.raises(Interrupted):
            distribute.copy(connected, TAG, "node-1", interrupt)
    assert image_of(two) == ""
    assert two.exec("sh", "-c", LEFT) == before
    assert copy(fleet).image == image_of(two) == image


def test_a_tar_that_names_an_image_is_not_loaded(fleet: Fleet, pair: tuple[FleetNode, FleetNode]) -> None:
    one, two = pair
    image = image_layers.build(one, TAG, 1_000_000)
    by_name = EndProgram(("docker", "save", TAG))
    with connect(fleet, ["node-1", "node-2"]) as connected:
        source, target = (connected.members[name] for name in ("node-1", "node-2"))
        places = addresses(host_of(source), host_of(target))
        with pytest.raises(NodeError, match=f"the image was refused: expected an image without tags, got .*{TAG}"):
            transfer.send(Ends(source, by_name, target, delivery.load_image(), places), lambda _: None, lambda: None)
    assert image_of(two) == ""
    assert image not in two.exec("docker", "images", "--all", "--quiet", "--no-trunc")
