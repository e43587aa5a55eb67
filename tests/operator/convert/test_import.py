"""Import of recipes of other tools: conversion, and omissions with their lines. The examples are of this project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sparkops.config import recipe_file, shipped
from sparkops.errors import ConfigError, UsageError
from sparkops.operator.cli.main import app
from sparkops.operator.convert import command_lines, other_tools, recipe_keys, releases
from sparkops.operator.convert.conversion import Conversion

EXAMPLES = Path(__file__).parent / "examples"


def convert(file: Path) -> Conversion:
    return other_tools.convert(other_tools.read(file), file.read_text(), "mine")


def of(tmp_path: Path, text: str) -> Conversion:
    (tmp_path / "a.yaml").write_text(text)
    return convert(tmp_path / "a.yaml")


def test_version_1_is_converted() -> None:
    data = convert(EXAMPLES / "one.yaml").data

    assert data["model"] == {"id": "acme/Some-Model-9B", "path": "Some-Model-9B"}
    assert data["service"] == "some-model-9b"
    assert data["serve"] == {
        "port": 9001,
        "tensor_parallel": 2,
        "executor": "mp",
        "args": {
            "gpu-memory-utilization": 0.8,
            "max-model-len": 4096,
            "enable-prefix-caching": True,
            "async-scheduling": False,
            "speculative-config": {"method": "mtp", "num_speculative_tokens": 2},
            "compilation-config.pass_config.fuse_x": "true",
        },
        "env": {"OMP_NUM_THREADS": "3", "VLLM_DO_NOT_TRACK": "true"},
    }
    assert data["memory"]["claim_gib"] == 103


def test_each_omission_has_its_line() -> None:
    assert {(part.line, part.key) for part in convert(EXAMPLES / "one.yaml").omissions} == {
        (34, "{absent}"),
        (24, "mkdir -p /tmp/x &&"),
        (26, "host"),
        (35, "distributed-executor-backend ray"),
        (33, "chat-template"),
        (34, "max-num-seqs"),
        (15, "env.ACME_TOKEN"),
        (16, "env.FROM_SHELL"),
        (6, "container"),
        (9, "mods/of-theirs"),
        (10, "build_args"),
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_key_of_the_defaults_may_have_dashes(tmp_path: Path, version: int) -> None:
    recipe = f"recipe_version: {version}\nmodel: a/b\ndefaults: {{max-num-seqs: 16}}\n"
    conversion = of(tmp_path, f"{recipe}command: vllm serve a/b --max-num-seqs {{max-num-seqs}}\n")

    assert conversion.data["serve"]["args"] == {"max-num-seqs": 16}


def test_version_2_without_a_command_takes_its_defaults() -> None:
    conversion = convert(EXAMPLES / "two.yaml")

    assert conversion.data["model"]["revision"] == "0123abc"
    assert conversion.data["serve"] == {"port": 8000, "args": {"max-num-seqs": 4, "kv-cache-dtype": "fp8"}}
    assert {part.key for part in conversion.omissions} == {
        "container",
        "metadata",
        "pre_exec",
        "executor_config",
        "readiness",
        "a_new_key",
    }
    assert next(part.line for part in conversion.omissions if part.key == "a_new_key") == 22


@pytest.mark.parametrize(("name", "ranks"), [("one", 2), ("two", 1)])
def test_the_written_recipe_loads(tmp_path: Path, name: str, ranks: int) -> None:
    without = ["--without", "chat-template"] if name == "one" else []
    file = str(tmp_path / "mine.yaml")
    ran = CliRunner().invoke(app, ["import", str(EXAMPLES / f"{name}.yaml"), "-o", file, *without])

    assert ran.exit_code == 0, ran.output
    loaded = recipe_file.load(tmp_path / "mine.yaml")
    assert (loaded.name, loaded.serve.tensor_parallel) == ("mine", ranks)
    assert (
        "# guessed: vLLM 0.32.0 with Transformers 5.16.1; unknown which version" in (tmp_path / "mine.yaml").read_text()
    )


def test_the_guessed_image_is_that_of_the_shipped_recipe() -> None:
    shipped = recipe_file.load(Path("recipes/122b-autoround.yaml")).image.model_dump(exclude_defaults=True)
    image = releases.RELEASES[0].image

    assert {key: shipped[key] for key in image} == image


def test_json_has_the_recipe_and_the_omissions() -> None:
    ran = CliRunner().invoke(app, ["import", str(EXAMPLES / "two.yaml"), "--json"])

    printed = json.loads(ran.stdout)
    assert printed["recipe"]["name"] == "two"
    assert {"line": 16, "key": "pre_exec", "why": recipe_keys.SHELL, "may_change_answers": True} in printed[
        "not_carried_over"
    ]
    assert set(printed["guessed"]) == {"service", "image", "memory"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a", ":1: expected a recipe"),
        ("recipe_version: new", ":1: recipe_version: expected 1"),
        (
            "model: a/b\nruntime: llama-cpp",
            ":2: runtime: expected a runtime of vLLM or SGLang: vllm, vllm-distributed, ",
        ),
        ("model: a/b\ncommand: python serve.py", ":2: command: expected `vllm serve MODEL`"),
        ("model: a/b\ncommand: vllm serve 'a", ":2: command: invalid command: No closing quotation"),
        ("defaults: {port: 1}", ":1: no model"),
    ],
)
def test_a_file_that_is_not_a_recipe_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        of(tmp_path, text)
    assert problem in str(refused.value)


@pytest.mark.parametrize("name", ["tiny-qwen3-cpu", "qwen3.5-122b/122b-autoround-mtp1"], ids=["whole", "extends"])
def test_a_recipe_of_sparkops_is_not_converted_once_more(name: str) -> None:
    file = shipped.PACKAGE.parent / f"recipes/{name}.yaml"

    ran = CliRunner().invoke(app, ["import", str(file)])

    assert isinstance(ran.exception, ConfigError)
    assert str(ran.exception) == f"{file}:2: a recipe of sparkops already: nothing to convert"
    assert ran.exception.next_step == f"sparkops recipe show {file}"


def test_a_key_that_cannot_be_left_out_is_answered_with_those_that_can(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("recipe_version: '1'\nmodel: a/b\ncommand: vllm serve a/b --tokenizer c/d\n")

    ran = CliRunner().invoke(app, ["import", str(file), "--without", "tokeniser"])

    assert isinstance(ran.exception, UsageError)
    assert str(ran.exception) == "--without tokeniser: not a flag or key that can be left out"
    assert ran.exception.next_step == "Those of this recipe: tokenizer"


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("--a 1 --b=x", {"a": 1, "b": "x"}),
        ("-dpl=1 -dpb mp", {"data-parallel-size-local": 1, "data-parallel-backend": "mp"}),
        ("-tp 2 --c_d", {"tensor-parallel-size": 2, "c-d": True}),
        ("--sizes 1 2 3", {"sizes": [1, 2, 3]}),
        ("--low -1 --share .5", {"low": -1, "share": 0.5}),
        ("--json '{broken'", {"json": "{broken"}),
        ("first --x", {"": "first", "x": True}),
    ],
)
def test_flags_have_the_values_that_vllm_would_see(line: str, flags: dict[str, Any]) -> None:
    assert dict(command_lines.flags(command_lines.words(line))) == flags


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        ("min_nodes: 4\ncommand: vllm serve a/b -tp 4", {"tensor_parallel": 4}),
        ("max_nodes: 3\ncommand: vllm serve a/b -tp 1 -pp 3", {"pipeline_parallel": 3}),
        ("command: vllm serve a/b -tp 2 -pp 2", {"tensor_parallel": 2, "pipeline_parallel": 2}),
        ("defaults: {tensor_parallel: 8, pipeline_parallel: 2}", {"tensor_parallel": 8, "pipeline_parallel": 2}),
    ],
)
def test_a_recipe_for_several_nodes_has_the_engine_s_own_launcher(
    tmp_path: Path, line: str, sizes: dict[str, int]
) -> None:
    conversion = of(tmp_path, f"model: a/b\n{line}\n")

    assert conversion.data["serve"] == {**sizes, "executor": "mp", "args": {}}
    assert conversion.omissions == []


@pytest.mark.parametrize(
    ("version", "runtime", "executor"), [(2, "vllm-ray", "ray"), (2, "vllm-distributed", "mp"), (1, "vllm", "mp")]
)
def test_ray_is_kept_where_the_original_runs_with_it(tmp_path: Path, version: int, runtime: str, executor: str) -> None:
    command = "vllm serve a/b -tp 4" + (" --distributed-executor-backend ray" if version == 1 else "")
    conversion = of(tmp_path, f"recipe_version: {version}\nmodel: a/b\nruntime: {runtime}\ncommand: {command}\n")

    assert conversion.data["serve"]["executor"] == executor


def test_three_nodes_that_share_heads_are_pointed_to_stages_of_layers(tmp_path: Path) -> None:
    (refusal,) = of(tmp_path, "model: a/b\ncommand: vllm serve a/b -tp 3\n").refusals

    assert (refusal.line, refusal.key) == (2, "tensor-parallel-size 3")
    assert "for 3 nodes set pipeline_parallel: 3" in refusal.reason


LOST = {
    "--override-generation-config .nan": None,
    "--override-generation-config '{\"a\": NaN}'": "expected a finite number",
    "--override-generation-config '[1e400]'": "expected a finite number",
    f"--override-generation-config {'9' * 400}.0": "expected a finite number",
    f"--override-generation-config {2**63}": "expected a whole number of at most 64 bits",
    f"--override-generation-config {'9' * 4300}": "expected a whole number of at most 64 bits",
    "--override-generation-config '" + "[" * 21 + "]" * 21 + "'": "expected at most 20 levels",
    "--override-generation-config '" + "[" * 20 + "]" * 20 + "'": None,
}


@pytest.mark.parametrize(("flag", "why"), LOST.items(), ids=lambda value: str(value)[:30])
def test_a_value_that_no_recipe_may_hold_is_left_out(tmp_path: Path, flag: str, why: str | None) -> None:
    conversion = of(tmp_path, f"model: a/b\ncommand: |\n  vllm serve a/b\n  {flag}\n")

    assert [(part.line, part.key, part.reason) for part in conversion.omissions] == (
        [(4, "override-generation-config", why)] if why else []
    )
    assert ("override-generation-config" in conversion.data["serve"]["args"]) == (why is None)


@pytest.mark.parametrize(
    ("value", "why"),
    [("[" * 60_000, "JSON is nested too deep"), ("9" * 5000, "a number of 5000 digits is too long")],
    ids=["deep", "long"],
)
def test_an_invalid_value_has_its_line(tmp_path: Path, value: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(tmp_path, f"model: a/b\ncommand: |\n  vllm serve a/b --x '{value}'\n")

    assert str(caught.value) == f"{tmp_path}/a.yaml:2: command: invalid command: {why}"


def test_a_command_without_tensor_parallel_size_runs_on_one_node(tmp_path: Path) -> None:
    conversion = of(tmp_path, "model: a/b\ncommand: vllm serve a/b --max-model-len 4096\n")

    assert conversion.data["serve"] == {"args": {"max-model-len": 4096}}
    assert conversion.omissions == []


@pytest.mark.parametrize("flag", ["-tp", "--tensor-parallel-size"])
def test_a_rejected_tensor_parallel_size_has_the_line_of_its_flag(tmp_path: Path, flag: str) -> None:
    conversion = of(tmp_path, f"model: a/b\ncommand: |\n  vllm serve a/b \\\n    {flag} 6\n")

    assert [(part.line, part.key) for part in conversion.omissions] == [(4, "tensor-parallel-size 6")]


def test_doubled_braces_are_braces() -> None:
    assert command_lines.filled("{{{a}}} {b}", {"a": 1}) == ("{1} {b}", ["b"])


DANGEROUS = {
    "--trust-remote-code": "trust-remote-code: runs Python code of the model repository",
    "--trust_remote_code": "trust-remote-code: runs Python code of the model repository",
    "--middleware a.B": "middleware: imports Python code",
    "--worker-extension-cls a.B": "worker-extension-cls: imports Python code",
    "--tool-parser-plugin /models/a.py": "tool-parser-plugin: imports Python code",
    "--allowed-local-media-path=/": "allowed-local-media-path: lets clients read files",
    '--kv-transfer-config \'{"kv_connector_module_path": "a"}\'': "kv-transfer-config: imports Python code",
    "--hf-token hf_abc": "hf-token: looks like a secret",
    '--allowed-origins \'["*", "--port=9999"]\'': "allowed-origins: expected list items that do not begin with a dash",
}


@pytest.mark.parametrize(("flag", "reason"), DANGEROUS.items())
def test_a_flag_that_runs_code_is_listed_and_left_out(tmp_path: Path, flag: str, reason: str) -> None:
    conversion = of(tmp_path, f"model: a/b\ncommand: |\n  vllm serve a/b \\\n    {flag}\n")

    assert [part for part in conversion.omissions if f"{part.key}: {part.reason}".startswith(reason)]
    assert conversion.data["serve"]["args"] == {}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("LD_PRELOAD", "/x.so", "loads shared libraries"),
        ("PYTHONPATH", "/x", "changes which Python code runs"),
        ("HF_HUB_OFFLINE", 0, "lets the engine download"),
        ("VLLM_ALLOW_INSECURE_SERIALIZATION", 1, "unpickles what the engine receives"),
        (
            "NO_SUCH_YET",
            1,
            "is not known to be harmless; to keep it, add it to the new recipe, with `allow: [NO_SUCH_YET]` in `serve`",
        ),
        ("HF_TOKEN", "hf_abc", "looks like a secret"),
        ("OPENAI_API_KEY", "abc", "looks like a secret"),
    ],
)
def test_a_variable_that_runs_code_or_names_a_secret_is_listed_and_left_out(
    tmp_path: Path, name: str, value: object, reason: str
) -> None:
    conversion = of(tmp_path, f"model: a/b\nenv:\n  {name}: {value}\n")

    assert [(part.line, part.key) for part in conversion.omissions] == [(3, f"env.{name}")]
    assert conversion.omissions[0].reason.startswith(reason)
    assert "env" not in conversion.data["serve"]


def test_a_figure_about_tokens_is_no_secret(tmp_path: Path) -> None:
    conversion = of(tmp_path, "model: a/b\nenv: {TOKENIZERS_PARALLELISM: false}\n")

    assert conversion.data["serve"]["env"] == {"TOKENIZERS_PARALLELISM": "false"}


def test_json_names_what_needs_an_opt_in(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("model: a/b\ncommand: vllm serve a/b --trust-remote-code\n")
    ran = CliRunner().invoke(app, ["import", str(tmp_path / "a.yaml"), "--json"])

    assert "`allow: [trust-remote-code]`" in json.loads(ran.stdout)["not_carried_over"][0]["why"]


@pytest.mark.parametrize(
    "text",
    [
        "defaults:\n  a: " + "x" * 300_000 + "\nmodel: a/b\ncommand: vllm serve a/b " + "{a}" * 100_000 + "\n",
        "defaults:\n  a: " + "x" * 40_000 + "\nmodel: a/b\ncommand: vllm serve a/b {a} {a}\n",
        "model: a/b\n\ncommand: vllm serve a/b " + "x" * 70_000 + "\n",
    ],
    ids=["37 GiB", "two", "long"],
)
def test_a_command_that_is_too_large_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"a\.yaml:\d: command: .*larger than 65536 characters with its slots filled$"
    ):
        of(tmp_path, text)


def test_each_slot_without_a_value_is_reported_once(tmp_path: Path) -> None:
    slots = [f"{{s{number}}}" for number in range(2000)]
    conversion = of(tmp_path, f"model: a/b\ncommand: vllm serve a/b {' '.join([*slots, *slots])}\n")

    assert [part.key for part in conversion.omissions][:2000] == slots
    assert len([part for part in conversion.omissions if part.key in slots]) == 2000


@pytest.mark.parametrize("json_", [False, True])
def test_a_secret_beside_vllm_serve_is_not_printed(tmp_path: Path, json_: bool) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("model: a/b\ncommand: ACME_TOKEN=canary-1 run && vllm serve a/b && acme --api-key canary-2 --x\n")

    ran = CliRunner().invoke(app, ["import", str(file), *(["--json"] if json_ else [])])

    assert ran.exit_code == 0, ran.output
    assert "ACME_TOKEN=*** run &&" in ran.output
    assert "&& acme --api-key *** --x" in ran.output
    assert "canary" not in ran.output
