"""Import of a start without a recipe: a script, a `docker run` line, a compose file, and what is none of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparkops.errors import ConfigError
from sparkops.operator.cli.main import app
from sparkops.operator.convert import starts
from sparkops.operator.convert.conversion import Choices
from tests.operator.convert.originals import of

SERVE = "vllm serve a/Qwen3-8B --max-num-seqs 4"
RUN = "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.23.0"
COMPOSE = """services:
  one:
    image: vllm/vllm-openai:v0.23.0
    command: --model a/Qwen3-8B --max-num-seqs 4
"""
READ = {
    "a line": SERVE,
    "a script": f"#!/bin/bash\nset -e\n# why\ncd /x && exec {SERVE} \\\n  2>&1 | tee log &\nwait\n",
    "variables of a script": f"MODEL=a/Qwen3-8B\nN=4\nvllm serve $MODEL --max-num-seqs ${{N}}\n# {SERVE}\n",
    "flags in a variable": 'MORE="--max-num-seqs 4"\nvllm serve a/Qwen3-8B $MORE "$@"\n',
    "arguments of the image": f"{RUN} --model a/Qwen3-8B --max-num-seqs 4",
    "the model first": f"sudo {RUN} a/Qwen3-8B --max-num-seqs=4",
    "the server in the image": f"{RUN} bash -c '{SERVE}'",
    "another entrypoint": f"docker run --entrypoint vllm x/y:1 serve{SERVE.removeprefix('vllm serve')}",
    "a script around docker": f"docker rm -f old || true\n{RUN} \\\n  --model a/Qwen3-8B \\\n  --max-num-seqs 4\n",
    "in a command": f"recipe_version: 1\ndefaults: {{n: 4}}\ncommand: {RUN} --model a/Qwen3-8B --max-num-seqs {{n}}\n",
    "compose": COMPOSE,
    "compose with lists": """x-env: &env
  A: 1
services:
  one:
    image: x/y:1
    environment: {<<: *env}
    entrypoint: [bash, -c]
    command:
      - ray start --head && sleep 6 && vllm serve a/Qwen3-8B --max-num-seqs ${N:-4}
  web: {image: nginx}
""",
}


@pytest.mark.parametrize("text", READ.values(), ids=READ)
def test_a_start_of_a_server_is_read(tmp_path: Path, text: str) -> None:
    conversion = of(tmp_path, text)

    assert conversion.refusals == []
    assert conversion.data["model"]["id"] == "a/Qwen3-8B"
    assert conversion.data["serve"]["args"] == {"max-num-seqs": 4}


def test_what_a_container_is_given_is_kept_or_named(tmp_path: Path) -> None:
    options = "-d -p 9000:8000 -v /x:/y -e VLLM_LOGGING_LEVEL=DEBUG -e OTHER -e HF_TOKEN=$HF_TOKEN --env-file e.env"
    conversion = of(tmp_path, f"# mine\ndocker run {options} vllm/vllm-openai:v0.23.0 --model a/Qwen3-8B\n")

    assert conversion.data["serve"] == {"port": 9000, "args": {}, "env": {"VLLM_LOGGING_LEVEL": "DEBUG"}}
    assert {(part.line, part.key, part.kind) for part in conversion.omissions} == {
        (2, "--volume", "note"),
        (2, "env.OTHER", "loss"),
        (2, "env.HF_TOKEN", "loss"),
        (2, "--env-file e.env", "loss"),
        (2, "container", "loss"),
    }
    assert {part.key for part in conversion.losses if part.may_change_answers} == {"env.OTHER", "--env-file e.env"}


def test_a_server_of_sglang_keeps_its_image(tmp_path: Path) -> None:
    text = "docker run lmsysorg/sglang:v1 python3 -m sglang.launch_server --model-path a/b --tp 2 --mem-fraction 0.7"
    data = of(tmp_path, text).data

    assert (data["engine"], data["image"], data["serve"]["tensor_parallel"]) == (
        "sglang",
        {"use": "lmsysorg/sglang:v1"},
        2,
    )
    assert data["serve"]["args"] == {"mem-fraction-static": 0.7}


NOT_READ = {
    "a condition": (f"if [ $1 ]; then\n  {SERVE}\nfi\n", starts.INSIDE),
    "a function": (f"start() {{\n  {SERVE}\n}}\nstart\n", starts.INSIDE),
    "a way out": (f"true || {SERVE}\n", starts.INSIDE),
    "a list": (f'MORE=(--a 1)\n{SERVE} "${{MORE[@]}}"\n', "is a list of the shell"),
    "an output": (f"{SERVE} --port $(port)\n", "is the output of another program"),
    "a here-document": (f"cat <<EOF\n{SERVE}\nEOF\n", "a here-document"),
    "two servers": (f"{SERVE} &\n{SERVE}\n", starts.TWO),
    "an unknown image": ("docker run x/mine:1 --model a/b\n", "unknown what x/mine:1 starts"),
    "an unknown option": (
        "docker run --new-option 1 vllm/vllm-openai --model a/b\n",
        "option that import does not know",
    ),
    "no server in a script": ("#!/bin/sh\nllama-server -m x\n", starts.NO_START),
    "no server in compose": ("services: {web: {image: nginx}}\n", starts.NO_START),
    "an open quote": ("vllm serve 'a/b\n", "No closing quotation"),
    "a manifest": ("apiVersion: v1\nkind: Pod\n---\na: 1\n", "a Kubernetes manifest"),
    "a Dockerfile": ("FROM x\nRUN y\n", "a Dockerfile"),
    "a unit": ("[Service]\nExecStart=x\n", "a systemd unit"),
    "a program": ("import os\nprint(1)\n", "a Python program"),
    "nothing known": ("- a\n", "expected a recipe: a mapping of keys to values"),
    "no model": ("a: b\n", "no model"),
}


@pytest.mark.parametrize(("text", "why"), NOT_READ.values(), ids=NOT_READ)
def test_what_is_not_read_faithfully_is_named_with_the_way_on(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        of(tmp_path, text)

    assert why in str(refused.value)
    assert refused.value.next_step == starts.NEXT


def test_a_value_that_depends_on_the_run_is_unknown(tmp_path: Path) -> None:
    """Neither branch is taken for the one that runs."""
    conditions = ("if [ $1 ]; then\n  M=b/c\nfi\n", "[ $1 ] && M=b/c\n", "M=$(pick a model)\n")
    for condition in conditions:
        conversion = of(tmp_path, f"M=a/b\n{condition}vllm serve $M\n")

        (part,) = conversion.refusals
        assert f"{part.key}: {part.reason}".startswith("model: $M is a variable of the original's shell")


def test_services_of_compose_are_chosen_by_name(tmp_path: Path) -> None:
    text = COMPOSE + COMPOSE.removeprefix("services:\n").replace("one:", "two:").replace("8B", "14B")

    with pytest.raises(ConfigError) as refused:
        of(tmp_path, text)
    assert "several services start a server: one, two" in str(refused.value)
    assert refused.value.next_step == f"sparkops import {tmp_path / 'a.yaml'} --variant one"
    assert of(tmp_path, text, Choices(variant="two")).data["model"]["id"] == "a/Qwen3-14B"


def test_a_start_comes_from_stdin(tmp_path: Path) -> None:
    output = tmp_path / "mine.yaml"
    ran = CliRunner().invoke(app, ["import", "-", "-o", str(output)], input=SERVE)
    large = CliRunner().invoke(app, ["import", "-"], input="x" * (2**20 + 1))

    assert ran.exit_code == 0, ran.output
    assert output.read_text().startswith("# Imported from stdin.")
    assert str(large.exception) == "stdin: larger than 1048576 bytes"


@pytest.mark.parametrize("ranks", [1, 2, 4, 16])
def test_a_start_over_several_nodes_is_imported(tmp_path: Path, ranks: int) -> None:
    file, output = tmp_path / "theirs.sh", tmp_path / "mine.yaml"
    file.write_text(f"{SERVE} -tp {ranks}\n")

    assert CliRunner().invoke(app, ["import", str(file), "-o", str(output)]).exit_code == 0
    assert f"tensor_parallel: {ranks}" in output.read_text() or ranks == 1


UNNAMED = {
    "a parameter": "MODEL=${1:-a/b}\nvllm serve $MODEL\n",
    "a path": "docker run -v /srv:/model vllm/vllm-openai:v0.23.0 --model /model\n",
}


@pytest.mark.parametrize("text", UNNAMED.values(), ids=UNNAMED)
def test_a_model_without_a_name_cannot_be_left_out(tmp_path: Path, text: str) -> None:
    for choices in (Choices(), Choices(without=("model",))):
        (part,) = of(tmp_path, text, choices).refusals
        assert (part.key, part.final) == ("model", True)
        assert "expected OWNER/NAME in its place" in part.reason


@pytest.mark.parametrize(
    ("line", "task"),
    [
        ("vllm serve a/b --task embed", "embedding"),
        ("vllm serve Qwen/Qwen3-Embedding-0.6B", "embedding"),
        ("vllm serve BAAI/bge-reranker-v2-m3", "rerank"),
        ("vllm serve a/b --task generate", None),
    ],
)
def test_the_task_is_that_of_the_flag_or_of_the_name(tmp_path: Path, line: str, task: str | None) -> None:
    conversion = of(tmp_path, f"{line}\n")

    assert not conversion.refusals
    assert (conversion.data["serve"].get("task"), "task" in conversion.data["serve"]["args"]) == (task, False)


def test_a_mistyped_flag_gets_a_near_one_and_one_of_a_fork_none(tmp_path: Path) -> None:
    for flag, meant in (("max-modle-len", "; did you mean --max-model-len?"), ("fork-mode", "")):
        (part,) = of(tmp_path, f"vllm serve a/b --{flag} 8\n").refusals
        assert part.reason.endswith(f"has no flag --{flag}{meant}")
