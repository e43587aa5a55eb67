"""Names, ports and labels: derived once, and stable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops import __version__
from sparkops.config.recipe import Recipe
from sparkops.config.release import (
    Rank,
    Release,
    candidate_tag,
    content_labels,
    image_labels,
    image_tag,
    installed,
    mod_labels,
)
from sparkops.config.serve import Serve
from sparkops.names import Slot
from tests.examples import CUDA, INPUTS, rank, release

MADE: dict[str, Any] = {
    "sources": [{"id": "org/base", "path": "base"}],
    "steps": [{"script": "add-tensors", "inputs": {"base": "base"}, "output": "q", "disk_gb": 1.0}],
}


def test_the_id_of_a_release_is_the_same_on_every_machine_and_day() -> None:
    assert release().id == "q-7ed877326e"


@pytest.mark.parametrize(
    "change",
    [
        {"service": "other"},
        {"engine": "stand-in"},
        {"model": {"revision": "abc"}},
        {"model": {"path": "q2"}},
        {"model": {"id": "org/q2"}},
        {"model": {**MADE, "steps": [{**MADE["steps"][0], "args": {"tensors": "b"}}]}},
        {"model": {**MADE, "sources": [{**MADE["sources"][0], "revision": "abc"}]}},
        {"serve": {"port": 8001}},
        {"serve": {"args": {"dtype": "bfloat16"}}},
        {"serve": {"env": {"A": "1"}}},
        {"serve": {"shm_gib": 1.0}},
        {"serve": {"stop_grace_s": 5}},
        {"serve": {"tensor_parallel": 2}},
        {"serve": {"executor": "ray"}},
    ],
    ids=str,
)
def test_what_decides_how_a_release_behaves_makes_another_one(change: dict[str, Any]) -> None:
    assert release(**change).id != release().id


@pytest.mark.parametrize(
    "change",
    [
        {"description": "Other words"},
        {"nodes": ["n1"]},
        {"model": {"size_gb": 5.0}},
        {"model": {"exclude": ["original/*"]}},
        {"memory": {"claim_gib": 5.0}},
        {"probe": {"passes": 1}},
        {"probe": {"startup": {"stall_s": 10.0}}},
        {"expected": {"tok_s": 1.0, "source": "a guess"}},
        {"verified": "on two nodes"},
        {"serve": {"sticky": True}},
        {"image": {"torch": CUDA}},  # the image is known by its inputs
    ],
    ids=str,
)
def test_words_probes_and_placement_make_no_other_release(change: dict[str, Any]) -> None:
    assert release(**change).id == release().id


@pytest.mark.parametrize(("part", "size"), [("sources", "size_gb"), ("steps", "disk_gb")])
def test_how_much_room_a_step_takes_makes_no_other_release(part: str, size: str) -> None:
    larger = {**MADE, part: [{**MADE[part][0], size: 9.0}]}

    assert release(model=larger).id == release(model=MADE).id != release().id


class LaterServe(Serve):
    """What a later sparkops may know."""

    spares: int = 3


class LaterRecipe(Recipe):
    """A recipe of a later sparkops."""

    serve: LaterServe = LaterServe()


def test_a_key_that_sparkops_learns_later_changes_no_release_that_does_not_use_it() -> None:
    now = release(serve={"args": {"dtype": "bfloat16"}})
    data = now.recipe.model_dump(mode="json", exclude_none=True)
    later = Release(LaterRecipe.model_validate(data), now.inputs)
    used = Release(LaterRecipe.model_validate({**data, "serve": {**data["serve"], "spares": 4}}), now.inputs)

    assert later.id == now.id
    assert used.id != now.id


def test_a_default_that_is_written_out_makes_no_other_release() -> None:
    assert release(engine="vllm", serve={"port": 8000, "args": {}}).id == release().id


def test_other_inputs_of_the_image_make_another_release() -> None:
    assert replace(release(), inputs="f" * 64).id != release().id


def test_the_order_in_which_arguments_are_written_makes_no_other_release() -> None:
    one, other = ({"a": 1, "b": 2}, {"b": 2, "a": 1})

    assert release(serve={"args": one}).id == release(serve={"args": other}).id


def test_a_tag_is_a_digest_of_what_went_in() -> None:
    assert image_tag("vllm", INPUTS) == release().image == "sparkops/vllm:0123456789ab"
    assert release(name="other").image == release().image
    assert release().images[1] == "sparkops/q:0123456789ab"
    assert candidate_tag("q", INPUTS) == "sparkops-candidate/q:0123456789ab"


def test_an_image_carries_its_recipe_and_inputs() -> None:
    assert image_labels("q", INPUTS) == {
        "sparkops.recipe": "q",
        "sparkops.inputs": INPUTS,
        "sparkops.version": __version__,
    }


def test_an_image_says_how_each_of_its_mods_ended() -> None:
    assert mod_labels({"b": "already there", "a": "applied"}) == {
        "sparkops.mod.a": "applied",
        "sparkops.mod.b": "already there",
    }


@pytest.mark.parametrize(("slot", "port"), [(Slot.BLUE, 8001), (Slot.GREEN, 8002)])
def test_each_slot_has_a_container_and_a_port_of_its_own(slot: Slot, port: int) -> None:
    assert (rank(slot=slot).container, rank(slot=slot).port) == (f"{release().id}-{slot}-r0", port)


def test_each_slot_is_the_other_of_the_other() -> None:
    assert {slot: slot.other for slot in Slot} == {Slot.BLUE: Slot.GREEN, Slot.GREEN: Slot.BLUE}


def test_a_container_says_what_it_is_and_not_what_it_is_for() -> None:
    assert Rank(release(), Slot.GREEN, "n1", index=1).labels == {
        "sparkops.service": "chat",
        "sparkops.release": release().id,
        "sparkops.recipe": "q",
        "sparkops.slot": "green",
        "sparkops.rank": "1",
        "sparkops.port": "8002",
        "sparkops.claim-gib": "10",
        "sparkops.inputs": INPUTS,
        "sparkops.version": __version__,
    }


@pytest.mark.parametrize(("callers", "label"), [((), ""), (("10.0.0.1", "fd00::1"), "10.0.0.1,fd00::1")])
def test_a_container_behind_the_gateway_says_who_may_call_it(callers: tuple[str, ...], label: str) -> None:
    assert Rank(release(), Slot.GREEN, "n1", callers=callers).labels["sparkops.callers"] == label


def test_an_image_says_what_is_installed() -> None:
    labels = content_labels("2.11.0+cu130", "13.0", "ab" * 32)

    assert labels == {"sparkops.torch": "2.11.0+cu130 for CUDA 13.0", "sparkops.packages": "ab" * 32}
    assert installed(labels) == "torch 2.11.0+cu130 for CUDA 13.0, packages abababababab"
    assert content_labels("", None, "ab") == {"sparkops.packages": "ab"}
    assert installed({}) == ""
