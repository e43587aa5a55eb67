"""Every rule that keeps something from a prune, alone: what it is about is all that speaks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.guard_client.engine_spec import EngineSpec
from sparkops.names import Slot
from sparkops.prune import retention
from sparkops.prune.plan import Policy, plan
from sparkops.prune.retention import Intended, Stored, StoredEngine, StoredImage, Surroundings
from sparkops.release import Rank, Release, image_tag, trust_mark
from sparkops.swap.journal import Journal, Swap
from sparkops.swap.model import Deployment, Mode, Phase, RankSpec, Replica
from tests.examples import container, recipe

OLD = "d" * 64
RECIPE = recipe(name="q", service="chat")
RELEASE = Release(RECIPE, OLD).id
NODE = {"address": "10.0.0.2"}
NOW_S = 100_000.0


def engine(name: str = "old", **changes: Any) -> StoredEngine:
    """A stopped container of an old release, which Docker would not start again."""
    facts = {"name": name, "state": "exited", "restart_policy": "no", "image": "i", **changes}
    return StoredEngine(container(Rank(Release(RECIPE, OLD), Slot.BLUE, "n1"), **facts), created_at=10.0, written=5)


def image(tag: str | None = image_tag("q", OLD), **changes: Any) -> StoredImage:
    """Its image."""
    stored = StoredImage("i", (tag,) if tag else (), OLD, built_at=1.0, steps={"own": 100})
    return replace(stored, **changes)


def at(release: str = RELEASE, inputs: str = OLD, name: str = "old") -> Deployment:
    """Its release, as a journal names it."""
    data = RECIPE.model_dump(mode="json", exclude_none=True)
    spec = EngineSpec(
        recipe=data, inputs=inputs, image="i", slot=Slot.BLUE, index=0, address="10.0.0.2", node=NODE, jobs=1
    )
    ranks = (RankSpec("n1", name, spec=spec.model_dump_json()),)
    return Deployment(release, Slot.BLUE, (Replica(ranks),))


def other() -> Deployment:
    return at("other", "f" * 64, "other")


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


def intended(**changes: Any) -> Intended:
    return Intended({"chat": [Journal("chat", "n1", **changes)]})


def around(*staying: StoredEngine, **changes: Any) -> Surroundings:
    """Nothing that speaks for an image."""
    node = Stored("n1", images=(image(),), now_s=NOW_S)
    return replace(Surroundings(node, staying, Intended(), {}, {}), **changes)


def test_without_any_rule_an_old_release_goes() -> None:
    assert [*retention.engine(engine(), intended(), {})] == []
    assert [*retention.image(image(), around())] == []
    assert [*retention.cache(f"sparkops-cache-{OLD[:12]}", [], [])] == []


@pytest.mark.parametrize("state", ["running", "restarting", "paused"])
def test_what_runs_stays(state: str) -> None:
    assert [*retention.engine(engine(state=state), intended(), {})] == ["running"]


def test_what_docker_would_start_again_stays() -> None:
    assert [*retention.engine(engine(restart_policy="always"), intended(), {})] == ["Docker would restart it"]


@pytest.mark.parametrize("what", NAMED)
def test_what_a_journal_names_stays_with_its_image(what: str) -> None:
    journals = intended(**NAMED[what])

    assert [*retention.engine(engine(), journals, {})] == [f"{what} of chat"]
    assert [*retention.image(image(), around(intended=journals))] == [f"{what} of chat"]


def test_what_a_release_has_left_in_its_former_slot_goes() -> None:
    """It has moved: the journal names its containers of now, and no other one of it can be started again."""
    journals, left = intended(active=at()), engine("left")

    assert [*retention.engine(left, journals, {"chat": [RELEASE]})] == []
    assert [*retention.engine(left, intended(active=other()), {"chat": [RELEASE]})] != []


def test_another_image_of_the_same_recipe_is_not_that_of_the_named_release() -> None:
    other = image(image_tag("q", "e" * 64), inputs="e" * 64)

    assert [*retention.image(other, around(intended=intended(active=at())))] == []


def test_a_recipe_that_cannot_be_read_any_more_keeps_all_its_images() -> None:
    stranger = Deployment("q-0123456789", Slot.BLUE, (Replica((RankSpec("n2", "elsewhere", spec='{"name": "q"}'),)),))

    assert [*retention.image(image(), around(intended=intended(active=stranger)))] == ["the active release of chat"]


def test_a_service_that_must_not_be_touched_keeps_all_it_has() -> None:
    frozen = Intended(untouchable={"chat": "chat is on hold: a demo"})

    assert [*retention.engine(engine(), frozen, {})] == ["chat is on hold: a demo"]
    assert [*retention.image(image(), around(intended=frozen, services={"q": "chat"}))] == ["chat is on hold: a demo"]
    assert [*retention.image(image(), around(intended=frozen, services={"q": "other"}))] == []


def test_the_newest_releases_of_each_service_stay_wherever_they_are() -> None:
    engines = [replace(engine(release=f"q-{at}"), created_at=at) for at in (1.0, 2.0, 3.0)]
    redeployed = replace(engine(release="q-1.0"), created_at=4.0)
    nodes = [Stored("n1", engines=tuple(engines)), Stored("n2", engines=(redeployed,))]
    newest = retention.newest(nodes, 2)

    assert newest == {"chat": ["q-1.0", "q-3.0"]}
    assert [*retention.engine(engines[2], Intended(), newest)] == ["one of the newest releases of chat"]
    assert [*retention.engine(engines[1], Intended(), newest)] == []


def test_an_image_that_a_container_uses_stays_whosever_it_is() -> None:
    used = around(node=Stored("n1", used=frozenset({"i"}), now_s=NOW_S))

    assert [*retention.image(image(), used)] == ["a container uses it"]
    assert [*retention.image(image(), around(engine("mine")))] == ["mine uses it"]


def test_an_image_of_somebody_else_stays() -> None:
    assert [*retention.image(image("mine:1"), around())] == ["not made by sparkops", "also tagged mine:1"]
    assert [*retention.image(image(None, inputs=""), around())] == ["not made by sparkops"]
    assert [*retention.image(image(tags=(image_tag("q", OLD), "mine:1")), around())] == ["also tagged mine:1"]


def test_an_image_of_ours_that_has_lost_its_name_goes() -> None:
    assert [*retention.image(image(None), around())] == []


def test_a_young_candidate_stays_and_an_old_one_goes() -> None:
    candidate = "sparkops-candidate/q:1"

    assert [*retention.image(image(candidate, built_at=NOW_S - 60), around())] == ["a build may use it"]
    assert [*retention.image(image(candidate, built_at=NOW_S - 4000), around())] == []


def test_the_newest_image_of_a_recipe_stays() -> None:
    node = Stored("n1", images=(image(), image(image_tag("q", "e" * 64), id="j", built_at=2.0)))

    assert retention.newest_images(node) == {"q": "j"}
    assert [*retention.image(node.images[1], around(newest={"q": "j"}))] == ["the newest of q"]
    assert [*retention.image(node.images[0], around(newest={"q": "j"}))] == []


def test_a_cache_stays_as_long_as_its_image_or_a_container() -> None:
    cache = f"sparkops-cache-{OLD[:12]}"

    assert [*retention.cache(cache, [image()], [])] == ["its image exists"]
    assert [*retention.cache(cache, [], [engine()])] == ["its image exists"]
    assert [*retention.cache(f"sparkops-cache-r-2-{OLD[:12]}", [image()], [])] == ["its image exists"]
    assert [*retention.cache("mine", [], [])] == ["not a cache of sparkops"]


def test_a_mark_of_trust_stays_as_long_as_its_image() -> None:
    mark = trust_mark(image_tag("q-b", OLD), "sha256:" + "c" * 64)

    assert [*retention.cache(mark, [image(id="sha256:" + "c" * 64)], [])] == ["marks a verified image"]
    assert [*retention.cache(mark, [image()], [engine()])] == []


@pytest.mark.parametrize("rule", [*NAMED, "running", "held"])
def test_with_no_number_to_keep_nothing_that_must_stay_goes(rule: str) -> None:
    """Invariant 13, through the whole plan: neither the container nor its image nor its cache."""
    stored = engine(state="running") if rule == "running" else engine()
    journals = intended(**NAMED[rule]) if rule in NAMED else Intended(untouchable={"chat": "on hold"})
    node = Stored("n1", (stored,), images=(image(),), volumes={f"sparkops-cache-{OLD[:12]}": 7})

    assert plan([node], Intended() if rule == "running" else journals, Policy(keep=0)).removals == ()
    assert len(plan([node], Intended(), Policy(keep=0)).removals) == (0 if rule == "running" else 3)
