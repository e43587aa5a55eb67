"""Every rule that keeps something from a prune, alone: what it is about is all that speaks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.config.release import Rank, Release, image_tag, trust_mark
from sparkops.names import Slot
from sparkops.node.docker.facts import Container
from sparkops.operator.deploy.prune.plan import plan, staying
from sparkops.operator.deploy.prune.stored import Stored, StoredImage
from sparkops.serving.engine_spec import EngineSpec
from sparkops.swap.journal import Journal, Swap
from sparkops.swap.model import Deployment, Mode, Phase, RankSpec, Replica
from tests.examples import container, recipe

OLD, OTHER = "d" * 64, "e" * 64
RECIPE = recipe(name="q", service="chat")
RELEASE = Release(RECIPE, OLD).id
TAG, CACHE = image_tag("q", OLD), f"sparkops-cache-q-{OLD[:12]}"
MARK = trust_mark(TAG, "sha256:1")
NODE = {"address": "10.0.0.2"}
NOW_S = 1_000_000.0


def engine(name: str = "old", **changes: Any) -> Container:
    """A stopped container of an old release, which Docker would not start again."""
    facts = {"name": name, "state": "exited", "restart_policy": "no", "image": "sha256:1", **changes}
    return container(Rank(Release(RECIPE, OLD), Slot.BLUE, "n1"), **facts)


def image(*tags: str, **changes: Any) -> StoredImage:
    """Its image, which is old."""
    return replace(StoredImage("sha256:1", tags or (TAG,), OLD, named_s=1.0), **changes)


def at(release: str = RELEASE, inputs: str = OLD, name: str = "old") -> Deployment:
    """Its release, as a journal names it."""
    data = RECIPE.model_dump(mode="json", exclude_none=True)
    spec = EngineSpec(
        recipe=data, inputs=inputs, image="i", slot=Slot.BLUE, index=0, address="10.0.0.2", node=NODE, jobs=1
    )
    ranks = (RankSpec("n1", name, spec=spec.model_dump_json()),)
    return Deployment(release, Slot.BLUE, (Replica(ranks),))


def other() -> Deployment:
    return at("other", OTHER, "other")


def swap(target: Deployment, source: Deployment | None = None, previous: Deployment | None = None) -> Swap:
    return Swap("i1", Mode.BESIDE, target, source, "1.1", Phase.PREPARE, previous=previous)


NAMED: dict[str, dict[str, Any]] = {
    "the active release": {"active": at()},
    "the previous release": {"previous": at()},
    "the target of a swap": {"swap": swap(at())},
    "the source of a swap": {"swap": swap(other(), at())},
    "the release before a swap": {"swap": swap(other(), previous=at())},
}
"""Each way in which a journal may name a release."""
ALL = [
    *("docker rm old", f"docker rmi {TAG}", f"docker volume rm {CACHE}", f"docker volume rm {MARK}"),
]
"""Everything of the old release, by commands that Docker refuses where a thing is in use."""


def disk(**changes: Any) -> Stored:
    """A node with an old release and a volume of the operator."""
    stored = Stored("n1", (engine(),), (image(),), (CACHE, "mine", MARK), {"old": "sha256:1"}, now_s=NOW_S)
    return replace(stored, **changes)


def going(stored: Stored, **journal: Any) -> list[str]:
    return [str(command) for command in plan(stored, [Journal("chat", "n1", **journal)])]


def test_what_no_journal_names_goes() -> None:
    assert going(disk()) == ALL
    assert going(disk(), active=other()) == ALL
    assert [str(command) for command in plan(disk(), [])] == ALL
    assert all(command.changes for command in plan(disk(), []))


def test_a_dry_run_names_the_images_that_stay() -> None:
    assert staying(disk(), plan(disk(), [])) == ()
    assert staying(disk(), ()) == (TAG,)


@pytest.mark.parametrize("what", NAMED)
def test_what_a_journal_names_stays_with_its_image_and_cache(what: str) -> None:
    assert going(disk(), **NAMED[what]) == []
    assert going(disk(engines=(), used={}), **NAMED[what]) == [], "its container is on another node"


@pytest.mark.parametrize("state", ["running", "restarting", "paused"])
def test_what_runs_stays(state: str) -> None:
    assert going(disk(engines=(engine(state=state),))) == []


def test_what_docker_would_start_again_stays() -> None:
    assert going(disk(engines=(engine(restart_policy="always"),))) == []


def test_what_a_release_has_left_in_its_former_slot_goes() -> None:
    """It has moved: the journal names its containers of now, and no other one of it can be started again."""
    left = disk(engines=(engine(), engine("left")), used={"old": "sha256:1", "left": "sha256:1"})

    assert going(left, active=at()) == ["docker rm left"]


def test_a_container_of_that_name_on_another_node_is_not_named() -> None:
    [first, *_] = going(disk(node="n2"), active=at())

    assert first == "docker rm old"


def test_another_image_of_the_same_recipe_is_not_that_of_the_named_release() -> None:
    newer = image(image_tag("q", OTHER), id="sha256:2", inputs=OTHER)

    assert going(disk(images=(image(), newer)), active=at()) == [f"docker rmi {image_tag('q', OTHER)}"]


def test_a_recipe_that_cannot_be_read_any_more_keeps_all_its_images() -> None:
    stranger = Deployment("q-0123456789", Slot.BLUE, (Replica((RankSpec("n2", "elsewhere", spec='{"name": "q"}'),)),))

    assert going(disk(), active=stranger) == ["docker rm old"]


def test_an_image_that_a_container_of_another_program_uses_stays() -> None:
    assert going(disk(used={"old": "sha256:1", "mine": "sha256:1"})) == ["docker rm old"]


def test_an_image_with_a_name_of_another_program_stays() -> None:
    assert going(disk(images=(image(TAG, "mine:1"),))) == ["docker rm old"]


def test_an_image_that_has_lost_its_name_goes_by_its_id() -> None:
    assert "docker rmi sha256:1" in going(disk(images=(image(tags=()),)))


@pytest.mark.parametrize("tag", [TAG, "sparkops-candidate/q:1"])
def test_an_image_of_the_last_day_stays_for_its_deploy(tag: str) -> None:
    young = disk(engines=(), used={}, images=(image(tag, named_s=NOW_S - 23 * 3600),))

    assert going(young) == []
    assert f"docker rmi {tag}" in going(replace(young, now_s=NOW_S + 2 * 3600))


def test_a_cache_stays_as_long_as_a_container_of_its_release() -> None:
    removed_by_hand = disk(images=(), used={})

    assert going(removed_by_hand, active=at()) == [f"docker volume rm {MARK}"]


def test_a_mark_goes_with_the_image_of_its_id() -> None:
    rebuilt = disk(images=(image(id="sha256:2"),), used={"old": "sha256:2"})

    assert going(rebuilt, active=at()) == [f"docker volume rm {MARK}"]
