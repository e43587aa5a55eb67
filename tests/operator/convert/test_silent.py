"""What an import once lost or changed without a word: flags, variables, types of keys, and the image of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sparkops.config import recipe_file
from sparkops.errors import ConfigError
from sparkops.foreign import CONTROL
from sparkops.operator.cli import terminal
from sparkops.operator.cli.main import app
from sparkops.operator.convert import command_lines, releases
from tests.operator.convert.originals import HEAD, KEYS, of


def command(*lines: str, head: str = HEAD) -> str:
    return head + "command: |\n" + "".join(f"  {line}\n" for line in lines)


@pytest.mark.parametrize("level", ["-O3", "-O 3", "-O=3"])
def test_a_level_of_optimization_does_not_take_away_the_value_before_it(tmp_path: Path, level: str) -> None:
    conversion = of(tmp_path, command(f"vllm serve a/b --gpu-memory-utilization 0.7 {level}"))

    assert conversion.data["serve"]["args"] == {"gpu-memory-utilization": 0.7, "optimization-level": 3}
    assert conversion.data["memory"]["claim_gib"] == 91
    assert conversion.omissions == []


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("-n2 -r0", {"nnodes": 2, "node-rank": 0}),
        ("--a 1 -x 4", {"a": 1, "-x": 4}),
        ("--a 1 -x=4", {"a": 1, "-x": 4}),
        ("--a -1 -.5", {"a": [-1, -0.5]}),
        ("--a '-x y'", {"a": "-x y"}),
        ("-O x", {"-O": "x"}),
    ],
)
def test_a_word_with_a_dash_is_a_flag_as_in_argparse(line: str, flags: dict[str, Any]) -> None:
    assert dict(command_lines.flags(command_lines.words(line))) == flags


def test_a_short_flag_that_vllm_lacks_is_refused(tmp_path: Path) -> None:
    (part,) = of(tmp_path, command("vllm serve a/b --gpu-memory-utilization 0.7 -x 4")).refusals

    assert (part.line, part.key) == (4, "-x")
    assert part.reason.endswith("has no flag -x")


@pytest.mark.parametrize("word", ['"$model_dir"', "${MODEL}", "'$model_dir'"])
def test_a_variable_of_the_shell_is_no_model(tmp_path: Path, word: str) -> None:
    (part,) = of(tmp_path, command("model_dir=$(mktemp -d)", f"vllm serve {word}")).refusals

    assert (part.line, part.key) == (5, "model")
    assert "variable of the original's shell" in part.reason


def test_a_variable_with_a_value_is_filled_in(tmp_path: Path) -> None:
    text = command(
        "set -e", "MODEL=c/d", "export VLLM_X=1", 'OMP_NUM_THREADS=2 vllm serve "$MODEL" --max-num-seqs ${N:-3}'
    )
    conversion = of(tmp_path, text + "env: {VLLM_DO_NOT_TRACK: 1}\n")

    assert conversion.data["model"]["id"] == "c/d"
    assert conversion.data["serve"]["args"] == {"max-num-seqs": 3}
    assert conversion.data["serve"]["env"] == {"VLLM_DO_NOT_TRACK": "1", "OMP_NUM_THREADS": "2"}
    assert {part.key for part in conversion.losses} == {"model", "env.VLLM_X"}


def test_a_second_server_is_refused(tmp_path: Path) -> None:
    (part,) = of(tmp_path, command("vllm serve a/b --max-num-seqs 2", "vllm serve c/d --max-num-seqs 3")).refusals

    assert (part.line, part.key) == (5, "command")
    assert "second server" in part.reason


def test_a_flag_on_a_line_without_a_backslash_belongs_to_the_command(tmp_path: Path) -> None:
    conversion = of(tmp_path, command("vllm serve a/b", "--max-num-seqs 2", "echo done"))

    assert conversion.data["serve"]["args"] == {"max-num-seqs": 2}
    assert [part.key for part in conversion.losses] == ["'; echo done'"] or conversion.losses


WRONG_VALUES = {
    "--gpu-memory-utilization lots": "gpu-memory-utilization: expected a share of the memory",
    "--gpu-memory-utilization 85": "gpu-memory-utilization: expected a share of the memory",
    "--gpu-memory-utilization 0.7 0.8": "gpu-memory-utilization: expected one value, got 0.7 0.8",
    "--max-model-len -2": "max-model-len: expected a number of tokens",
    "--max-num-seqs many": "max-num-seqs: expected a whole number, got many",
    "--enable-prefix-caching yes": "enable-prefix-caching: expected no value, got yes",
    "--max-num-seqs": "max-num-seqs: expected a value, got none",
    "--kv-cache-dtype “fp8”": "command: “fp8” has typographic quotes",
    "-O 3 --optimization-level 7": "optimization-level: vLLM 0.32.0 rejects the value 7",
    "-tp 0": "tensor-parallel-size: expected a whole number from 1, got 0",
}


@pytest.mark.parametrize(("flag", "why"), WRONG_VALUES.items())
def test_a_value_that_vllm_does_not_read_is_refused(tmp_path: Path, flag: str, why: str) -> None:
    refusals = of(tmp_path, command("vllm serve a/b \\", flag)).refusals

    assert [part.line for part in refusals][:1] == [5]
    assert f"{refusals[0].key}: {refusals[0].reason}".startswith(why)


@pytest.mark.parametrize(
    "flag", ["--max-model-len 32k", "--max-model-len auto", "--cudagraph-capture-sizes 1 2", "--attention-backend auto"]
)
def test_a_value_that_vllm_reads_is_imported(tmp_path: Path, flag: str) -> None:
    assert of(tmp_path, command(f"vllm serve a/b {flag}")).omissions == []


@pytest.mark.parametrize("keys", ["env: []", "mods: {}", "defaults: ''"])
def test_an_empty_key_of_another_type_has_nothing_to_lose(tmp_path: Path, keys: str) -> None:
    assert of(tmp_path, f"{KEYS}{keys}\n").omissions == []


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("mods: {a: b}", "mods: expected a list of directories, got {'a': 'b'}"),
        ("mods: mods/a", "mods: expected a list of directories, got 'mods/a'"),
        ("env: [A=1]", "env: expected a mapping of names to values, got ['A=1']"),
        ("command: 5", "command: expected the text of a command, got 5"),
        ("defaults: 5", "defaults: expected a mapping of names to values, got 5"),
    ],
)
def test_a_key_of_another_type_is_refused(tmp_path: Path, keys: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        of(tmp_path, f"{HEAD}{keys}\n")
    assert f":3: {problem}" in str(refused.value)


def test_names_for_clients_are_aliases(tmp_path: Path) -> None:
    conversion = of(tmp_path, command("vllm serve a/b --served-model-name b Org/B gpt 'two words'"))

    assert conversion.data["serve"]["aliases"] == ["Org/B", "gpt"]
    assert [(part.line, part.key) for part in conversion.losses] == [(4, "served-model-name two words")]


IMAGES = {
    "acme/MiniMax-M2.5-AWQ": ("0.23.0", "minimax_m2"),
    "acme/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": ("0.23.0", "nemotron_h"),
    "acme/gemma-4-26B-A4B-it": ("0.23.0", "gemma4"),
    "acme/GLM-4.7-Flash-AWQ-4bit": ("0.23.0", "glm4_moe_lite"),
    "acme/Mistral-Small-4-119B-2603-NVFP4": ("0.23.0", "mistral4"),
    "acme/command-a-plus-w4a4": ("0.32.0", "cohere2_moe"),
    "acme/DeepSeek-V4-Flash": ("0.32.0", "deepseek_v4"),
    "acme/Qwen3.6-27B-FP8": ("0.23.0", "qwen3_5"),
    "acme/Qwen3-8B": ("0.23.0", "qwen3"),
    "acme/Qwen3.8-Flash-Next-NVFP4": ("0.32.0", "qwen4_exp"),
    "acme/Step-3.7-Flash-FP8": ("0.32.0", "step3p7"),
}


@pytest.mark.parametrize(("model", "version", "type_"), [(model, *image) for model, image in IMAGES.items()])
def test_the_image_loads_the_type_of_the_model(tmp_path: Path, model: str, version: str, type_: str) -> None:
    conversion = of(tmp_path, f"model: {model}\n")
    image = conversion.data["image"]

    assert image["vllm"] == f"vllm=={version}"
    assert ("transformers==5.5.3" in image.get("packages", [])) == (version == "0.23.0")
    assert f"loads {type_} since" in conversion.guessed["image"]


def test_a_flag_of_a_newer_vllm_takes_the_image_that_has_it(tmp_path: Path) -> None:
    conversion = of(tmp_path, command("vllm serve a/Qwen3-8B --moe-backend b12x", head="model: a/Qwen3-8B\n"))

    assert conversion.data["image"]["vllm"] == "vllm==0.32.0"
    assert conversion.refusals == []


def test_an_unknown_model_is_named_as_such(tmp_path: Path) -> None:
    assert "unknown which version loads the model" in of(tmp_path, KEYS).guessed["image"]


def test_code_of_the_repository_is_a_choice_where_the_model_needs_it(tmp_path: Path) -> None:
    def parts(model: str) -> list[tuple[str, str]]:
        text = command(f"vllm serve {model} --trust-remote-code", head=f"model: {model}\n")
        return [(part.key, part.kind) for part in of(tmp_path, text).omissions]

    assert parts("a/MiMo-V2.5-NVFP4") == [("trust-remote-code", "refusal")]
    assert parts("a/MiniMax-M2.5") == [("trust-remote-code", "note")]
    assert parts("a/b") == [("trust-remote-code", "loss")]


def test_each_model_type_loads_in_an_image() -> None:
    assert [known for known in releases.TYPES if not any(releases.loads(one, known) for one in releases.RELEASES)] == []


@pytest.mark.parametrize(
    ("quoted", "expected"),
    [
        ("""'{"yarn":{"of":{"n":{factor}}}}'""", {"yarn": {"of": {"n": 2}}}),
        (""" "{\\"yarn\\":{\\"of\\":{\\"n\\":2}}}" """, {"yarn": {"of": {"n": 2}}}),
        ("""'{{"yarn":{{"of":{{"n":{factor}}}}}}}'""", {"yarn": {"of": {"n": 2}}}),
    ],
    ids=["plain", "plain, escaped quotes", "escaped"],
)
def test_json_in_version_1_is_read_with_escaped_braces_and_without(
    tmp_path: Path, quoted: str, expected: dict[str, object]
) -> None:
    text = f"{HEAD}defaults: {{factor: 2}}\ncommand: |\n  vllm serve a/b --default-chat-template-kwargs {quoted}\n"
    conversion = of(tmp_path, text)

    assert conversion.data["serve"]["args"] == {"default-chat-template-kwargs": expected}
    assert conversion.refusals == []


@pytest.mark.parametrize(
    ("method", "model", "result"),
    [
        ("nvfp4", "nvidia/Some-Model-NVFP4", "note"),
        ("fp4", "nvidia/Some-Model-NVFP4", "note"),
        ("nvfp4", "a/b", "refusal"),
        ("bits", "nvidia/Some-Model-NVFP4", "refusal"),
        ("modelopt_fp4", "nvidia/Some-Model-NVFP4", ""),
    ],
)
def test_a_method_of_quantization_that_the_checkpoint_states_is_not_needed(
    tmp_path: Path, method: str, model: str, result: str
) -> None:
    text = f"recipe_version: '1'\nmodel: {model}\ncommand: |\n  vllm serve {model} --quantization {method}\n"
    conversion = of(tmp_path, text)

    assert [part.kind for part in conversion.omissions if part.key == "quantization"] == [result] * bool(result)
    assert conversion.data["serve"]["args"] == ({} if result else {"quantization": method})


@pytest.mark.parametrize(("share", "said"), [(0.95, False), (0.97, True)])
def test_a_claim_that_exceeds_a_spark_is_said_with_what_to_do(tmp_path: Path, share: float, said: bool) -> None:
    conversion = of(tmp_path, command(f"vllm serve a/b --gpu-memory-utilization {share}"))

    claim = conversion.data["memory"]["claim_gib"]
    refused = f"; `sparkops plan` refuses {claim} GiB on a Spark, which has 121.7: lower gpu-memory-utilization and"
    assert (refused in conversion.guessed["memory"], claim > 121.7) == (said, said)


def test_sglangs_own_share_exceeds_a_spark_with_what_it_takes_beside(tmp_path: Path) -> None:
    text = "recipe_version: '2'\nmodel: a/b\nruntime: sglang\ncontainer: registry.example/sglang:1\n"
    conversion = of(tmp_path, command("sglang serve --model-path a/b", head=text))

    assert "refuses 122 GiB" in conversion.guessed["memory"]


ABBREVIATED = {
    "--max-num-seq 4 --gpu-memory-util 0.5": {"max-num-seqs": 4, "gpu-memory-utilization": 0.5},
    "--enforce --no-enable-prefix": {"enforce-eager": True, "enable-prefix-caching": False},
    "--max_num_seq=4": {"max-num-seqs": 4},
    "--speculative-conf.method mtp": {"speculative-config.method": "mtp"},
    "--max-num-seq 8 --max-num-seqs 4": {"max-num-seqs": 4},
    "--max-num-seqs 4 --max-num-seq 8": {"max-num-seqs": 8},
}


@pytest.mark.parametrize(("flags", "args"), ABBREVIATED.items())
def test_the_beginning_of_one_flag_is_that_flag_as_in_argparse(
    tmp_path: Path, flags: str, args: dict[str, Any]
) -> None:
    conversion = of(tmp_path, command(f"vllm serve a/b \\\n    {flags}"))

    assert conversion.data["serve"]["args"] == args
    assert conversion.omissions == []


def test_short_beginnings_are_read_and_those_of_several_flags_are_refused(tmp_path: Path) -> None:
    assert of(tmp_path, command("vllm serve a/b -t 2")).data["serve"]["tensor_parallel"] == 2
    conversion = of(tmp_path, command("vllm serve a/b \\", "--max-num 4"))

    assert [(part.line, part.key) for part in conversion.refusals] == [(5, "max-num")]
    assert "reads it as several flags: max-num-active-seqs, max-num-batched-tokens" in conversion.refusals[0].reason


@pytest.mark.parametrize("value", ["-1", "auto", "AUTO"])
def test_vllm_chooses_the_context_in_each_of_its_spellings(tmp_path: Path, value: str) -> None:
    conversion = of(tmp_path, command(f"vllm serve a/b --max-model-len {value}"))

    assert (conversion.data["serve"]["args"], conversion.omissions) == ({"max-model-len": "auto"}, [])


@pytest.mark.parametrize("revision", ["a" * 40, "2.10", "0123456"])
def test_the_commit_that_a_flag_names_is_that_of_the_download(tmp_path: Path, revision: str) -> None:
    flags = f"""--revisio {revision} -sc '{{"method":"dflash","model":"c/d","revision":"{revision}"}}'"""
    data = of(tmp_path, command(f"vllm serve a/b {flags}", head="model: a/b\n")).data

    assert (data["model"]["revision"], data["model"]["draft"]["revision"]) == (revision, revision)
    assert data["serve"]["args"] == {"speculative-config": {"method": "dflash", "model": "/models/d"}}


@pytest.mark.parametrize("line", ["--max-model-len 8192 a/b", "--enforce-eager a/b", "-tp 1 --enforce a/b --seed 1"])
def test_a_model_after_a_flag_is_the_model(tmp_path: Path, line: str) -> None:
    conversion = of(tmp_path, f"command: vllm serve {line}\n")

    assert (conversion.data["model"]["id"], conversion.refusals) == ("a/b", [])


@pytest.mark.parametrize(
    ("model", "container", "version"),
    [
        ("a/Nobody-Knows-9B", "", "0.32.0"),
        ("a/Nobody-Knows-9B", "vllm/vllm-openai:v0.22.1", "0.23.0"),
        ("a/Nobody-Knows-9B", "vllm/vllm-openai:v0.25.1-aarch64", "0.32.0"),
        ("a/Nobody-Knows-9B", "registry.example/mine:0.22.1", "0.32.0"),
        ("a/Nobody-Knows-9B", "eugr/spark-vllm:0.2.1", "0.32.0"),
        ("a/Qwen3-8B", "", "0.23.0"),
        ("a/Qwen3-8B", "vllm/vllm-openai:v0.25.1", "0.32.0"),
        ("a/Qwen3-8B", "x/vllm:0.40.0", "0.23.0"),
    ],
)
def test_a_release_is_as_new_as_the_model_and_the_original_need(
    tmp_path: Path, model: str, container: str, version: str
) -> None:
    """A model that no fact knows may be newer than an old release; what the original runs loads it."""
    conversion = of(tmp_path, f"model: {model}\ncontainer: {container}\n")

    assert conversion.data["image"]["vllm"] == f"vllm=={version}"


NAMED = {
    "google/gemma-4-12B-it": "gemma4_unified",
    "deepseek-ai/DeepSeek-V4.1-Flash": "deepseek_v41",
    "deepseek-ai/DeepSeek-V4-Flash-0731": "deepseek_v4",
    "moonshotai/Kimi-K3": "kimi_k3",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": "nemotron-nas",
    "nvidia/Llama-3.1-Nemotron-Nano-VL-8B-V1": "Llama_Nemotron_Nano_VL",
    "nvidia/Llama-3.1-Nemotron-Nano-8B-v1": "llama",
    "meta-llama/Meta-Llama-3-8B": "llama",
    "acme/DeepSeek-R1-Distill-Llama-70B": "llama",
    "meta-llama/Llama-4-Scout-17B-16E": "llama4",
    "meta-llama/Llama-3.2-11B-Vision": "",
    "Qwen/Qwen3-Omni-30B-A3B-Instruct": "qwen3_omni_moe",
    "Qwen/Qwen3-ASR-1.7B": "qwen3_asr",
    "Qwen/Qwen3.5-Omni-7B": "",
    "Qwen/Qwen3-30B-A3B": "qwen3_moe",
    "Qwen/Qwen3-0.6B": "qwen3",
    "Qwen/Qwen3-Embedding-8B": "qwen3",
    "Qwen/Qwen2.5-VL-7B-Instruct": "qwen2_5_vl",
    "Qwen/Qwen2.5-Coder-32B": "qwen2",
    "zai-org/GLM-4.6V": "glm4v_moe",
    "zai-org/GLM-4.6": "glm4_moe",
    "google/gemma-3n-E4B-it": "gemma3n",
    "nomic-ai/nomic-embed-code": "",
}


@pytest.mark.parametrize(("model", "type_"), NAMED.items())
def test_a_name_that_resembles_a_known_one_is_not_taken_for_it(model: str, type_: str) -> None:
    known = releases.model_type(model)

    assert (known.type if known else "") == type_


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("moonshotai/Kimi-K2.5", "refusal"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", "refusal"),
        ("a/Qwen3-8B", "note"),
    ],
)
def test_code_that_the_tokenizer_or_the_type_needs_is_not_called_needless(
    tmp_path: Path, model: str, kind: str
) -> None:
    text = command(f"vllm serve {model} --trust-remote-code", head=f"model: {model}\n")

    assert [part.kind for part in of(tmp_path, text).omissions] == [kind]


@pytest.mark.parametrize("command_", ["", "command:\n", "command: ' '\n"])
def test_a_recipe_of_version_1_without_a_command_is_cut_off(tmp_path: Path, command_: str) -> None:
    with pytest.raises(ConfigError, match="command: missing, but required in version 1"):
        of(tmp_path, f"{HEAD}{command_}")


HOSTILE = (
    'container: "x\\e]0;t\\a\\u202e"\n',
    '"k\\ney\\e[2J": 1\n',
    'mods: ["m\\n\\e[2J"]\n',
    'env: {"A\\nB": "1"}\n',
    'description: "d\\e[2J"\n',
    'served: 1\nrecipe_version: "7\\e"\n',
)


@pytest.mark.parametrize("keys", HOSTILE)
def test_no_word_of_the_author_adds_a_line_or_controls_a_terminal(tmp_path: Path, keys: str) -> None:
    theirs, output = tmp_path / "theirs.yaml", tmp_path / "mine.yaml"
    theirs.write_text(f"model: a/b\n{keys}command: vllm serve a/b\n")

    ran = CliRunner().invoke(app, ["import", str(theirs), "-o", str(output)])

    if ran.exit_code == 0:
        assert not CONTROL.search(output.read_text())
        recipe_file.load(output)
    else:
        assert isinstance(ran.exception, ConfigError)
        assert not CONTROL.search(terminal.visible(str(ran.exception)))
        assert len(str(ran.exception).splitlines()) == 1
    heads = (str(theirs), "service:", "image:", "memory:", "wrote", "the model may")
    assert [line for line in ran.stderr.splitlines() if not line.startswith(heads)] == []


def test_a_token_that_is_not_imported_changes_no_answer(tmp_path: Path) -> None:
    env = "env: {HF_TOKEN: x, NCCL_IB_HCA: $A, MY_MODE: '1'}\n"

    losses = of(tmp_path, f"model: a/b\n{env}").losses
    assert {part.key: part.may_change_answers for part in losses} == {
        "env.HF_TOKEN": False,
        "env.NCCL_IB_HCA": False,
        "env.MY_MODE": True,
    }
