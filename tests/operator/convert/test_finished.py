"""Import for a finished image: what only its own parser can judge is kept, by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sparkops.config import recipe_file
from sparkops.errors import ConfigError, UsageError
from sparkops.operator.cli.main import app
from sparkops.operator.convert.conversion import Choices, Conversion
from tests.operator.convert import originals

IMAGE = "registry.example/theirs:nightly"
OPERATORS = "registry.example/theirs"
"""Its name in `serve.allow`: who gives --use allows it."""


def of(tmp_path: Path, flags: str, *, use: str = IMAGE, keys: str = "", without: str = "") -> Conversion:
    text = f"recipe_version: '1'\nmodel: a/b\ncontainer: theirs\n{keys}command: |\n  vllm serve a/b {flags}\n"
    return originals.of(tmp_path, text, Choices(without.split(), use=use))


def run(tmp_path: Path, *options: str, container: str = "theirs", flags: str = "--fork-mode=fast") -> Exception | None:
    """Import a recipe with a flag of a fork into recipes/a.yaml of `tmp_path`; return the error."""
    file = tmp_path / "theirs.yaml"
    file.write_text(f"model: a/b\ncontainer: {container}\ncommand: vllm serve a/b {flags}\n")
    ran = CliRunner().invoke(app, ["import", str(file), "-o", str(tmp_path / "a.yaml"), *options])
    return None if ran.exit_code == 0 else ran.exception  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("container", "image"),
    [
        ("vllm-node-b12x", "eugr/spark-vllm-b12x:latest"),
        ("ghcr.io/owner/theirs:1", "ghcr.io/owner/theirs:1"),
        ("mine-of-my-own", "IMAGE"),
    ],
)
def test_the_way_names_the_image_that_the_original_runs(tmp_path: Path, container: str, image: str) -> None:
    error = run(tmp_path, container=container)

    assert isinstance(error, ConfigError)
    assert f"theirs.yaml --use {image} -o " in error.next_step


def test_a_flag_of_a_fork_is_refused_with_the_way_to_an_image_that_has_it(tmp_path: Path) -> None:
    error = run(tmp_path)

    assert isinstance(error, ConfigError)
    assert "3: fork-mode: vLLM 0.32.0 has no flag --fork-mode" in str(error)
    assert f"theirs.yaml --use IMAGE -o {tmp_path / 'a.yaml'}; or: Import without it: " in error.next_step


def test_the_way_on_names_the_image_of_the_original_if_a_node_can_pull_it(tmp_path: Path) -> None:
    error = run(tmp_path, container="ghcr.io/theirs/vllm:1")

    assert isinstance(error, ConfigError)
    assert "theirs.yaml --use ghcr.io/theirs/vllm:1" in error.next_step


def test_the_way_on_of_another_refusal_names_no_image(tmp_path: Path) -> None:
    error = run(tmp_path, flags="--max-num-seqs=many")

    assert isinstance(error, ConfigError)
    assert "--use" not in error.next_step


def test_a_flag_of_a_fork_is_kept_by_name_and_reason(tmp_path: Path) -> None:
    conversion = of(tmp_path, "--fork-mode=fast --no-fork-cache --max-num-seqs 4")

    assert conversion.refusals == []
    assert conversion.data["image"] == {"use": IMAGE}
    assert conversion.data["serve"]["args"] == {"fork-mode": "fast", "fork-cache": False, "max-num-seqs": 4}
    assert conversion.data["serve"]["allow"] == ["fork-mode", "fork-cache", OPERATORS]
    assert [(kept.line, kept.key, kept.reason) for kept in conversion.kept][:1] == [
        (5, "fork-mode", "vLLM 0.32.0 has no flag --fork-mode; the parser of the image judges it")
    ]


def test_the_written_recipe_loads_and_states_what_is_kept(tmp_path: Path) -> None:
    assert run(tmp_path, "--use", IMAGE) is None

    text = (tmp_path / "a.yaml").read_text()
    loaded = recipe_file.load(tmp_path / "a.yaml")
    assert loaded.image.use == IMAGE
    assert loaded.serve.allow == ["fork-mode", OPERATORS]
    assert "  # kept (line 3 of theirs.yaml): fork-mode: vLLM 0.32.0 has no flag --fork-mode;" in text
    assert yaml.safe_load(text)["image"] == {"use": IMAGE}


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ("--attention-backend FORK_MLA", "attention-backend"),
        ("--speculative-config.method fork", "speculative-config.method"),
    ],
)
def test_a_value_of_a_fork_is_kept_without_an_opt_in(tmp_path: Path, flags: str, key: str) -> None:
    assert [refusal.key for refusal in of(tmp_path, flags, use="").refusals] == [key]

    conversion = of(tmp_path, flags)
    assert conversion.refusals == []
    assert conversion.data["serve"]["allow"] == [OPERATORS]
    assert [kept.key for kept in conversion.kept] == [key]


def test_a_key_of_a_fork_inside_json_is_kept_by_name(tmp_path: Path) -> None:
    conversion = of(tmp_path, """--speculative-config '{{"method": "mtp", "fork_depth": 2}}'""")

    assert conversion.data["serve"]["allow"] == ["speculative-config.fork_depth", OPERATORS]


@pytest.mark.parametrize(
    ("flags", "key"), [("--trust-remote-code", "trust-remote-code"), ("--grpc-port 5", "grpc-port")]
)
def test_what_vllm_has_itself_still_needs_the_reader_s_opt_in(tmp_path: Path, flags: str, key: str) -> None:
    conversion = of(tmp_path, flags)

    assert conversion.data["serve"]["allow"] == [OPERATORS]
    assert [loss.key for loss in conversion.losses] == [key]


@pytest.mark.parametrize("flags", ["--max-num-seqs=many", "-x 4", "--chat-template none.jinja", "--max-num-seqs"])
def test_a_finished_image_lifts_no_other_refusal(tmp_path: Path, flags: str) -> None:
    assert len(of(tmp_path, flags).refusals) == 1


def test_variables_of_a_fork_are_kept_and_dangerous_ones_are_not(tmp_path: Path) -> None:
    keys = "env: {FORK_FAST: '1', LD_PRELOAD: /x.so, NCCL_DEBUG: INFO}\n"
    conversion = of(tmp_path, "", keys=keys)

    assert conversion.data["serve"]["env"] == {"FORK_FAST": "1", "NCCL_DEBUG": "INFO"}
    assert conversion.data["serve"]["allow"] == ["FORK_FAST", OPERATORS]
    assert [loss.key for loss in conversion.losses] == ["env.LD_PRELOAD"]
    assert [loss.key for loss in of(tmp_path, "", use="", keys=keys).losses][:1] == ["env.FORK_FAST"]


def test_packages_that_the_image_must_have_are_named_and_not_installed(tmp_path: Path) -> None:
    flags = "--load-format instanttensor -tp 2 --distributed-executor-backend ray"
    conversion = of(tmp_path, flags, keys="recipe_version: '2'\n")

    assert conversion.data["image"] == {"use": IMAGE}
    assert [kept.reason.partition("==")[0] for kept in conversion.kept] == [
        "the image must have instanttensor",
        "the image must have ray[default]",
    ]


def test_a_model_that_no_known_release_loads_is_left_to_the_image(tmp_path: Path) -> None:
    text = "model: x/Kimi-K9\ncommand: vllm serve x/MiniMax-M3\n"

    assert originals.of(tmp_path, text, Choices(use=IMAGE)).refusals == []


def test_the_original_s_own_image_is_no_loss(tmp_path: Path) -> None:
    text = f"model: a/b\ncontainer: {IMAGE}\ncommand: vllm serve a/b\n"

    assert originals.of(tmp_path, text, Choices(use=IMAGE)).omissions == []
    assert [note.kind for note in originals.of(tmp_path, text, Choices(use="b/c:1")).omissions] == ["note"]


def test_an_image_that_is_none_is_refused(tmp_path: Path) -> None:
    error = run(tmp_path, "--use", "not an image")

    assert isinstance(error, UsageError)
    assert str(error) == "--use not an image: not an image"


def test_a_flag_of_a_fork_is_kept_with_and_without_values(tmp_path: Path) -> None:
    conversion = of(tmp_path, "--enable-my-scheduler --my-budget 256 --my-list 1 2 --no-my-cache")

    assert conversion.refusals == []
    assert conversion.data["serve"]["args"] == {
        "enable-my-scheduler": True,
        "my-budget": 256,
        "my-list": [1, 2],
        "my-cache": False,
    }


@pytest.mark.parametrize(
    ("flags", "ways"),
    [
        ("-tp 3 --attention-backend MY_FORK", 0),
        ("-tp 2 -pp 2 --attention-backend MY_FORK", 2),
        ("--attention-backend MY_FORK", 2),
        ("--attention-backend MY_FORK --chat-template none.jinja", 2),
        ("--max-num-seqs=many", 1),
    ],
)
def test_each_command_that_a_refusal_proposes_imports_the_recipe(tmp_path: Path, flags: str, ways: int) -> None:
    error = run(tmp_path, flags=flags, container="ghcr.io/theirs/vllm:1")
    assert isinstance(error, ConfigError)

    commands = [way.partition("sparkops ")[2].split() for way in error.next_step.split("; or: ") if "sparkops" in way]
    assert len(commands) == ways
    assert error.next_step
    for words in commands:
        output = tmp_path / "a.yaml"
        output.unlink(missing_ok=True)
        assert CliRunner().invoke(app, words).exit_code == 0, words
