"""Images as Docker stores them, and what a target lacks of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.config.release import name_of
from sparkops.operator.build.images import layers
from sparkops.operator.build.images.layers import DockerImage, ImageLack, Store

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
    one = layers.parse(INSPECT)
    other = layers.parse({**INSPECT, "Id": "sha256:2", "RepoTags": None, "Config": {"Labels": None}})

    assert (one.tags, one.layers, one.size) == (("sparkops/q:1",), ("sha256:a", "sha256:b"), 7)
    assert one.content == other.content
    assert other.tags == ()


def test_an_image_without_layers_can_be_read() -> None:
    assert layers.parse({**INSPECT, "RootFS": {"Type": "layers"}}).layers == ()


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
    read = layers.store(info, version)

    assert read == store
    assert read.names(layers.parse(INSPECT)) == (("blobs/sha256/a", "blobs/sha256/b") if named else ())


def test_steps_that_add_nothing_are_no_layers() -> None:
    history = [{"Size": 0}, {"Size": 3}, {"Size": 0}, {"Size": 80}]

    assert layers.layer_sizes(history, 2) == (80, 3)


@pytest.mark.parametrize("setting", ["ENV A=1", '/bin/sh -c #(nop)  CMD ["bash"]'])
def test_a_step_without_bytes_that_has_a_layer_does_not_move_the_others(setting: str) -> None:
    """Otherwise a copy of the last layer would need room for the large one below WORKDIR."""
    history = [
        {"Size": 3, "CreatedBy": "COPY a /a # buildkit"},
        {"Size": 0, "CreatedBy": "WORKDIR /a"},
        {"Size": 0, "CreatedBy": setting},
        {"Size": 80, "CreatedBy": "RUN /bin/sh -c pip install vllm # buildkit"},
    ]

    assert layers.layer_sizes(history, 3) == (80, 0, 3)
    assert layers.missing_bytes(replace(IMAGE, layers=("a", "b", "c")), layers.layer_sizes(history, 3), 1) == 3
    assert layers.layer_sizes(history, 4) == (80, 3)  # commands that do not tell


TAG = "sparkops/q:1"
IMAGE = DockerImage("sha256:1", (TAG,), ("a", "b", "c"), content="whole", size=100)
VLLM = (87_273_472, 10_330_112, 129_863_680, 64_946_176, 2_261_147_648, 111_919_104)
"""Bytes of the large steps of vLLM for the CPU, as Docker 26.1 with containerd's store reports them."""
BEFORE = DockerImage("sha256:0", ("sparkops/q:0",), ("a", "b", "x"), content="before", size=90)


def test_a_target_with_nothing_lacks_all() -> None:
    assert layers.lack(IMAGE, TAG, []) == ImageLack(None, named=False, shared=0)


def test_a_target_shares_the_layers_up_to_the_first_difference() -> None:
    other = replace(BEFORE, layers=("a", "y", "c"))

    assert layers.lack(IMAGE, TAG, [other, BEFORE]).shared == 2
    assert layers.lack(IMAGE, TAG, [other]).shared == 1
    assert layers.lack(IMAGE, TAG, [replace(BEFORE, layers=("b", "c"))]).shared == 0
    assert layers.lack(IMAGE, TAG, [replace(BEFORE, layers=(*IMAGE.layers, "d"))]).shared == 3


def test_the_same_content_needs_only_its_name() -> None:
    nameless = replace(IMAGE, id="sha256:2", tags=())

    assert layers.lack(IMAGE, TAG, [BEFORE, nameless]) == ImageLack(nameless, named=False)
    assert layers.lack(IMAGE, TAG, [nameless, IMAGE]) == ImageLack(IMAGE, named=True)


def test_the_same_name_with_another_content_is_not_there() -> None:
    assert layers.lack(IMAGE, TAG, [replace(BEFORE, tags=(TAG,))]) == ImageLack(None, named=False, shared=2)


def test_only_missing_layers_are_counted() -> None:
    assert layers.missing_bytes(IMAGE, (80, 15, 5), shared=0) == 100
    assert layers.missing_bytes(IMAGE, (80, 15, 5), shared=2) == 5
    assert layers.missing_bytes(IMAGE, (80, 15, 5), shared=3) == 0
    assert layers.missing_bytes(IMAGE, (80, 15), shared=1) == 95


@pytest.mark.parametrize(
    ("size", "sizes", "share"),
    [(100, (80, 15, 5), 1.0), (838_396_552, VLLM, 0.315), (100, (), 1.0)],
    ids=["Docker's own store", "containerd's store", "no layers"],
)
def test_an_image_of_containerd_s_store_is_saved_compressed(size: int, sizes: tuple[int, ...], share: float) -> None:
    assert layers.saved_share(replace(IMAGE, size=size), sizes) == pytest.approx(share, abs=0.001)


def test_too_little_room_is_said_and_unknown_room_is_not() -> None:
    assert layers.room(1.0, 2**30) == ""
    assert layers.room(None, 2**60) == ""
    assert layers.room(1.0, 3 * 10**9) == "1.0 GiB free, 2.8 GiB needed: 1.8 GiB short"


def test_a_tag_tells_its_recipe() -> None:
    assert name_of("sparkops/llama-cpp:0123456789ab") == "llama-cpp"
    assert name_of("sparkops-candidate/vllm:1") == "vllm"


def test_an_image_of_another_recipe_is_not_taken_for_one_of_the_same_content() -> None:
    image = replace(IMAGE, labels={"sparkops.recipe": "tiny", "sparkops.inputs": "a"})
    other = replace(IMAGE, tags=("other:1",), labels={"sparkops.recipe": "tiny-tp2", "sparkops.inputs": "b"})

    assert layers.lack(image, TAG, [other]) == ImageLack(None, named=False, shared=len(IMAGE.layers))
