"""What goes from a disk, in which order, and how many bytes are told for it."""

from __future__ import annotations

from dataclasses import replace

from sparkops.prune.plan import Policy, Pruning, plan, remove_image, remove_volume, shrink_build_cache
from sparkops.prune.retention import Intended, Stored, StoredEngine, StoredImage
from tests.prune.test_retention import engine

ALL = Policy(keep=0)
NOTHING = Intended()


def image(number: int, *shared: str) -> StoredImage:
    """Image iN of inputs NNN..., of 100 bytes of its own, and 1000 for each step that it shares."""
    steps = {**dict.fromkeys(shared, 1000), f"own {number}": 100}
    inputs = str(number) * 64
    return StoredImage(f"i{number}", (f"sparkops/q:{inputs[:12]}",), inputs, built_at=float(number), steps=steps)


def old(number: int) -> StoredEngine:
    """A container of that image, of a release of its own."""
    inputs = str(number) * 64
    stored_engine = engine(f"c{number}", image=f"i{number}", release=f"q-000000000{number}", inputs=inputs)
    return replace(stored_engine, created_at=float(number))


def cache(number: int) -> str:
    return f"sparkops-cache-q-{number}{number}{number}" + f"{number}" * 9


NODE = Stored(
    "n1",
    engines=(old(3), old(1), old(2)),
    images=(image(1, "base"), image(2, "base"), image(3, "base")),
    volumes={cache(1): 7, cache(2): 8, "mine": 9},
    cache=500,
    free=1000,
)


def removal_rows(pruning: Pruning) -> list[tuple[str, str, int]]:
    return [(removal.kind, removal.name, removal.size) for removal in pruning.removals]


def test_release_by_release_the_oldest_first_with_what_only_it_has_needed() -> None:
    pruning = plan([NODE], NOTHING, ALL)

    assert removal_rows(pruning) == [
        ("container", "c1", 5),
        ("image", "sparkops/q:111111111111", 100),
        ("volume", cache(1), 7),
        ("container", "c2", 5),
        ("image", "sparkops/q:222222222222", 100),
        ("volume", cache(2), 8),
        ("container", "c3", 5),
        ("image", "sparkops/q:333333333333", 1100),
    ]
    assert str(pruning.removals[0].command) == "docker rm c1"
    assert str(pruning.removals[1].command) == "docker rmi sparkops/q:111111111111"
    assert str(pruning.removals[2].command) == f"docker volume rm {cache(1)}"


def test_the_newest_stay_with_what_they_need() -> None:
    pruning = plan([NODE], NOTHING, Policy(keep=2))

    assert [name for _, name, _ in removal_rows(pruning)] == ["c1", "sparkops/q:111111111111", cache(1)]
    assert [(kept.name, kept.why) for kept in pruning.kept] == [
        ("c3", "one of the newest releases of chat"),
        ("c2", "one of the newest releases of chat"),
        ("sparkops/q:222222222222", "c2 uses it"),
        ("sparkops/q:333333333333", "c3 uses it"),
    ]


def test_bytes_that_an_image_shares_with_one_that_stays_are_not_told() -> None:
    node = replace(NODE, engines=(), volumes={})

    assert removal_rows(plan([node], NOTHING, Policy(keep=1))) == [
        ("image", "sparkops/q:111111111111", 100),
        ("image", "sparkops/q:222222222222", 100),
    ]


def test_two_containers_of_one_image_go_before_it() -> None:
    second = replace(old(1), container=replace(old(1).container, name="c1b", release="q-9999999999"), created_at=9.0)
    node = replace(NODE, engines=(old(1), second), images=(image(1),), volumes={cache(1): 7})

    assert [name for _, name, _ in removal_rows(plan([node], NOTHING, ALL))] == [
        "c1",
        "c1b",
        "sparkops/q:111111111111",
        cache(1),
    ]


def test_what_nobody_needs_goes_first() -> None:
    nameless = replace(image(9), tags=())
    node = replace(NODE, images=(*NODE.images, nameless), volumes={cache(8): 3})

    assert removal_rows(plan([node], NOTHING, ALL))[:2] == [("image", "i9", 100), ("volume", cache(8), 3)]


def test_each_goes_under_the_lock_of_its_service() -> None:
    nameless = replace(image(9), tags=())
    pruning = plan([replace(NODE, images=(*NODE.images, nameless))], NOTHING, ALL)

    assert {removal.name: removal.service for removal in pruning.removals} == {
        **dict.fromkeys(("c1", "c2", "c3"), "chat"),
        **dict.fromkeys((image(number).tags[0] for number in (1, 2, 3)), "chat"),
        **{cache(1): "chat", cache(2): "chat", "i9": ""},
    }


def test_no_more_goes_than_it_takes_to_have_room() -> None:
    assert removal_rows(plan([NODE], NOTHING, replace(ALL, free=1000))) == []
    assert [name for _, name, _ in removal_rows(plan([NODE], NOTHING, replace(ALL, free=1006)))] == [
        "c1",
        "sparkops/q:111111111111",
    ]
    assert len(removal_rows(plan([NODE], NOTHING, replace(ALL, free=10**9)))) == 8


def test_a_build_cache_within_its_bound_is_left_alone() -> None:
    node = replace(NODE, free=None, cache=500)
    *_, removal = plan([node], NOTHING, Policy(keep=0, cache=200)).removals

    assert (removal.kind, removal.size) == ("build cache", 300)
    assert str(removal.command) == "env BUILDX_BUILDER=default docker builder prune --force --all --keep-storage=200"
    assert plan([Stored("n1", cache=500)], NOTHING, Policy(cache=500)).removals == ()
    assert plan([Stored("n1", cache=500)], NOTHING, Policy()).removals == ()


def test_a_build_cache_that_images_share_is_looked_at_after_they_have_gone() -> None:
    [removal] = plan([Stored("n1", cache=10, cache_shared=500)], NOTHING, Policy(cache=100)).removals

    assert (removal.kind, removal.size) == ("build cache", 0)


def test_every_node_is_planned_for_itself() -> None:
    other = replace(NODE, node="n2", engines=(), volumes={})
    pruning = plan([NODE, other], NOTHING, Policy(keep=1))

    assert {kept.node: kept.why for kept in pruning.kept if kept.name == image(3).tags[0]} == {
        "n1": "c3 uses it",
        "n2": "the newest of q",
    }


def test_what_is_removed_is_never_forced() -> None:
    assert str(remove_image(["sparkops/q:1", "sparkops/q:2"])) == "docker rmi sparkops/q:1 sparkops/q:2"
    assert str(remove_volume("sparkops-cache-1")) == "docker volume rm sparkops-cache-1"
    assert (
        str(shrink_build_cache(5)) == "env BUILDX_BUILDER=default docker builder prune --force --all --keep-storage=5"
    )
    assert all(command.changes for command in (remove_image(["a"]), remove_volume("a"), shrink_build_cache(1)))
