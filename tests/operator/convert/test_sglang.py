"""Import of recipes of SGLang, which run in the finished image that the original names, or in that of --use."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparkops.config import recipe_file
from sparkops.config.recipe import Recipe
from sparkops.config.release import Release
from sparkops.errors import ConfigError
from sparkops.operator.build.images.arguments import command_lines
from sparkops.operator.cli.main import app
from sparkops.operator.convert.conversion import IMPORTED, Choices, Conversion
from sparkops.operator.deploy.plan import DeployOptions, plan
from sparkops.operator.deploy.preconditions import Current
from tests.examples import INPUTS, node
from tests.operator.convert import originals
from tests.operator.deploy import pairs

REPOSITORY = "registry.example/sglang"
IMAGE = f"{REPOSITORY}:1"
HEAD = f"recipe_version: '2'\nmodel: acme/Big-27B\nruntime: sglang\ncontainer: {IMAGE}\n"
TWO = f"""{HEAD}model_revision: {"a" * 40}
defaults:
  port: 8123
  host: 0.0.0.0
  tensor_parallel: 2
  share: 0.7
command: |
  python3 -m sglang.launch_server \\
    --model-path {{model}} --tp {{tensor_parallel}} \\
    --nnodes 2 --node-rank $RANK --dist-init-addr 10.0.0.1:5000 \\
    --served-model-name big --host {{host}} --port {{port}} --enable-metrics \\
    --mem-fraction-static {{share}} --context-length 65536 \\
    --cuda-graph-bs 1 2 4 --json-model-override-args '{{"a": {{"b": 1}}}}'
"""


def of(tmp_path: Path, flags: str, *, keys: str = "", choices: Choices = IMPORTED) -> Conversion:
    """Convert a command of SGLang with these flags on line 6, or later by the lines of `keys`."""
    return originals.of(
        tmp_path, f"{HEAD}{keys}command: |\n  sglang serve --model-path acme/Big-27B {flags}\n", choices
    )


def written(tmp_path: Path, text: str) -> Recipe:
    """Import a recipe as a file, allow its image, and return what loads from it."""
    theirs, output = tmp_path / "theirs.yaml", tmp_path / "mine.yaml"
    theirs.write_text(text)
    ran = CliRunner().invoke(app, ["import", str(theirs), "-o", str(output)])
    assert ran.exit_code == 0, ran.output
    output.write_text(output.read_text().replace("serve:\n", f"serve:\n  allow: [{REPOSITORY}]\n"))
    return recipe_file.load(output)


def test_the_image_of_the_author_is_named_and_not_allowed(tmp_path: Path) -> None:
    theirs, output = tmp_path / "theirs.yaml", tmp_path / "mine.yaml"
    theirs.write_text(TWO)
    ran = CliRunner().invoke(app, ["import", str(theirs), "-o", str(output)])
    printed = CliRunner().invoke(app, ["import", str(theirs), "--json"])

    assert f"image.use: {REPOSITORY} is an image that sparkops does not know" in ran.stderr
    assert f"if you trust it, write `allow: [{REPOSITORY}]` below `serve`" in ran.stderr
    assert [code["name"] for code in json.loads(printed.stdout)["code"]] == [REPOSITORY]
    with pytest.raises(ConfigError, match=rf"mine\.yaml:\d+: image\.use: .* `allow: \[{REPOSITORY}\]`"):
        recipe_file.load(output)


def test_what_sparkops_sets_itself_comes_from_its_keys(tmp_path: Path) -> None:
    data = originals.of(tmp_path, TWO).data

    assert (data["engine"], data["service"], data["image"]) == ("sglang", "big", {"use": IMAGE})
    assert data["model"] == {"id": "acme/Big-27B", "path": "Big-27B", "revision": "a" * 40}
    assert data["serve"] == {
        "port": 8123,
        "tensor_parallel": 2,
        "executor": "mp",
        "args": {
            "mem-fraction-static": 0.7,
            "context-length": 65536,
            "cuda-graph-bs": [1, 2, 4],
            "json-model-override-args": {"a": {"b": 1}},
        },
    }
    assert data["memory"]["claim_gib"] == round(0.7 * 121.7 + 7.9 + 5.6)


def test_each_flag_that_sparkops_sets_is_listed_with_its_line(tmp_path: Path) -> None:
    conversion = originals.of(tmp_path, TWO)

    assert {(note.line, note.key) for note in conversion.omissions} == {
        (14, "nnodes"),
        (14, "node-rank"),
        (14, "dist-init-addr"),
        (15, "host"),
        (15, "enable-metrics"),
    }
    assert {note.kind for note in conversion.omissions} == {"note"}
    assert conversion.guessed == {"memory": "guessed from mem-fraction-static"}


def test_the_new_recipe_loads_and_a_plan_accepts_it(tmp_path: Path) -> None:
    loaded = written(tmp_path, TWO)

    nodes = {f"n{number}": replace(pairs.joined(number, 110), config=node(gpu="cdi")) for number in (1, 2)}
    chosen = plan(Release(loaded, INPUTS), nodes, Current(), DeployOptions(), pairs.TCP)
    assert [rank.node for rank in chosen.ranks] == ["n1", "n2"]


def test_the_ranks_of_two_nodes_are_those_of_sparkops(tmp_path: Path) -> None:
    for number, line in enumerate(command_lines(written(tmp_path, TWO))):
        ranks = [word for word in line if word.startswith(("--tp", "--nnodes", "--node-rank", "--served"))]
        assert ranks == ["--served-model-name=big", "--tp-size=2", "--nnodes=2", f"--node-rank={number}"]


def test_without_a_command_the_keys_of_defaults_are_flags_of_sglang(tmp_path: Path) -> None:
    keys = {
        "tensor_parallel": "2",
        "gpu_memory_utilization": "0.6",
        "max_model_len": "32768",
        "max_num_seqs": "8",
        "chunked_prefill": "4096",
        "served_model_name": "big",
        "disable_radix_cache": "false",
        "enable_torch_compile": "true",
    }
    text = f"{HEAD}defaults:\n" + "".join(f"  {key}: {value}\n" for key, value in keys.items())
    conversion = originals.of(tmp_path, text)

    assert (conversion.data["service"], conversion.omissions) == ("big", [])
    assert conversion.data["serve"] == {
        "tensor_parallel": 2,
        "executor": "mp",
        "args": {
            "mem-fraction-static": 0.6,
            "context-length": 32768,
            "max-running-requests": 8,
            "chunked-prefill-size": 4096,
            "enable-torch-compile": True,
        },
    }
    assert conversion.lines["serve", "args", "mem-fraction-static"] == 7


@pytest.mark.parametrize(
    "start",
    [
        "sglang serve --model-path acme/Big-27B",
        "exec /opt/venv/bin/sglang serve --model acme/Big-27B",
        "python -m sglang.launch_server --model-path=acme/Big-27B",
        "bash -c 'python3 -m sglang.launch_server --model_path acme/Big-27B'",
        "python3 -m sglang.launch_server --model-path /weights/big",
        "A=1 && python3 -m sglang.launch_server --model-path acme/Big-27B",
    ],
)
def test_each_form_of_a_start_is_read(tmp_path: Path, start: str) -> None:
    data = originals.of(tmp_path, f"{HEAD}command: |\n  {start}\n").data

    assert data["model"] == {"id": "acme/Big-27B", "path": "Big-27B"}
    assert data["serve"] == {"args": {}}


@pytest.mark.parametrize("flag", ["--tp 2", "--tp-size=2", "--tensor-parallel-size 2", "--tensor_parallel_size 2"])
def test_each_name_of_the_number_of_ranks_is_read(tmp_path: Path, flag: str) -> None:
    assert of(tmp_path, flag).data["serve"] == {"tensor_parallel": 2, "executor": "mp", "args": {}}
    stages = {"tensor_parallel": 2, "pipeline_parallel": 2, "executor": "mp", "args": {}}
    assert of(tmp_path, f"{flag} --pp-size 2").data["serve"] == stages


def test_the_variants_solo_and_cluster_are_there_too(tmp_path: Path) -> None:
    assert originals.of(tmp_path, TWO, Choices(variant="solo")).data["serve"].get("tensor_parallel") is None
    assert originals.of(tmp_path, TWO, Choices(variant="cluster")).data["serve"]["tensor_parallel"] == 2


@pytest.mark.parametrize(
    ("names", "service", "lost"),
    [
        ("big acme/Big-27B", "big", ["acme/Big-27B"]),
        ("acme/Big-27B", "big-27b", ["acme/Big-27B"]),
        ("'big acme/big'", "big", ["acme/big"]),
        ("Big", "big", ["Big"]),
        ("big big", "big", []),
        ("/", "big-27b", ["/"]),
    ],
)
def test_the_name_for_clients_is_the_service(tmp_path: Path, names: str, service: str, lost: list[str]) -> None:
    conversion = of(tmp_path, f"--served-model-name {names}")

    assert conversion.data["service"] == service
    assert "aliases" not in conversion.data["serve"]
    assert [(loss.line, loss.key, loss.reason) for loss in conversion.losses] == [
        (6, f"served-model-name {name}", f"SGLang has one name; clients call {service}") for name in lost
    ]


WRONG = {
    "--mem-fraction-static 2": "mem-fraction-static: expected a share of the memory above 0 and up to 1, got 2",
    "--mem-fraction-static lots": "mem-fraction-static: expected a share of the memory above 0 and up to 1, got lots",
    "--mem-fraction-static": "mem-fraction-static: expected a share of the memory above 0 and up to 1, got True",
    "--mem-fraction .": "mem-fraction-static: expected a share of the memory above 0 and up to 1, got .",
    "--context-length many": "context-length: expected a number of tokens, got many",
    "--context-length 0": "context-length: expected a number of tokens, got 0",
    "--tp 65": "tensor-parallel-size 65: 65 x 1 nodes, expected at most 16",
    "--tp 8 --pp 4": "pipeline-parallel-size 4: 8 x 4 nodes, expected at most 16",
    "--dp-size 2": "data-parallel-size 2: not supported",
    "--tokenizer-path c/d": "tokenizer-path: c/d is a second repository",
    "--chat-template theirs.jinja": "chat-template: no node has the file theirs.jinja",
    "--json-model-override-args '{broken'": "json-model-override-args: expected JSON, got {broken",
    "--speculative-draft-model-path /d": "speculative-draft-model-path: expected OWNER/NAME of a draft model, got /d",
    "--speculative-draft-model-path a b": "speculative-draft-model-path: expected OWNER/NAME of a draft model, got",
    "-x 4": "-x: SGLang has no flag -x",
    "&& sglang serve --model-path c/d": "command: a second server in one command",
}


@pytest.mark.parametrize(("flags", "why"), WRONG.items())
def test_a_command_that_cannot_start_is_refused_with_its_line(tmp_path: Path, flags: str, why: str) -> None:
    (refusal,) = of(tmp_path, flags).refusals

    assert refusal.line == 6
    assert f"{refusal.key}: {refusal.reason}".startswith(why)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--trust-remote-code", "trust-remote-code: runs Python code of the model repository; to keep it, add it"),
        (
            "--enable-dp-attention",
            "enable-dp-attention: opens ports; to keep it, add it to the new recipe, with `allow:",
        ),
        ("--grpc-port 5", "grpc-port: opens ports"),
        ("--chat-template chatml", "chat-template: reads a file or directory named in its value"),
        ("--lora-paths a=/x", "lora-paths: reads a file or directory named in its value"),
        ("--custom-weight-loader a.B", "custom-weight-loader: imports Python code named in its value"),
        ("--api-key canary", "api-key: looks like a secret"),
        ("--admin-api canary", "admin-api-key: looks like a secret"),
        ("--page-size {absent}", "page-size: no value for {absent}"),
    ],
)
def test_what_runs_code_or_opens_ports_or_files_is_listed_with_its_line(tmp_path: Path, flags: str, why: str) -> None:
    conversion = of(tmp_path, flags)

    assert conversion.data["serve"] == {"args": {}}
    assert [(loss.line, f"{loss.key}: {loss.reason}".startswith(why)) for loss in conversion.losses] == [(6, True)]
    assert "canary" not in str(conversion.omissions)


def test_a_flag_of_a_fork_is_kept_by_name(tmp_path: Path) -> None:
    conversion = of(tmp_path, "--fork-mode fast --no-fork-cache", keys="env: {FORK: 1, LD_PRELOAD: /x.so}\n")

    assert conversion.data["serve"] == {
        "args": {"fork-mode": "fast", "fork-cache": False},
        "env": {"FORK": "1"},
        "allow": ["fork-mode", "fork-cache", "FORK"],
    }
    assert [(kept.line, kept.key) for kept in conversion.kept] == [(7, "fork-mode"), (7, "fork-cache"), (5, "env.FORK")]
    assert [loss.key for loss in conversion.losses] == ["env.LD_PRELOAD"]


@pytest.mark.parametrize(
    ("flags", "keys"),
    [
        ("--speculative-draft-model-revision c0ffee --speculative-draft-model-path acme/Draft", ""),
        ("--speculative-draft-model-revision c0ffee --speculative-draft-model-path /d", "draft_model: acme/Draft\n"),
    ],
)
def test_a_draft_becomes_the_second_checkpoint(tmp_path: Path, flags: str, keys: str) -> None:
    conversion = of(tmp_path, flags, keys=keys)

    assert conversion.data["model"]["draft"] == {"id": "acme/Draft", "path": "Draft", "revision": "c0ffee"}
    assert conversion.data["serve"]["args"] == {"speculative-draft-model-path": "/models/Draft"}
    assert conversion.omissions == []


def test_a_draft_in_the_model_itself_needs_no_second_checkpoint(tmp_path: Path) -> None:
    conversion = of(tmp_path, "--speculative-draft-model-path acme/Big-27B --tokenizer-path acme/Big-27B")

    assert "draft" not in conversion.data["model"]
    assert conversion.data["serve"]["args"] == {"speculative-draft-model-path": "/models/Big-27B"}


@pytest.mark.parametrize(
    ("flags", "keys", "revision"),
    [("--revision c0ffee", "", "c0ffee"), ("--revision c0ffee", "model_revision: cafe\n", "cafe")],
)
def test_the_commit_of_the_model_is_kept(tmp_path: Path, flags: str, keys: str, revision: str) -> None:
    data = of(tmp_path, flags, keys=keys).data

    assert data["model"]["revision"] == revision
    assert data["serve"] == {"args": {}}


def test_a_chat_template_beside_the_recipe_comes_along(tmp_path: Path) -> None:
    directory = tmp_path / "mods/words"
    directory.mkdir(parents=True)
    (directory / "run.sh").write_text("cp words.jinja $WORKSPACE_DIR/words.jinja\n")
    (directory / "words.jinja").write_text("{{ messages }}\n")
    conversion = of(tmp_path, "--chat-template words.jinja", keys="mods: [mods/words]\n")

    assert conversion.data["serve"]["args"] == {"chat-template": "/opt/sparkops/templates/words.jinja"}
    assert conversion.data["image"] == {"use": IMAGE, "mods": ["words.jinja"]}


UNUSABLE = {"": ":3: runtime", "container: vllm-node": ":4: container", "container: a/b c": ":4: container"}


@pytest.mark.parametrize(("container", "place"), UNUSABLE.items())
def test_without_an_image_that_a_node_can_pull_it_is_refused_with_a_way_on(
    tmp_path: Path, container: str, place: str
) -> None:
    text = f"recipe_version: '2'\nmodel: a/b\nruntime: sglang\n{container}\n"

    with pytest.raises(ConfigError) as refused:
        originals.of(tmp_path, text)
    problem = "expected an image with SGLang that a node can pull, as sparkops builds none"
    assert f"{place}: {problem}" in str(refused.value)
    assert refused.value.next_step == f"sparkops import {tmp_path}/a.yaml --use IMAGE"
    assert originals.of(tmp_path, text, Choices(use=IMAGE)).data["image"] == {"use": IMAGE}


def test_use_takes_another_image_than_the_original_s(tmp_path: Path) -> None:
    conversion = of(tmp_path, "", choices=Choices(use="b/c:1"))

    assert conversion.data["image"] == {"use": "b/c:1"}
    assert [(note.line, note.key, note.reason) for note in conversion.omissions] == [
        (4, "container", "the image is b/c:1")
    ]


@pytest.mark.parametrize(
    ("runtime", "command", "problem"),
    [
        ("sglang", "vllm serve a/b", ":4: command: expected `sglang serve --model-path MODEL`"),
        ("vllm", "sglang serve --model-path a/b", ":4: command: expected `vllm serve MODEL`"),
        (
            "llama-cpp",
            "llama-server -m a.gguf",
            ":2: runtime: expected a runtime of vLLM or SGLang: vllm, vllm-distributed, eugr-vllm, vllm-ray, sglang; "
            "got 'llama-cpp'",
        ),
    ],
)
def test_the_server_of_another_engine_is_refused(tmp_path: Path, runtime: str, command: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        originals.of(tmp_path, f"model: a/b\nruntime: {runtime}\ncontainer: {IMAGE}\ncommand: {command}\n")
    assert problem in str(refused.value)
