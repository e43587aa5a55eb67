"""The verbs about weights as a user meets them, where no node is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operator.cli.conftest import Sparkops

INVENTORY = "nodes:\n  n1: {address: 192.0.2.1}\n  n2: {address: 192.0.2.2}\n"


@pytest.fixture
def inventory(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text(INVENTORY)


@pytest.mark.usefixtures("inventory")
@pytest.mark.parametrize(
    ("mode", "text", "problem", "step"),
    [
        (0o644, "hf_x\n", "token is readable by other users", "next: chmod 600 token"),
        (0o600, "", "token: expected one token", ""),
        (0o600, "HF_TOKEN = hf_x", "token: expected one token", ""),
        (0o600, "\udcff", "token cannot be read: not text", ""),
    ],
)
def test_a_token_file_that_is_not_one_is_refused(
    sparkops: Sparkops, tmp_path: Path, mode: int, text: str, problem: str, step: str
) -> None:
    file = tmp_path / "token"
    file.write_bytes(text.encode(errors="surrogateescape"))
    file.chmod(mode)
    ran = sparkops("models", "pull", "tiny-qwen3-cpu", "--token-file", "token")

    assert (ran.code, ran.out) == (2, "")
    assert f"sparkops: {problem}\n" in ran.err
    assert step in ran.err
    assert "hf_x" not in ran.err


@pytest.mark.usefixtures("inventory")
def test_a_token_file_that_is_not_there_is_named(sparkops: Sparkops) -> None:
    ran = sparkops("models", "pull", "tiny-qwen3-cpu", "--token-file", "nowhere/token")

    assert (ran.code, ran.err) == (2, "sparkops: nowhere/token cannot be read: No such file or directory\n")


@pytest.mark.usefixtures("inventory")
def test_a_copy_needs_somebody_to_copy_to(sparkops: Sparkops) -> None:
    ran = sparkops("models", "copy", "tiny-qwen3-cpu", "--from", "n1", "--to", "n1")

    assert ran.code == 2
    assert "no node to copy to besides n1\n  next: Name others with --to." in ran.err


@pytest.mark.usefixtures("inventory")
@pytest.mark.parametrize(
    "argv",
    [("copy", "tiny-qwen3-cpu", "--from", "n9"), ("verify", "tiny-qwen3-cpu", "--node", "n9"), ("list", "-n", "n9")],
)
def test_a_node_that_the_inventory_does_not_have_is_bad_input(sparkops: Sparkops, argv: tuple[str, ...]) -> None:
    ran = sparkops("models", *argv)

    assert (ran.code, ran.out) == (2, "")
    assert "unknown node 'n9', expected one of: n1, n2" in ran.err


@pytest.mark.usefixtures("inventory")
def test_a_model_without_steps_has_nothing_to_prepare(sparkops: Sparkops) -> None:
    ran = sparkops("models", "prepare", "tiny-qwen3-cpu")

    assert ran.code == 2
    assert "tiny-qwen3-cpu: the recipe has no model.steps\n  next: sparkops models pull tiny-qwen3-cpu" in ran.err
