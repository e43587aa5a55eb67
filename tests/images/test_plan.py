"""What a target lacks of an image, and the room that it takes."""

from __future__ import annotations

from dataclasses import replace

from sparkops.images import plan
from sparkops.images.facts import DockerImage
from sparkops.images.plan import ImageLack
from sparkops.release import recipe_of

TAG = "sparkops/q:1"
IMAGE = DockerImage("sha256:1", (TAG,), ("a", "b", "c"), content="whole", size=100)
BEFORE = DockerImage("sha256:0", ("sparkops/q:0",), ("a", "b", "x"), content="before", size=90)


def test_a_target_with_nothing_lacks_all() -> None:
    assert plan.lack(IMAGE, TAG, []) == ImageLack(None, named=False, held=0)


def test_a_target_holds_the_layers_up_to_the_first_difference() -> None:
    other = replace(BEFORE, layers=("a", "y", "c"))

    assert plan.lack(IMAGE, TAG, [other, BEFORE]).held == 2
    assert plan.lack(IMAGE, TAG, [other]).held == 1
    assert plan.lack(IMAGE, TAG, [replace(BEFORE, layers=("b", "c"))]).held == 0
    assert plan.lack(IMAGE, TAG, [replace(BEFORE, layers=(*IMAGE.layers, "d"))]).held == 3


def test_the_same_content_needs_only_its_name() -> None:
    nameless = replace(IMAGE, id="sha256:2", tags=())

    assert plan.lack(IMAGE, TAG, [BEFORE, nameless]) == ImageLack(nameless, named=False)
    assert plan.lack(IMAGE, TAG, [nameless, IMAGE]) == ImageLack(IMAGE, named=True)


def test_the_same_name_with_another_content_is_not_there() -> None:
    assert plan.lack(IMAGE, TAG, [replace(BEFORE, tags=(TAG,))]) == ImageLack(None, named=False, held=2)


def test_only_missing_layers_are_counted() -> None:
    assert plan.missing_bytes(IMAGE, (80, 15, 5), held=0) == 100
    assert plan.missing_bytes(IMAGE, (80, 15, 5), held=2) == 5
    assert plan.missing_bytes(IMAGE, (80, 15, 5), held=3) == 0
    assert plan.missing_bytes(IMAGE, (80, 15), held=1) == 95


def test_too_little_room_is_said_and_unknown_room_is_not() -> None:
    assert plan.room(1.0, 2**30) == ""
    assert plan.room(None, 2**60) == ""
    assert plan.room(1.0, 3 * 10**9) == "1.1 GB free, 3.0 GB needed: 1.9 GB short"


def test_a_tag_tells_its_recipe() -> None:
    assert recipe_of("sparkops/122b-fp8-tp2:0123456789ab") == "122b-fp8-tp2"
    assert recipe_of("sparkops-candidate/q:1") == "q"


def test_an_image_of_another_recipe_is_not_taken_for_one_of_the_same_content() -> None:
    ours = replace(IMAGE, labels={"sparkops.recipe": "tiny", "sparkops.inputs": "a"})
    theirs = replace(IMAGE, tags=("other:1",), labels={"sparkops.recipe": "tiny-tp2", "sparkops.inputs": "b"})

    assert plan.lack(ours, TAG, [theirs]) == ImageLack(None, named=False, held=len(IMAGE.layers))
