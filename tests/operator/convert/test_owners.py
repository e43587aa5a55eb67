"""Recipes as their owners write them: comments, quoted numbers, keys that the other tool adds by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sparkops.errors import ConfigError
from sparkops.operator.cli.main import app
from sparkops.operator.convert import command_lines
from tests.operator.convert.originals import HEAD, of

SPARKRUN = "recipe_version: '2'\nmodel: a/b\nruntime: vllm\n"


def test_sparkrun_appends_the_name_for_clients_to_a_command_without_it(tmp_path: Path) -> None:
    text = SPARKRUN + "defaults: {served_model_name: mine ours}\ncommand: vllm serve {model}\n"

    assert of(tmp_path, text).data["serve"]["aliases"] == ["mine", "ours"]
    assert "aliases" not in of(tmp_path, text.replace("'2'", "'1'")).data["serve"]
    stated = text.replace("{model}", "{model} --served-model-name other")
    assert of(tmp_path, stated).data["serve"]["aliases"] == ["other"]


@pytest.mark.parametrize("command", ["", "command: vllm serve {model}\n"])
def test_replicas_of_sparkrun_are_refused(tmp_path: Path, command: str) -> None:
    (part,) = of(tmp_path, f"{SPARKRUN}defaults: {{data_parallel: 2}}\n{command}").refusals

    assert (part.line, part.key) == (4, "data-parallel-size 2")
    assert of(tmp_path, f"{SPARKRUN}defaults: {{data_parallel: 1}}\n{command}").omissions == []


@pytest.mark.parametrize(
    ("default", "args"),
    [
        ("gpu_memory_utilization: '0.5'", {"gpu-memory-utilization": 0.5}),
        ("max_num_seqs: '8'", {"max-num-seqs": 8}),
        ("enable_prefix_caching: 'true'", {"enable-prefix-caching": True}),
        ("max_model_len:", {}),
    ],
)
def test_a_default_has_the_type_that_the_engine_reads(tmp_path: Path, default: str, args: dict[str, Any]) -> None:
    conversion = of(tmp_path, f"{SPARKRUN}defaults:\n  {default}\n")

    assert conversion.data["serve"]["args"] == args
    assert conversion.omissions == []


def test_names_for_clients_in_one_text_are_several(tmp_path: Path) -> None:
    conversion = of(tmp_path, f"{SPARKRUN}defaults: {{served_model_name: mine a/b}}\n")

    assert conversion.data["serve"]["aliases"] == ["mine", "a/b"]
    assert conversion.omissions == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("vllm serve a/b --max-num-seqs 8 # --enforce-eager", ["--max-num-seqs", "8"]),
        (
            "vllm serve a/b \\\n  --port 8001 # it's mine \\\n  --max-num-seqs 8",
            ["--port", "8001", "--max-num-seqs", "8"],
        ),
        ("vllm serve a/b \\\n  # --port 8001 \\\n  --max-num-seqs 8", ["--max-num-seqs", "8"]),
        ("vllm serve a/b --x 'a # b' --y a#b --z \\# ", ["--x", "a # b", "--y", "a#b", "--z", "#"]),
        ("vllm serve a/b --x 'a\n# b'", ["--x", "a\n# b"]),
    ],
)
def test_a_comment_is_no_word_of_the_command(command: str, words: list[str]) -> None:
    assert command_lines.words(command) == ["vllm", "serve", "a/b", *words]


def test_a_flag_in_a_comment_is_not_the_line_of_the_flag(tmp_path: Path) -> None:
    (part,) = of(tmp_path, f"{HEAD}command: |\n  # --port 1\n  vllm serve a/b \\\n    --port 80 # only for me\n").losses

    assert (part.line, part.key) == (6, "port 80")


def test_a_variable_of_the_command_has_its_line(tmp_path: Path) -> None:
    losses = of(tmp_path, f"{HEAD}command: |\n  export OTHER=x\n  export HF_TOKEN=abc\n  vllm serve a/b\n").losses

    assert {(part.line, part.key) for part in losses} == {(4, "env.OTHER"), (5, "env.HF_TOKEN")}


def test_a_variable_of_the_shell_is_no_slot(tmp_path: Path) -> None:
    conversion = of(
        tmp_path, f"{HEAD}env: {{OMP_NUM_THREADS: 4}}\ncommand: vllm serve a/b --seed ${{OMP_NUM_THREADS}}\n"
    )

    assert conversion.data["serve"]["args"] == {"seed": 4}
    assert conversion.omissions == []


def test_a_runtime_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a runtime of vLLM or SGLang"):
        of(tmp_path, "model: a/b\nruntime: [vllm]\n")


def test_a_count_of_nodes_without_a_value_is_none(tmp_path: Path) -> None:
    assert of(tmp_path, f"{SPARKRUN}min_nodes:\nmax_nodes:\n").omissions == []


@pytest.mark.parametrize("model", ["https://huggingface.co/a/b", "/models/b", "b"])
def test_a_model_that_no_node_can_download_is_stated(tmp_path: Path, model: str) -> None:
    (part,) = of(tmp_path, f"recipe_version: '1'\nmodel: {model}\ncommand: vllm serve {{model}}\n").losses

    assert (part.line, part.reason) == (2, f"{model} is not a repository: expected OWNER/NAME")


def test_the_way_on_keeps_the_options(tmp_path: Path) -> None:
    theirs, output, mods = tmp_path / "theirs.yaml", tmp_path / "mine.yaml", tmp_path / "mods"
    theirs.write_text(f"{HEAD}command: vllm serve a/b --fork-a 1 --chat-template x.jinja\n")
    line = ["import", str(theirs), "-o", str(output), "--mods", str(mods), "--without", "chat-template"]

    error = CliRunner().invoke(app, line).exception

    assert isinstance(error, ConfigError)
    rest = f"-o {output} --mods {mods} --without chat-template"
    assert f"{theirs} --use IMAGE {rest}; or: " in error.next_step
    assert error.next_step.endswith(f"{theirs} --without fork-a {rest}")


def test_a_template_of_the_examples_is_in_a_finished_image(tmp_path: Path) -> None:
    (part,) = of(tmp_path, f"{HEAD}command: vllm serve a/b --chat-template examples/x.jinja\n").refusals

    assert part.unknown


def test_the_way_to_a_file_beside_the_weights_is_complete(tmp_path: Path) -> None:
    (part,) = of(tmp_path, f"{HEAD}command: vllm serve a/b --chat-template y/x.jinja\n").refusals

    assert "`chat-template: /models/PATH/x.jinja`" in part.reason
    assert "`allow: [chat-template]` to `serve`" in part.reason
