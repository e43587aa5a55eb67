"""`--set KEY=VALUE`: other values for one release."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sparkops.config import recipe_file
from sparkops.config.recipe import Recipe
from sparkops.errors import ConfigError, SparkopsError, UsageError
from sparkops.units import EXPECTED
from tests.examples import RECIPE

SERVE = {"args": {"max-model-len": 32768}, "env": {"A": "b"}, "allow": ["A", "N", "x"]}
FORM = "expected KEY=VALUE, such as env.NAME=x or swap.bake_s=10"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.yaml").write_text(yaml.safe_dump({**RECIPE, "serve": SERVE}, sort_keys=False))


def load(*changes: str) -> Recipe:
    return recipe_file.load(Path("q.yaml"), set_=changes)


def problem(*changes: str) -> SparkopsError:
    with pytest.raises(SparkopsError) as caught:
        load(*changes)
    return caught.value


@pytest.mark.parametrize(
    ("change", "env"),
    [
        ("env.N=x", {"A": "b", "N": "x"}),
        ("env.A=c", {"A": "c"}),
        ("serve.env.N=x", {"A": "b", "N": "x"}),
        ("env.N=5", {"A": "b", "N": "5"}),
        ("env.N=on", {"A": "b", "N": "on"}),
        ("env.N=[1", {"A": "b", "N": "[1"}),
        ("env.N=a=b", {"A": "b", "N": "a=b"}),
        ("env.N=", {"A": "b", "N": ""}),
        ("env={}", {}),
        ("env={N: '5'}", {"N": "5"}),
    ],
)
def test_a_variable_of_the_environment_is_text_as_it_stands(change: str, env: dict[str, str]) -> None:
    assert load(change).serve.env == env


@pytest.mark.parametrize(
    ("change", "args"),
    [
        ("args.max-model-len=1024", {"max-model-len": 1024}),
        ("args.x=text", {"max-model-len": 32768, "x": "text"}),
        ("args.x=true", {"max-model-len": 32768, "x": True}),
        ("args.x='5'", {"max-model-len": 32768, "x": "5"}),
        ("args.x=[1, 2]", {"max-model-len": 32768, "x": [1, 2]}),
        ("args.x={a: 1}", {"max-model-len": 32768, "x": {"a": 1}}),
        ("args.x=2026-11-21", {"max-model-len": 32768, "x": "2026-11-21"}),
        ("args.x.y=1", {"max-model-len": 32768, "x.y": 1}),
        ("serve.args.x.y=1", {"max-model-len": 32768, "x": {"y": 1}}),
        ("args={}", {}),
    ],
)
def test_an_argument_is_yaml(change: str, args: dict[str, object]) -> None:
    assert load(change).serve.args == args


def test_a_key_names_the_whole_way_even_where_the_recipe_says_nothing() -> None:
    changed = load("probe.startup.stall_s=20", "swap.bake_s=1.5", "memory.claim_gib=20", "nodes=[n1, n2]")

    assert (changed.probe.startup.stall_s, changed.swap.bake_s) == (20.0, 1.5)
    assert (changed.memory.claim_gib, changed.memory.basis) == (20.0, "a guess")
    assert changed.nodes == ["n1", "n2"]


def test_the_last_of_several_changes_of_one_key_holds() -> None:
    assert load("swap.bake_s=1", "swap.bake_s=2").swap.bake_s == 2.0


def test_the_file_stays_as_it_is() -> None:
    load("swap.bake_s=1")

    assert load().swap.bake_s == 120.0


@pytest.mark.parametrize("change", ["", "x", "swap", "=1", ".=1", "a..b=1", "env.=1", "args.=1", "x.=1"])
def test_what_is_no_key_with_a_value_is_refused(change: str) -> None:
    error = problem(change)

    assert (type(error), str(error)) == (UsageError, f"--set {change}: {FORM}")


@pytest.mark.parametrize("key", ["service.x", "memory.claim_gib.x", "serve.args.max-model-len.x"])
def test_what_has_no_keys_cannot_be_changed_below(key: str) -> None:
    assert str(problem(f"{key}=1")) == f"--set {key}: unknown key"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("args.x=on", "--set args.x: on is ambiguous in YAML, expected true or false; text needs quotes: 'on'"),
        ("args.x=010", "--set args.x: 010 is ambiguous in YAML, expected a decimal number; text needs quotes: '010'"),
        (
            "args.x=[1, no]",
            "--set args.x: serve.args.x[1]: no is ambiguous in YAML, expected true or false; text needs quotes: 'no'",
        ),
        ("args.x={a: 1, a: 2}", "--set args.x: serve.args.x.a: duplicate key, first on line 1"),
        ("args.x={1: 2}", "--set args.x: expected a text key; put it in quotes"),
        ("image.mods=[a", "--set image.mods: not YAML: a list or mapping in brackets is not closed"),
        ("args.x=a\n---\nb", "--set args.x: not YAML: but found another document"),
        ("args.x=.inf", "--set args.x: expected a finite number, got .inf"),
        ("args.x={a: [.nan]}", "--set args.x: serve.args.x.a[0]: expected a finite number, got .nan"),
        ("swap.bake_s=1.0e+400", "--set swap.bake_s: expected a finite number, got 1.0e+400"),
        (
            f"args.x={2**64}",
            f"--set args.x: expected a whole number of at most 64 bits, got {2**64}",
        ),
        ("args.x=!secret a", "--set args.x: tag '!secret' is not allowed, expected plain values"),
    ],
)
def test_a_value_is_read_as_strictly_as_a_file(change: str, error: str) -> None:
    assert str(problem(change)) == error


def test_a_value_without_end_is_refused() -> None:
    error = problem("args.x={a: &a [*a]}")

    assert isinstance(error, ConfigError)
    assert str(error).startswith("--set args.x: serve.args.x.a[0][0]")
    assert str(error).endswith("too large: expected at most 50 levels and 20000 values")


@pytest.mark.parametrize("value", ["[" * 10_000, "{a: " * 10_000, "- " * 51 + "a"], ids=["list", "mapping", "51"])
def test_a_deep_value_is_refused(value: str) -> None:
    error = problem(f"args.x={value}")

    assert (type(error), str(error)) == (
        ConfigError,
        "--set args.x: nested too deep, expected at most 50 levels",
    )


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("swap.bake_s=x", f"--set swap.bake_s: expected {EXPECTED['s']}; got 'x'"),
        ("swap.bake_s=", f"--set swap.bake_s: expected {EXPECTED['s']}; got nothing"),
        (
            "swap.bake_s=# a while",
            f"--set swap.bake_s: expected {EXPECTED['s']}; got nothing",
        ),
        (
            "swap.bake_s=1e400",
            f"--set swap.bake_s: expected {EXPECTED['s']}; got '1e400'",
        ),
        ("swap.bake_s=1000001", "--set swap.bake_s: expected at most 1000000, got 1000001"),
        ("swap.bake=1", "--set swap.bake: unknown key, did you mean 'bake_s'?"),
        ("memory.claim_gib=-1", "--set memory.claim_gib: expected greater than 0, got -1"),
        ("swop.bake_s=1", "--set swop.bake_s: swop: unknown key, did you mean 'swap'?"),
        ("env.1N=x", "--set env.1N: expected the name of an environment variable, got '1N'"),
        ("model.sources=[{id: x}]", "--set model.sources: model.sources[0].path: missing, but required"),
        ("name=other", "--set name: expected 'q' as in the file's name, got 'other'"),
    ],
)
def test_a_change_is_checked_like_everything_else_and_the_error_names_its_field(change: str, error: str) -> None:
    wrong = problem(change)

    assert (str(wrong), wrong.exit_code) == (error, 2)


def test_a_flag_of_the_engine_without_args_is_told_with_it() -> None:
    error = problem("max-num-seqs=4")

    assert str(error) == "--set max-num-seqs=4: a recipe has no such key"
    assert error.next_step.endswith("--set args.max-num-seqs=4")
