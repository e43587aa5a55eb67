"""Every rule that keeps something from a prune, alone: what it is about is all that speaks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.facts.stored import Engine, Stored, StoredImage
from sparkops.plan import keep
from sparkops.plan.journal import Front, Journal, Mode, Placed, Retirement, Swap
from sparkops.plan.keep import Around, Intended
from sparkops.plan.prune import Policy, plan
from sparkops.release import Rank, Release, Slot, image_tag, trust_mark
from tests.examples import container, recipe

OLD = "d" * 64
RECIPE = recipe(name="q", service="chat")
RELEASE = Release(RECIPE, OLD).id
FRONT = Front(node="n1", address="10.0.0.1")
NOW_S = 100_000.0


def engine(name: str = "old", **changes: Any) -> Engine:
    """A stopped container of an old release, which Docker would not start again."""
    told = {"name": name, "state": "exited", "restart_policy": "no", "image": "i", **changes}
    return Engine(name, container(Rank(Release(RECIPE, OLD), Slot.BLUE, "n1"), **told), created_at=10.0, written=5)


def image(tag: str | None = image_tag("q", OLD), **changes: Any) -> StoredImage:
    """Its image."""
    made = StoredImage("i", (tag,) if tag else (), OLD, made_at=1.0, steps={"own": 100})
    return replace(made, **changes)


def placed(release: str = RELEASE, **changes: Any) -> Placed:
    told = {"node": "n2", "address": "10.0.0.2", "port": 8001, "container": "elsewhere", "slot": "blue"}
    data = RECIPE.model_dump(mode="json", exclude_none=True)
    return Placed.model_validate({"release": release, "recipe": data, **told, **changes})


def swap(**changes: Any) -> Swap:
    return Swap(deploy="d", mode=Mode.BESIDE, gateway=FRONT, **{"green": placed("other"), **changes})


NAMED: dict[str, dict[str, Any]] = {
    "the active release": {"active": placed()},
    "the previous release": {"previous": placed()},
    "green of a swap": {"swap": swap(green=placed())},
    "blue of a swap": {"swap": swap(blue=placed())},
    "a warm release": {"retirement": Retirement(placed=placed(), gateway=FRONT)},
}
"""Each way in which a journal may name a release."""


def intended(**changes: Any) -> Intended:
    return Intended({"chat": [Journal(service="chat", **changes)]})


def around(*staying: Engine, **changes: Any) -> Around:
    """Nothing that speaks for an image."""
    node = Stored("n1", images=(image(),), now_s=NOW_S)
    return replace(Around(node, staying, Intended(), {}, {}), **changes)


def test_without_any_rule_an_old_release_goes() -> None:
    assert [*keep.engine(engine(), intended(), {})] == []
    assert [*keep.image(image(), around())] == []
    assert [*keep.cache(f"sparkops-cache-{OLD[:12]}", [], [])] == []


@pytest.mark.parametrize("state", ["running", "restarting", "paused"])
def test_what_runs_stays(state: str) -> None:
    assert [*keep.engine(engine(state=state), intended(), {})] == ["it runs"]


def test_what_docker_would_start_again_stays() -> None:
    assert [*keep.engine(engine(restart_policy="always"), intended(), {})] == ["Docker would start it again"]


@pytest.mark.parametrize("what", NAMED)
def test_what_a_journal_names_stays_with_its_image(what: str) -> None:
    journals = intended(**NAMED[what])

    assert [*keep.engine(engine(), journals, {})] == [f"{what} of chat"]
    assert [*keep.image(image(), around(intended=journals))] == [f"{what} of chat"]


def test_another_image_of_the_same_recipe_is_not_that_of_the_named_release() -> None:
    other = image(image_tag("q", "e" * 64), inputs="e" * 64)

    assert [*keep.image(other, around(intended=intended(active=placed())))] == []


def test_a_recipe_that_cannot_be_read_any_more_keeps_all_its_images() -> None:
    stranger = placed("q-0123456789", recipe={"name": "q"})

    assert [*keep.image(image(), around(intended=intended(active=stranger)))] == ["the active release of chat"]


def test_a_service_that_must_not_be_touched_keeps_all_it_has() -> None:
    frozen = Intended(untouchable={"chat": "chat is on hold: a demo"})

    assert [*keep.engine(engine(), frozen, {})] == ["chat is on hold: a demo"]
    assert [*keep.image(image(), around(intended=frozen, services={"q": "chat"}))] == ["chat is on hold: a demo"]
    assert [*keep.image(image(), around(intended=frozen, services={"q": "other"}))] == []


def test_the_newest_releases_of_each_service_stay_wherever_they_are() -> None:
    made = [replace(engine(release=f"q-{at}"), created_at=at) for at in (1.0, 2.0, 3.0)]
    again = replace(engine(release="q-1.0"), created_at=4.0)
    nodes = [Stored("n1", engines=tuple(made)), Stored("n2", engines=(again,))]
    newest = keep.newest(nodes, 2)

    assert newest == {"chat": ["q-1.0", "q-3.0"]}
    assert [*keep.engine(made[2], Intended(), newest)] == ["one of the newest releases of chat"]
    assert [*keep.engine(made[1], Intended(), newest)] == []


def test_an_image_that_a_container_uses_stays_whosever_it_is() -> None:
    used = around(node=Stored("n1", used=frozenset({"i"}), now_s=NOW_S))

    assert [*keep.image(image(), used)] == ["a container uses it"]
    assert [*keep.image(image(), around(engine("mine")))] == ["mine uses it"]


def test_an_image_of_somebody_else_stays() -> None:
    assert [*keep.image(image("mine:1"), around())] == ["not made by sparkops", "it is mine:1 as well"]
    assert [*keep.image(image(None, inputs=""), around())] == ["not made by sparkops"]
    assert [*keep.image(image(tags=(image_tag("q", OLD), "mine:1")), around())] == ["it is mine:1 as well"]


def test_an_image_of_ours_that_has_lost_its_name_goes() -> None:
    assert [*keep.image(image(None), around())] == []


def test_a_young_candidate_stays_and_an_old_one_goes() -> None:
    candidate = "sparkops-candidate/q:1"

    assert [*keep.image(image(candidate, made_at=NOW_S - 60), around())] == ["a build may be at work on it"]
    assert [*keep.image(image(candidate, made_at=NOW_S - 4000), around())] == []


def test_the_newest_image_of_a_recipe_stays() -> None:
    node = Stored("n1", images=(image(), image(image_tag("q", "e" * 64), id="j", made_at=2.0)))

    assert keep.newest_images(node) == {"q": "j"}
    assert [*keep.image(node.images[1], around(newest={"q": "j"}))] == ["the newest of q"]
    assert [*keep.image(node.images[0], around(newest={"q": "j"}))] == []


def test_a_cache_stays_as_long_as_its_image_or_a_container() -> None:
    cache = f"sparkops-cache-{OLD[:12]}"

    assert [*keep.cache(cache, [image()], [])] == ["its image is there"]
    assert [*keep.cache(cache, [], [engine()])] == ["its image is there"]
    assert [*keep.cache(f"sparkops-cache-r-2-{OLD[:12]}", [image()], [])] == ["its image is there"]
    assert [*keep.cache("mine", [], [])] == ["not a cache of sparkops"]


def test_a_mark_of_trust_stays_as_long_as_its_image() -> None:
    mark = trust_mark(image_tag("q-b", OLD), "sha256:" + "c" * 64)

    assert [*keep.cache(mark, [image(id="sha256:" + "c" * 64)], [])] == ["it marks an image as trusted"]
    assert [*keep.cache(mark, [image()], [engine()])] == []


@pytest.mark.parametrize("rule", [*NAMED, "running", "held"])
def test_with_no_number_to_keep_nothing_that_must_stay_goes(rule: str) -> None:
    """Invariant 13, through the whole plan: neither the container nor its image nor its cache."""
    each = engine(state="running") if rule == "running" else engine()
    journals = intended(**NAMED[rule]) if rule in NAMED else Intended(untouchable={"chat": "on hold"})
    node = Stored("n1", (each,), images=(image(),), volumes={f"sparkops-cache-{OLD[:12]}": 7})

    assert plan([node], Intended() if rule == "running" else journals, Policy(keep=0)).removals == ()
    assert len(plan([node], Intended(), Policy(keep=0)).removals) == (0 if rule == "running" else 3)
