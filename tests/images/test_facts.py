"""What Docker says of images and of its store."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.images import facts
from sparkops.images.facts import Store

INSPECT: dict[str, Any] = {
    "Id": "sha256:1",
    "RepoTags": ["sparkops/q:1"],
    "Os": "linux",
    "Architecture": "arm64",
    "RootFS": {"Type": "layers", "Layers": ["sha256:a", "sha256:b"]},
    "Config": {"Labels": {"sparkops.inputs": "c"}},
    "Size": 7,
}
CONTAINERD = {"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
CLASSIC = {"DriverStatus": [["Backing Filesystem", "extfs"], ["Supports d_type", "true"]]}


def test_the_content_of_an_image_is_neither_its_id_nor_its_names() -> None:
    one = facts.parse(INSPECT)
    other = facts.parse({**INSPECT, "Id": "sha256:2", "RepoTags": None, "Config": {"Labels": None}})

    assert (one.tags, one.layers, one.size) == (("sparkops/q:1",), ("sha256:a", "sha256:b"), 7)
    assert one.content == other.content
    assert other.tags == ()


def test_an_image_without_layers_can_be_read() -> None:
    assert facts.parse({**INSPECT, "RootFS": {"Type": "layers"}}).layers == ()


@pytest.mark.parametrize(
    ("info", "version", "store", "named"),
    [
        (CLASSIC, "26.1.5+dfsg1", Store(containerd=False, major=26), True),
        (CLASSIC, "20.10.24+dfsg1", Store(containerd=False, major=20), False),
        (CONTAINERD, "29.0.1", Store(containerd=True, major=29), False),
        ({"Driver": "overlay2", "DockerRootDir": "/d", **CLASSIC}, "28.3.3", Store(False, 28, "/d"), True),
        ({"Driver": "btrfs", "DockerRootDir": "/d", **CLASSIC}, "28.3.3", Store(containerd=False, major=28), True),
        ({"Driver": "overlay2", "DockerRootDir": "/d", **CONTAINERD}, "29.0.1", Store(True, 29), False),
        ({"DriverStatus": None}, "25.0.0", Store(containerd=False, major=25), True),
    ],
)
def test_only_a_newer_engine_with_its_own_store_names_layers_by_their_content(
    info: dict[str, Any], version: str, store: Store, *, named: bool
) -> None:
    found = facts.store(info, version)

    assert found == store
    assert found.names(facts.parse(INSPECT)) == (("blobs/sha256/a", "blobs/sha256/b") if named else ())


def test_steps_that_add_nothing_are_no_layers() -> None:
    history = [{"Size": 0}, {"Size": 3}, {"Size": 0}, {"Size": 80}]

    assert facts.layer_sizes(history) == (80, 3)
