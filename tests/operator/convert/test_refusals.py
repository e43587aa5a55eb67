"""Refusals and losses of an import, and the forms of command lines that it accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sparkops.config import recipe_file
from sparkops.errors import ConfigError, UsageError
from sparkops.operator.cli.main import app
from sparkops.operator.convert.conversion import Choices
from tests.operator.convert.originals import HEAD, KEYS, of


def command(line: str, version: int = 1) -> str:
    return f"recipe_version: '{version}'\nmodel: a/b\ncommand: |\n  {line}\n"


REFUSED = {
    "vllm serve a/b -tp 65": "tensor-parallel-size 65: 65 x 1 nodes, expected at most 16",
    "vllm serve a/b -tp 8 -pp 4": "pipeline-parallel-size 4: 8 x 4 nodes, expected at most 16",
    "vllm serve a/b -pp 0": "pipeline-parallel-size: expected a whole number from 1",
    "vllm serve a/b --data-parallel-size 2": "data-parallel-size 2: not supported",
    "vllm serve a/b --gpu-memory-utilization-gb 200": "vLLM 0.32.0 has no flag --gpu-memory-utilization-gb",
    "vllm serve a/b --disable-log-requests": "vLLM 0.32.0 has no flag --disable-log-requests",
    "vllm serve a/b --reasoning-parser nano_v3": "vLLM 0.32.0 rejects the value nano_v3",
    "vllm serve a/b --kv-cache-dtype nvfp5": "vLLM 0.32.0 rejects the value nvfp5",
    "vllm serve a/b --chat-template unsloth.jinja": "no node has the file unsloth.jinja",
    "vllm serve a/b --tokenizer c/d": "c/d is a second repository; a recipe downloads one model",
    """vllm serve a/b --speculative-config '{{"method":"dflash","model":"/d"}}'""": "/d is a path in the original's",
    """vllm serve a/b --speculative-config '{{"method":"fspark"}}'""": "rejects the method fspark",
    "vllm serve a/b -sc.method fspark": "rejects the method fspark",
    "vllm serve a/b --speculative-config.model /d": "/d is a path in the original's",
    "vllm serve a/b --hf-overrides '{{broken'": "expected JSON, got {broken",
    "vllm serve a/b c/d": "expected one model after `vllm serve`, got a/b c/d",
}


@pytest.mark.parametrize(("line", "why"), REFUSED.items())
def test_a_command_that_cannot_start_is_refused_with_its_line(tmp_path: Path, line: str, why: str) -> None:
    (part,) = of(tmp_path, command(line)).refusals

    assert part.line == 4
    assert why in f"{part.key}: {part.reason}"


@pytest.mark.parametrize(
    ("keys", "line", "field"),
    [
        ("cluster_only: true", 3, "cluster_only"),
        ("min_nodes: 2", 3, "min_nodes"),
        ("min_nodes: many", 3, "min_nodes"),
        ("mode: cluster", 3, "mode"),
        ("solo_only: true\ncommand: vllm serve a/b -tp 2", 3, "solo_only"),
        ("max_nodes: 1\ndefaults: {tensor_parallel: 2}", 3, "max_nodes"),
        ("defaults:\n  tensor_parallel: 4\nmax_nodes: 2", 5, "max_nodes"),
    ],
)
def test_a_count_of_nodes_without_an_equivalent_is_refused(tmp_path: Path, keys: str, line: int, field: str) -> None:
    conversion = of(tmp_path, f"{KEYS}{keys}\n", Choices((field,)))

    assert [(part.line, part.key, part.final) for part in conversion.refusals] == [(line, field, True)]


@pytest.mark.parametrize(
    "keys", ["solo_only: true", "cluster_only: false", "min_nodes: 1\nmax_nodes: 4", "mode: auto", "mods: []"]
)
def test_a_count_of_nodes_that_agrees_is_no_loss(tmp_path: Path, keys: str) -> None:
    assert of(tmp_path, f"{KEYS}{keys}\n").omissions == []


def test_solo_only_of_version_1_runs_on_one_node_as_there(tmp_path: Path) -> None:
    keys = "solo_only: true\ndefaults:\n  tensor_parallel: 2\ncommand: vllm serve a/b -tp {tensor_parallel}\n"
    conversion = of(tmp_path, HEAD + keys)

    assert "tensor_parallel" not in conversion.data["serve"]
    assert [(part.line, part.key, part.kind) for part in conversion.omissions] == [(5, "tensor_parallel 2", "note")]
    assert [part.key for part in of(tmp_path, f"recipe_version: 2\nmodel: a/b\n{keys}").refusals] == ["solo_only"]


@pytest.mark.parametrize("version", ["recipe_version: '4'\n", ""])
def test_any_other_version_is_read_as_sparkrun_reads_it(tmp_path: Path, version: str) -> None:
    """Only "1" has an escape for braces there; authors count their own revisions in this key."""
    conversion = of(
        tmp_path, f"""{version}model: a/b\ncommand: vllm serve a/b -cc '{{"pass_config":{{"fuse_x":true}}}}'\n"""
    )

    assert conversion.data["serve"]["args"] == {"compilation-config": {"pass_config": {"fuse_x": True}}}
    assert [part.key for part in conversion.losses] == (["recipe_version 4"] if version else [])


def test_a_mod_is_named_with_the_flag_that_it_provides(tmp_path: Path) -> None:
    conversion = of(
        tmp_path,
        "model: a/b\nmods:\n  - mods/fix-qwen3.5-chat-template\n  - mods/other\n"
        "command: |\n  vllm serve a/b --chat-template unsloth.jinja\n",
    )

    assert [(part.line, part.key) for part in conversion.losses] == [
        (3, "mods/fix-qwen3.5-chat-template"),
        (4, "mods/other"),
    ]
    assert "it provides --chat-template unsloth.jinja" in conversion.losses[0].reason
    assert "it comes from a mod: give --mods FOLDER" in conversion.refusals[0].reason


def test_a_mod_that_adds_support_of_the_model_is_refused(tmp_path: Path) -> None:
    (part,) = of(tmp_path, f"{KEYS}mods: [mods/step-3.7-flash]\n").refusals

    assert (part.line, part.key) == (3, "mods/step-3.7-flash")


def test_a_loader_that_needs_a_package_gets_it(tmp_path: Path) -> None:
    conversion = of(tmp_path, command("vllm serve a/b --load-format instanttensor"))

    assert conversion.data["image"]["packages"] == ["instanttensor==0.2.2"]
    assert conversion.omissions == []


def test_a_draft_of_the_model_itself_needs_no_second_checkpoint(tmp_path: Path) -> None:
    conversion = of(tmp_path, command("""vllm serve a/b -sc '{{"method": "mtp", "model": "a/b"}}'"""))

    assert conversion.data["serve"]["args"] == {"speculative-config": {"method": "mtp"}}
    assert conversion.omissions == []


def test_a_recipe_with_another_content_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("theirs.yaml").write_text(f"{HEAD}command: vllm serve a/b --max-model-len 4096\n")
    line = ["import", "theirs.yaml", "-o", "recipes/mine.yaml"]
    assert CliRunner().invoke(app, line).exit_code == 0
    again = CliRunner().invoke(app, line)
    edited = Path("recipes/mine.yaml").read_text() + "swap: {bake_s: 5}\n"
    Path("recipes/mine.yaml").write_text(edited)

    refused = CliRunner().invoke(app, line)

    assert again.exit_code == 0, "the same content is no loss"
    assert isinstance(refused.exception, UsageError)
    assert str(refused.exception).startswith("recipes/mine.yaml exists with another content")
    assert refused.exception.next_step == (
        "Move recipes/mine.yaml, then retry; or import to another file and compare: -o recipes/mine-2.yaml"
    )
    assert Path("recipes/mine.yaml").read_text() == edited


def test_the_file_states_what_it_was_imported_without(tmp_path: Path) -> None:
    theirs, output = tmp_path / "theirs.yaml", tmp_path / "mine.yaml"
    theirs.write_text(
        f"{HEAD}container: c:1\nmods: [mods/other]\ncommand: |\n"
        "  vllm serve a/b --trust-remote-code --chat-template x.jinja\n"
    )
    line = ["import", str(theirs), "-o", str(output)]

    refused = CliRunner().invoke(app, line)
    ran = CliRunner().invoke(app, [*line, "--without", "chat-template"])

    assert f"{theirs}:6: chat-template: no node has the file x.jinja" in str(refused.exception)
    assert isinstance(refused.exception, ConfigError)
    way = f"Import without it: sparkops import {theirs} --without chat-template -o {output}"
    assert refused.exception.next_step == way
    assert ran.exit_code == 0, ran.output
    assert "may answer otherwise than with the original, for lack of lines 4, 6:" in ran.output
    text = output.read_text()
    assert "  # not imported (line 6 of theirs.yaml): trust-remote-code: runs Python code" in text
    assert "  # not imported (line 4 of theirs.yaml): mods/other: " in text
    missing = "container, mods/other, chat-template, trust-remote-code"
    assert sorted(recipe_file.load(output).verified.rstrip(".").partition("without: ")[2].split(", ")) == sorted(
        missing.split(", ")
    )


WRITTEN: dict[str, tuple[int, dict[str, Any]]] = {
    "/usr/local/bin/vllm serve a/b --max-num-seqs 2": (1, {"max-num-seqs": 2}),
    "exec vllm serve a/b --max-num-seqs 2 2>&1 | tee x": (1, {"max-num-seqs": 2}),
    "bash -c 'vllm serve a/b --max-num-seqs 2'": (1, {"max-num-seqs": 2}),
    'bash -lc "exec /opt/vllm serve a/b --max-num-seqs 2; sleep 1"': (1, {"max-num-seqs": 2}),
    "python3 -m vllm.entrypoints.openai.api_server --model a/b --max-num-seqs 2": (1, {"max-num-seqs": 2}),
    "python -m vllm.entrypoints.cli.main serve a/b --max-num-seqs 2": (1, {"max-num-seqs": 2}),
    "vllm serve a/b --tensor-parallel-size=1 -q=awq": (1, {"quantization": "awq"}),
    """vllm serve a/b -cc '{"mode":3,"pass_config":{"fuse_x":true}}'""": (
        2,
        {"compilation-config": {"mode": 3, "pass_config": {"fuse_x": True}}},
    ),
    """vllm serve a/b --override-generation-config '{{"top_k": null}}'""": (
        1,
        {"override-generation-config": '{"top_k": null}'},
    ),
    """vllm serve a/b -cc '{{"mode":3}}'""": (2, {"compilation-config": {"mode": 3}}),
    "vllm serve /models/x --max-num-seqs 2": (1, {"max-num-seqs": 2}),
}


@pytest.mark.parametrize(("line", "version", "args"), [(line, *case) for line, case in WRITTEN.items()])
def test_each_form_of_a_command_line_is_accepted(tmp_path: Path, line: str, version: int, args: dict[str, Any]) -> None:
    conversion = of(tmp_path, command(line, version))

    assert conversion.data["serve"]["args"] == args
    assert conversion.data["model"]["id"] == "a/b"
    assert conversion.refusals == []


def test_a_short_flag_may_have_an_equals_sign(tmp_path: Path) -> None:
    assert of(tmp_path, command("vllm serve a/b -tp=2")).data["serve"]["tensor_parallel"] == 2


def test_the_command_decides_which_model_runs(tmp_path: Path) -> None:
    conversion = of(tmp_path, command("vllm serve c/d"))

    assert conversion.data["model"]["id"] == "c/d"
    assert [(part.line, part.key, part.reason) for part in conversion.losses] == [
        (2, "model", "the command serves c/d, not a/b")
    ]


def test_a_model_that_names_no_repository_is_a_loss(tmp_path: Path) -> None:
    (part,) = of(tmp_path, "recipe_version: '2'\nmodel: My-Model\n").losses

    assert (part.line, part.key, part.section) == (2, "model", "model")
    assert "expected OWNER/NAME" in part.reason


@pytest.mark.parametrize("port", ["80", "70000"])
def test_a_port_that_no_service_may_have_is_left_out(tmp_path: Path, port: str) -> None:
    conversion = of(tmp_path, f"{KEYS}defaults:\n  port: {port}\n")

    assert "port" not in conversion.data["serve"]
    assert [(part.line, part.key) for part in conversion.losses] == [(4, f"port {port}")]


ODD = (
    "container: one\ncontainer: two",
    "metadata: {tags: [0731, yes]}",
    "metadata:\n  a: 1\n  a: 2",
    "metadata: {8000: x}",
    "metadata: !theirs {a: 1}",
    "model: a/b",
)


@pytest.mark.parametrize("keys", ODD)
def test_odd_keys_do_not_refuse_a_file_whose_needed_keys_are_clear(tmp_path: Path, keys: str) -> None:
    assert of(tmp_path, f"{KEYS}{keys}\n").data["model"]["id"] == "a/b"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("model: c/d", ":3: model: duplicate key, first on line 2"),
        ("defaults:\n  port: 1\n  port: 2", ":5: defaults.port: duplicate key, first on line 4"),
        ("env: {A: yes}", ":3: env.A: yes is ambiguous in YAML"),
    ],
)
def test_a_needed_key_that_is_unclear_is_refused_with_its_line(tmp_path: Path, keys: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        of(tmp_path, f"{HEAD}{keys}\n")
    assert problem in str(refused.value)


def test_an_error_of_the_new_recipe_has_the_line_of_the_old_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        of(tmp_path, "recipe_version: '2'\nmodel: a/..\n")
    assert f"{tmp_path}/a.yaml:2: service: " in str(refused.value)


def test_an_import_that_lacks_nothing_for_the_model_does_not_warn_of_its_answers(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.yaml"
    theirs.write_text(f"{HEAD}container: c:1\nmaintainer: ann\ncommand: vllm serve a/b --host 0.0.0.0\n")

    ran = CliRunner().invoke(app, ["import", str(theirs)])

    assert ran.exit_code == 0, ran.output
    assert "container: not imported" in ran.output
    assert "may answer otherwise" not in ran.output


def test_a_checkout_is_answered_with_its_recipes(tmp_path: Path) -> None:
    recipes = [tmp_path / "recipes/a.yaml", tmp_path / "recipes/4x/b.yml"]
    for file in (*recipes, tmp_path / "other/c.yaml"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(HEAD)

    ran = CliRunner().invoke(app, ["import", str(tmp_path)])

    assert isinstance(ran.exception, UsageError)
    assert str(ran.exception) == (
        f"{tmp_path} is a directory: expected one recipe. It has:\n  {recipes[1]}\n  {recipes[0]}"
    )


def test_a_file_that_does_not_exist_has_a_next_step(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["import", str(tmp_path / "nope")])

    assert isinstance(ran.exception, UsageError)
    assert str(ran.exception) == f"file not found: {tmp_path / 'nope'}"
    assert ran.exception.next_step.startswith("Correct the path")
