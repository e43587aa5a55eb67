"""A recipe over another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import overlay, recipe, recipe_file
from sparkops.config.lock import Lock, Parent, fingerprint
from sparkops.config.release import Release
from sparkops.config.source import Source
from sparkops.errors import ConfigError
from tests.examples import INPUTS, RECIPE

BASE = {
    **RECIPE,
    "name": "base",
    "serve": {
        "args": {"max-model-len": 1024, "lora-modules": ["a", "b"]},
        "env": {"A": "1"},
        "port": 9000,
        "allow": ["A", "B", "lora-modules"],
    },
    "expected": {"tok_s": 20.0, "source": "somebody"},
}
OWN = {"name": "q", "extends": "base", "description": "A variant", "verified": "nothing yet"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, data: dict[str, Any]) -> Path:
    file = Path(f"{name}.yaml")
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return file


def load(own: dict[str, Any], base: dict[str, Any] = BASE) -> recipe.Recipe:
    write("base", base)
    return recipe_file.load(write("q", {**OWN, **own}))


def mistake(own: dict[str, Any], base: dict[str, Any] = BASE) -> str:
    with pytest.raises(ConfigError) as caught:
        load(own, base)
    return str(caught.value)


def line(file: str, text: str) -> int:
    """The line on which a text stands."""
    return next(n for n, row in enumerate(Path(file).read_text().splitlines(), 1) if text in row)


@pytest.mark.parametrize(
    ("base", "own", "merged"),
    [
        ({"a": 1, "b": 2}, {"b": 3, "c": 4}, {"a": 1, "b": 3, "c": 4}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": {"x": 1}}, {"a": None}, {}),
        ({"a": {"x": 1}}, {"a": {"x": None}}, {"a": {}}),
        ({}, {"a": None}, {"a": None}),
        ({"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"a": {"x": 1}}, {"a": 1}, {"a": 1}),
    ],
    ids=str,
)
def test_mappings_are_merged_and_other_values_replaced(base: object, own: object, merged: object) -> None:
    assert overlay.merge(base, own) == merged


def test_a_variant_is_its_base_and_what_it_says_itself() -> None:
    loaded = load({"serve": {"args": {"max-num-seqs": 2, "lora-modules": None}, "env": {"B": "2"}}})

    assert loaded.serve.args == {"max-model-len": 1024, "max-num-seqs": 2}
    assert (loaded.serve.env, loaded.serve.port, loaded.extends) == ({"A": "1", "B": "2"}, 9000, "base")


def test_what_was_measured_or_said_of_the_base_is_not_said_of_the_variant() -> None:
    loaded = load({})

    assert (loaded.description, loaded.expected) == ("A variant", None)


@pytest.mark.parametrize("key", ["description", "verified"])
def test_a_variant_speaks_for_itself(key: str) -> None:
    write("base", BASE)
    file = write("q", {name: value for name, value in OWN.items() if name != key})

    with pytest.raises(ConfigError, match=rf"^q\.yaml:1: {key}: missing, but required$"):
        recipe_file.load(file)


def test_a_variant_of_a_variant_has_all_of_both() -> None:
    write("base", BASE)
    write("middle", {**OWN, "name": "middle", "serve": {"port": 9001}, "expected": {"tok_s": 1.0, "source": "x"}})
    loaded = recipe_file.load(write("q", {**OWN, "extends": "middle", "serve": {"shm_gib": 2}}))

    assert (loaded.serve.port, loaded.serve.shm_gib, loaded.serve.env) == (9001, 2.0, {"A": "1"})
    assert loaded.expected is None


def test_a_mistake_is_told_where_it_stands() -> None:
    base = {**BASE, "memory": {"claim_gib": 10.0, "basiss": "a guess"}}

    assert mistake({"serve": {"shm_gib": 2}}, base) == (
        f"base.yaml:{line('base.yaml', 'basiss')}: memory.basiss: unknown key, did you mean 'basis'?"
    )
    assert mistake({"serve": {"shm_gb": 2}}) == (
        f"q.yaml:{line('q.yaml', 'shm_gb')}: serve.shm_gb: unknown key, did you mean 'shm_gib'?"
    )
    assert mistake({"serve": {"port": 80}}).startswith(
        f"q.yaml:{line('q.yaml', 'port')}: serve.port: expected at least"
    )


def test_a_mistake_two_files_below_is_told_there() -> None:
    write("base", {**BASE, "memory": {"claim_gib": "much", "basis": "a guess"}})
    write("middle", {**OWN, "name": "middle"})

    with pytest.raises(ConfigError, match=r"^base\.yaml:\d+: memory\.claim_gib: expected a number of GiB"):
        recipe_file.load(write("q", {**OWN, "extends": "middle"}))


def test_a_mistake_without_a_known_line_is_reported_in_line_1() -> None:
    assert str(Source(Path("q.yaml")).fail(("serve",), "broken")) == "q.yaml:1: serve: broken"


def test_what_is_missing_from_a_mapping_is_told_where_the_mapping_stands() -> None:
    base = {**BASE, "memory": {"claim_gib": 10.0}}

    assert mistake({}, base) == f"base.yaml:{line('base.yaml', 'memory:')}: memory.basis: missing, but required"


def test_a_change_for_one_time_goes_over_all() -> None:
    write("base", BASE)
    loaded = recipe_file.load(write("q", OWN), set_=["args.max-model-len=2048", "env.A=3"])

    assert (loaded.serve.args["max-model-len"], loaded.serve.env) == (2048, {"A": "3"})


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        ({"q": "q"}, "q.yaml:1: extends: circular: q extends q"),
        ({"q": "a", "a": "q"}, "a.yaml:1: extends: circular: q extends a extends q"),
        ({"q": "a", "a": "b", "b": "a"}, "b.yaml:1: extends: circular: q extends a extends b extends a"),
    ],
)
def test_a_circle_is_refused(chain: dict[str, str], message: str) -> None:
    for name, base in chain.items():
        write(name, {"extends": base, **RECIPE, "name": name})

    with pytest.raises(ConfigError) as caught:
        recipe_file.load(Path("q.yaml"))
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["nothing", "../base", "/etc/passwd"])
def test_a_base_that_is_not_there_is_refused(name: str) -> None:
    assert mistake({"extends": name}) == (
        f"q.yaml:2: extends: recipe {name!r} not found in this directory or among the shipped recipes"
    )


def test_a_base_that_is_no_name_is_refused() -> None:
    write("base", BASE)
    file = write("q", {"extends": 1, **RECIPE})

    with pytest.raises(ConfigError, match=r"^q\.yaml:1: extends: expected text, got 1$"):
        recipe_file.load(file)


def test_a_recipe_may_extend_one_that_comes_with_sparkops() -> None:
    loaded = recipe_file.load(write("q", {**OWN, "extends": "tiny-qwen3-cpu"}))

    assert (loaded.service, loaded.model.id) == ("tiny", "sparkops/tiny-qwen3")


def test_a_release_is_known_by_what_is_merged() -> None:
    def of(own: dict[str, Any], base: dict[str, Any] = BASE) -> str:
        return Release(load(own, base), INPUTS).id

    other = {**BASE, "serve": {**BASE["serve"], "port": 9001}}
    assert of({}) == of({"extends": None} | BASE | {"name": "q"})
    assert of({}, other) == of({"serve": {"port": 9001}}) != of({})
    assert of({}, {**BASE, "verified": "on two nodes"}) == of({})


def test_the_lock_of_the_base_holds_for_a_variant_with_the_same_image() -> None:
    """Both have one image then, and the variant takes no other versions."""
    base = recipe_file.load(write("base", BASE))
    parent = Parent(name=base.image.parent, digest=f"sha256:{'1' * 64}")
    lock = Lock(made_for=fingerprint(base.image), machine="aarch64", parent=parent, whole=True)
    Path("base.lock").write_text(recipe_file.lock_text("base", lock))

    same, changed = load({"serve": {"shm_gib": 2}}), load({"image": {"apt": ["less"]}})

    assert same.lock == lock == recipe_file.load(Path("base.yaml")).lock
    assert same.lock_file == Path("base.lock")
    assert same.image.base == f"{base.image.base}@sha256:{'1' * 64}"
    assert (changed.lock, changed.lock_file) == (None, Path("q.lock"))


def test_an_own_lock_of_another_image_is_stale_even_if_that_of_the_base_holds() -> None:
    lock = Lock(made_for="0" * 64, machine="aarch64", parent=Parent(name="x"), whole=True)
    Path("q.lock").write_text(recipe_file.lock_text("q", lock))

    assert mistake({}).startswith("q.lock:1: made_for: `image` of q has changed since the lock")
