"""What a directory must be, and what a copy has to send."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.node.progress import amount
from sparkops.operator.build.weights import plan as models
from sparkops.operator.build.weights.checkpoint import MARKER, Checkpoint, Origin, Shard
from sparkops.operator.build.weights.plan import RequiredModel
from tests.examples import CHECKPOINT

WANTED = RequiredModel("q", "org/q")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {"config.json": (2, 1), "a.safetensors": (100, 2), "b.safetensors": (200, 3)}
SOURCE = Checkpoint("q", FILES, {name: Shard(size, size) for name, (size, _) in FILES.items() if name[0] in "ab"})


def from_hub(revision: str | None = None, commit: str = COMMIT, model: str = "org/q") -> Checkpoint:
    return replace(CHECKPOINT, origin=Origin(model, revision, commit), commit=commit)


def made_by(digest: str) -> Checkpoint:
    return replace(CHECKPOINT, origin=Origin("org/q", steps=digest))


@pytest.mark.parametrize(
    ("model", "checkpoint"),
    [
        (WANTED, CHECKPOINT),
        (WANTED, from_hub()),
        (replace(WANTED, revision=COMMIT), from_hub()),
        (replace(WANTED, revision=COMMIT[:7]), from_hub()),
        (replace(WANTED, revision="v2"), from_hub("v2")),
        (replace(WANTED, revision=COMMIT), CHECKPOINT),  # somebody copied it there: nothing tells what it is
        (replace(WANTED, steps="d1"), made_by("d1")),
    ],
)
def test_what_is_wanted_is_accepted(model: RequiredModel, checkpoint: Checkpoint) -> None:
    assert list(models.refused(model, checkpoint)) == []


@pytest.mark.parametrize(
    ("model", "checkpoint", "reason"),
    [
        (WANTED, None, "not found"),
        (WANTED, replace(CHECKPOINT, files={"model.safetensors": (1, 1)}), "no config.json"),
        (WANTED, from_hub(model="org/other"), f"it is org/other, the recipe needs {WANTED.model}"),
        (
            replace(WANTED, revision="f" * 40),
            from_hub(),
            f"it is revision {COMMIT}, the recipe needs {'f' * 40}",
        ),
        (replace(WANTED, revision="0123"), from_hub(), f"it is revision {COMMIT}, the recipe needs 0123"),
        (replace(WANTED, revision="v2"), from_hub("v1"), f"it is revision {COMMIT}, the recipe needs v2"),
        (
            replace(WANTED, revision="f" * 40),
            replace(CHECKPOINT, commit=COMMIT),  # the hub's own program was used by hand
            f"it is revision {COMMIT}, the recipe needs {'f' * 40}",
        ),
        (replace(WANTED, steps="d1"), made_by("d2"), "it was made by other steps than the recipe's"),
        (replace(WANTED, steps="d1"), CHECKPOINT, "it has no record of the recipe's steps"),
        (WANTED, made_by("d2"), "it was made by steps, and the recipe has none"),
    ],
)
def test_anything_else_is_refused_with_its_reason(
    model: RequiredModel, checkpoint: Checkpoint | None, reason: str
) -> None:
    assert list(models.refused(model, checkpoint)) == [reason]


def test_only_another_model_that_is_whole_may_be_in_use() -> None:
    model = replace(WANTED, revision="f" * 40)
    broken = replace(from_hub(), shards={"model.safetensors": Shard(100, 101)})

    assert models.may_be_in_use(model, from_hub()).startswith("it is revision")
    assert [models.may_be_in_use(model, own) for own in (None, broken, CHECKPOINT)] == ["", "", ""]


def test_many_reasons_are_cut_short() -> None:
    assert models.in_words(iter("abcd")) == "a; b; c; d"
    assert models.in_words(iter("abcdef")) == "a; b; c; d; and more"
    assert models.in_words(iter(())) == ""


def test_an_empty_target_gets_all_of_it() -> None:
    plan = models.plan_copy(SOURCE, None, None)

    assert plan.files == (("config.json", 2, 0, 1), ("a.safetensors", 100, 0, 2), ("b.safetensors", 200, 0, 3))
    assert (plan.sent, plan.keep, plan.fresh, plan.nothing) == (302, (), True, False)


def test_a_target_that_has_all_of_it_gets_nothing() -> None:
    assert models.plan_copy(SOURCE, SOURCE, None).nothing


def test_a_target_gets_what_differs_in_name_or_size_and_keeps_its_own() -> None:
    second = {"a.safetensors": (99, 2), "b.safetensors": (200, 777), "chat.jinja": (5, 5)}
    plan = models.plan_copy(SOURCE, replace(SOURCE, files=second), None)

    assert [name for name, *_ in plan.files] == ["config.json", "a.safetensors"]
    assert (plan.keep, plan.replaced, plan.fresh) == (("b.safetensors", "chat.jinja"), ("a.safetensors",), False)


def test_a_copy_goes_on_where_it_was_interrupted() -> None:
    started = replace(
        SOURCE,
        path="q.partial",
        files={"a.safetensors": (40, 9)},
        identity=models.plan_copy(SOURCE, None, None).identity,
    )

    assert [present for _, _, present, _ in models.plan_copy(SOURCE, None, started).files] == [0, 40, 0]
    assert models.plan_copy(SOURCE, None, started).sent == 262


@pytest.mark.parametrize("change", [(100, 3), (101, 2)], ids=["time", "size"])
def test_what_was_begun_with_something_else_is_not_gone_on_with(change: tuple[int, int]) -> None:
    before = replace(SOURCE, files={**FILES, "a.safetensors": change})
    started = replace(
        SOURCE,
        path="q.partial",
        files={"a.safetensors": (40, 9)},
        identity=models.plan_copy(before, None, None).identity,
    )

    assert models.plan_copy(SOURCE, None, started).sent == 302


def test_with_checksums_the_same_size_is_not_enough() -> None:
    first, second = dict.fromkeys(FILES, "1"), {**dict.fromkeys(FILES, "1"), "a.safetensors": "2"}
    started = replace(SOURCE, path="q.partial", identity=models.plan_copy(SOURCE, None, None).identity)
    plan = models.plan_copy(SOURCE, SOURCE, started, (first, second))

    # What lies in the partial directory may be the target's own wrong file.
    assert plan.files == (("a.safetensors", 100, 0, 2),)
    assert models.plan_copy(SOURCE, SOURCE, None, (first, first)).nothing


@pytest.mark.parametrize(
    ("second", "sent"),
    [
        (Origin("org/q", commit=COMMIT), 0),
        (Origin("org/q", revision="main", commit=COMMIT), 0),
        (Origin("org/q"), 302),
        (None, 302),
        (Origin("org/q", commit="f" * 40), 302),
        (Origin("org/other", commit=COMMIT), 302),
        (Origin("org/q", steps="d1"), 302),
    ],
)
def test_files_of_another_model_are_never_the_same(second: Origin | None, sent: int) -> None:
    source = replace(SOURCE, origin=Origin("org/q", commit=COMMIT), commit=COMMIT)
    target = replace(SOURCE, origin=second, commit=second.commit if second else None)

    assert models.plan_copy(source, target, None).sent == sent


def test_files_of_a_commit_that_only_the_hub_s_own_program_has_recorded_are_not_the_same() -> None:
    """Shards of two revisions often have the same names and sizes."""
    source = replace(SOURCE, origin=Origin("org/q", commit=COMMIT), commit=COMMIT)

    assert models.plan_copy(source, replace(SOURCE, commit="f" * 40), None).sent == 302
    assert models.plan_copy(source, replace(SOURCE, commit=COMMIT), None).sent == 0


def test_without_a_record_only_checksums_prove_that_files_are_the_same() -> None:
    """Two fine-tunes of one model have the same names and sizes, and the copy would give one the other's record."""
    source, digests = replace(SOURCE, origin=Origin("org/q", commit=COMMIT), commit=COMMIT), dict.fromkeys(FILES, "1")
    other = {**digests, "b.safetensors": "2"}

    assert models.plan_copy(source, SOURCE, None, (digests, digests)).sent == 0
    assert models.plan_copy(source, SOURCE, None, (digests, other)).sent == 200
    assert models.plan_copy(SOURCE, source, None).nothing  # the copy would write no record


def test_a_record_does_not_stay_over_files_that_are_replaced() -> None:
    files = {**FILES, "a.safetensors": (99, 2), MARKER: (50, 4)}
    target = replace(SOURCE, files=files, origin=Origin("org/q", commit=COMMIT), commit=COMMIT)

    assert models.plan_copy(SOURCE, target, None).keep == ("b.safetensors", "config.json")
    assert models.plan_copy(SOURCE, replace(target, files={**FILES, MARKER: (50, 4)}), None).nothing


def test_nothing_of_another_model_stays_in_its_place() -> None:
    """Its index would stay complete with its own shards, and an engine would load those."""
    source = replace(from_hub(), path="q", files={"config.json": (2, 1), "model.safetensors": (302, 2)})
    other = replace(SOURCE, files={**FILES, "model.safetensors.index.json": (30, 3)}, origin=Origin("org/other"))
    plan = models.plan_copy(source, other, None)

    assert [name for name, *_ in plan.files] == ["config.json", "model.safetensors"]
    assert (plan.keep, plan.replaced) == ((), ("config.json",))


def test_nodes_that_disagree_are_named() -> None:
    other = replace(SOURCE, files={**FILES, "a.safetensors": (99, 2), "chat.jinja": (5, 5)})

    assert list(models.disagreements({"n1": SOURCE, "n2": other})) == [
        "a.safetensors differs between nodes: 100 bytes on n1, 99 bytes on n2"
    ]
    assert list(models.disagreements({"n1": SOURCE, "n2": SOURCE})) == []


def test_room_and_amounts_in_words() -> None:
    assert models.enough_room(10**9, 10**9) == ""
    assert models.enough_room(2**30, 3.5 * 2**30) == "1.0 GiB free, 3.5 GiB needed: 2.5 GiB short"
    assert amount(5 * 2**20, 10 * 2**20, 0, 0.0) == "5.0 of 10.0 MiB"
    assert amount(3 * 2**30, 4 * 2**30, 2 * 2**30, 4.0) == "3.0 of 4.0 GiB, 512 MiB/s"


FILE = replace(CHECKPOINT, files={"q-Q4.gguf": (9, 1)}, shards={})


@pytest.mark.parametrize(
    ("model", "checkpoint", "reasons"),
    [
        (replace(WANTED, files=("q-Q4.gguf",)), FILE, []),
        (replace(WANTED, files=("q-Q8.gguf",)), FILE, ["q-Q8.gguf is missing"]),
        (WANTED, FILE, ["no config.json: it has GGUF files, which the recipe's engine does not load"]),
    ],
)
def test_the_named_gguf_files_are_wanted_and_only_by_an_engine_that_loads_them(
    model: RequiredModel, checkpoint: Checkpoint, reasons: list[str]
) -> None:
    assert list(models.refused(model, checkpoint)) == reasons
