"""The recipe's file."""

from __future__ import annotations

import copy
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import recipe_file, shipped
from sparkops.config.fields import PUBLIC
from sparkops.config.image import Torch
from sparkops.config.recipe import Recipe
from sparkops.errors import ConfigError, SparkopsError
from sparkops.units import EXPECTED
from tests import examples
from tests.examples import RECIPE

APART = "expected list items that do not begin with a dash, got '{}': the engine would parse a flag"
SHIPPED = shipped.recipes().values()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(changes: dict[str, Any]) -> Path:
    """The example as q.yaml, one key a line, with `section.key` set to a value or removed by None."""
    data = copy.deepcopy(RECIPE)
    for where, value in changes.items():
        *sections, key = where.split(".")
        inner = data
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[key] = value
        if value is None:
            del inner[key]
    file = Path("q.yaml")
    file.write_text(yaml.safe_dump(data, sort_keys=False, default_flow_style=False))
    return file


def load(**changes: Any) -> Recipe:
    return recipe_file.load(written({key.replace("__", "."): value for key, value in changes.items()}))


def mistake(changes: dict[str, Any]) -> str:
    """The error without its file and line: these depend on how the example is written down."""
    with pytest.raises(ConfigError) as caught:
        recipe_file.load(written(changes))
    return str(caught.value).split(": ", 1)[1]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_a_shipped_recipe_is_valid(file: Path) -> None:
    assert recipe_file.load(file).name == file.stem


def test_the_smallest_recipe_has_the_documented_defaults() -> None:
    loaded = load()

    assert loaded.serve.model_dump() == {
        "task": "chat",
        "port": 8000,
        "aliases": [],
        "args": {},
        "env": {},
        "allow": [],
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "replicas": 1,
        "sticky": False,
        "executor": "mp",
        "shm_gib": 16.0,
        "stop_grace_s": 60,
    }
    limits = {"stall_s": 180.0, "compile_stall_s": 300.0, "max_s": 1800.0}
    assert loaded.probe.startup.model_dump() == {**limits, "configuration": True}
    assert loaded.nodes == []


@pytest.mark.parametrize(
    ("torch", "pin", "cuda"),
    [
        (Torch(version="2.13.0", backend="cpu"), "torch==2.13.0+cpu", None),
        (Torch(version="2.11.0", backend="cu130"), "torch==2.11.0+cu130", "13.0"),
        (Torch(version="2.11.0", backend="cu128", local_version=False), "torch==2.11.0", "12.8"),
    ],
)
def test_the_pin_of_torch_names_its_backend(torch: Torch, pin: str, cuda: str | None) -> None:
    assert (torch.pin, torch.cuda) == (pin, cuda)


NAME = "expected a name of at most 63 lower-case letters, digits, dots and dashes"
PACKAGE = "expected a Python package pinned with ==, such as ray[default]==2.49.0"
REPOSITORY = "expected a git repository's https:// URL"
PLAIN = "expected a plain value: no shell expands $NAME, $(...), ${...} or backticks"
PATH = "expected a relative path without '..' or colon that does not begin with a dash"
ONE_LINE = "expected one line of visible text, got character"


def step(**changes: Any) -> dict[str, Any]:
    return {"script": "add-tensors", "inputs": {"in": "a"}, "output": "q", "disk_gb": 1.0, **changes}


@pytest.mark.parametrize("value", ["a$", "^x$", "$", "$5", "cost: $5.00", "$$", "a$|b$", "$-", "x$/y", "$ HOME", "$é"])
def test_a_dollar_before_no_name_is_plain(value: str) -> None:
    loaded = load(serve__env={"A": value}, serve__args={"x": [value]}, serve__allow=["A", "x"])

    assert (loaded.serve.env, loaded.serve.args) == ({"A": value}, {"x": [value]})


@pytest.mark.parametrize("path", ["a-b", "a/-b", "a_b/c.d", "-".join("ab")])
def test_a_dash_inside_a_path_is_plain(path: str) -> None:
    assert load(model__path=path).model.path == path


@pytest.mark.parametrize(
    ("where", "value", "error"),
    [
        ("servce", "chat", "servce: unknown key, did you mean 'service'?"),
        ("serve.prt", 1, "serve.prt: unknown key, did you mean 'port'?"),
        ("service", None, "service: missing, but required"),
        ("memory.basis", None, "memory.basis: missing, but required"),
        ("service", "my chat", f"service: {NAME}, got 'my chat'"),
        ("service", "x" * 64, f"service: {NAME}, got '{'x' * 64}'"),
        ("description", "two\nlines", f"description: {ONE_LINE} '\\n'"),
        ("description", "hidden\u202etext", f"description: {ONE_LINE} '\\u202e'"),
        ("engine", "tgi", "engine: expected 'vllm', 'stand-in', 'sglang', 'llama-cpp' or 'atlas', got 'tgi'"),
        ("nodes", "n1", "nodes: expected a list, got 'n1'"),
        ("image.base", "a b", "image.base: expected an image, such as debian:bookworm-slim, got 'a b'"),
        ("image.base", "a\nRUN id", "image.base: expected an image, such as debian:bookworm-slim, got 'a\\nRUN id'"),
        ("image.vllm", "vllm", f"image.vllm: {PACKAGE}, got 'vllm'"),
        ("image.vllm", "vllm>=0.1", f"image.vllm: {PACKAGE}, got 'vllm>=0.1'"),
        ("image.packages", ["a==1", "b==1 --index-url=x"], f"image.packages[1]: {PACKAGE}, got 'b==1 --index-url=x'"),
        ("image.apt", ["-y"], "image.apt[0]: expected the name of a package, got '-y'"),
        ("image.torch.version", 2.11, "image.torch.version: expected text, got 2.11"),
        (
            "image.torch.version",
            "2.11.0+cu130",
            "image.torch.version: expected a version, such as 2.11.0, got '2.11.0+cu130'",
        ),
        ("image.torch.backend", "cuda", "image.torch.backend: expected cpu or a CUDA build such as cu130, got 'cuda'"),
        ("image.override", ["a"], f"image.override[0]: {PACKAGE}, got 'a'"),
        (
            "image.source",
            {"url": "git@host:a", "commit": "a" * 40},
            f"image.source.url: {REPOSITORY}, got 'git@host:a'",
        ),
        (
            "image.source",
            {"url": "https://user:secret@h/a", "commit": "a" * 40},
            f"image.source.url: {REPOSITORY}, got 'https://***@h/a'",
        ),
        (
            "image.source",
            {"url": "https://h/a.git", "commit": "v0.19.0"},
            "image.source.commit: expected a whole commit of 40 hex digits, got 'v0.19.0'",
        ),
        ("image.source", {"url": "https://h/a.git"}, "image.source.commit: missing, but required"),
        ("image.disk_gib", 0, "image.disk_gib: expected greater than 0, got 0"),
        ("model.path", "/srv/q", f"model.path: {PATH}, got '/srv/q'"),
        ("model.path", "a/../../b", f"model.path: {PATH}, got 'a/../../b'"),
        ("model.path", "-rf", f"model.path: {PATH}, got '-rf'"),
        ("model.path", "q:ro", f"model.path: {PATH}, got 'q:ro'"),
        ("model.sources", [{"id": "a", "path": "--a"}], f"model.sources[0].path: {PATH}, got '--a'"),
        ("model.steps", [step(output="-q")], f"model.steps[0].output: {PATH}, got '-q'"),
        ("model.steps", [step(inputs={"in": "a:b"})], f"model.steps[0].inputs.in: {PATH}, got 'a:b'"),
        ("serve.port", "8000", "serve.port: expected a whole number, got '8000'"),
        ("serve.port", 80, "serve.port: expected at least 1024, got 80"),
        (
            "serve.args",
            {"--dtype": "x"},
            "serve.args.--dtype: expected an argument of the engine without its dashes, such as max-model-len, "
            "got '--dtype'",
        ),
        ("serve.args", {"dtype": "$(id)"}, f"serve.args.dtype: {PLAIN}, got '$(id)'"),
        ("serve.args", {"dtype": "a\nb"}, f"serve.args.dtype: {ONE_LINE} '\\n'"),
        ("serve.args", {"x": {"y": ["${HOME}"]}}, f"serve.args.x: {PLAIN}"),
        (
            "serve.args",
            {"x": {"y": [None]}},
            "serve.args.x: expected a value; remove the key to omit the argument",
        ),
        ("serve.env", {"A": "`id`"}, f"serve.env.A: {PLAIN}, got '`id`'"),
        ("serve.env", {"A": "$HOME/x"}, f"serve.env.A: {PLAIN}, got '$HOME/x'"),
        ("serve.env", {"A": "a$_b"}, f"serve.env.A: {PLAIN}, got 'a$_b'"),
        ("serve.args", {"x": ["$HOME"]}, f"serve.args.x: {PLAIN}"),
        ("serve.env", {"A": 1}, "serve.env.A: expected text, got 1"),
        ("serve.env", {"A-B": "1"}, "serve.env.A-B: expected the name of an environment variable, got 'A-B'"),
        ("serve.env", {"HF_TOKEN": "hunter2"}, f"serve.env.HF_TOKEN: {PUBLIC}, got 'HF_TOKEN'"),
        ("serve.args", {"api-key": ["hunter2"]}, f"serve.args.api-key: {PUBLIC}, got 'api-key'"),
        ("serve.args", {"api-k": "hunter2"}, f"serve.args.api-k: {PUBLIC}"),
        ("serve.args", {"x": {"y": [{"password": "hunter2"}]}}, f"serve.args.x: {PUBLIC}"),
        ("serve.args", {"x": ["*", "--port=9999"]}, f"serve.args.x: {APART.format('--port=9999')}"),
        ("serve.args", {"x": ["-O3"]}, f"serve.args.x: {APART.format('-O3')}"),
        ("serve.args", {"x": ["-0.5"]}, f"serve.args.x: {APART.format('-0.5')}"),
        ("serve.tensor_parallel", 0, "serve.tensor_parallel: expected at least 1, got 0"),
        ("serve.tensor_parallel", 32, "serve.tensor_parallel: expected at most 16, got 32"),
        ("serve.pipeline_parallel", 17, "serve.pipeline_parallel: expected at most 16, got 17"),
        ("serve.tensor_parallel", "2", "serve.tensor_parallel: expected a whole number, got '2'"),
        ("serve.tensor_parallel", True, "serve.tensor_parallel: expected a whole number, got True"),
        ("serve.executor", "slurm", "serve.executor: expected 'ray' or 'mp', got 'slurm'"),
        (
            "memory.claim_gib",
            "10 Gib/s",
            f"memory.claim_gib: expected {EXPECTED['gib']}; got '10 Gib/s'",
        ),
        (
            "memory.claim_gib",
            "1e400",
            f"memory.claim_gib: expected {EXPECTED['gib']}; got '1e400'",
        ),
        ("memory.claim_gib", "1000001 GiB", "memory.claim_gib: expected at most 1000000, got 1000001"),
        ("memory.claim_gib", 1e7, "memory.claim_gib: expected at most 1000000, got 10000000.0"),
        ("memory.claim_gib", float("inf"), "memory.claim_gib: expected a finite number, got .inf"),
        (
            "probe.smoke.text.mean_logprob",
            float("nan"),
            "probe.smoke.text.mean_logprob: expected a finite number, got .nan",
        ),
        ("serve.args", {"x": {"y": float("inf")}}, "serve.args.x.y: expected a finite number, got .inf"),
        ("probe.passes", 0, "probe.passes: expected at least 1, got 0"),
        (
            "memory.claim_gib",
            True,
            f"memory.claim_gib: expected {EXPECTED['gib']}; got True",
        ),
        ("expected", {"tok_s": 1}, "expected.source: missing, but required"),
    ],
)
def test_a_mistake_names_its_field_and_what_was_expected(where: str, value: Any, error: str) -> None:
    assert mistake({where: value}) == error


@pytest.mark.parametrize(
    ("image", "at", "error"),
    [
        (
            {"template": "vllm-cup"},
            "  template:",
            "image.template: expected one of: atlas, finished, llama-cpp, stand-in, ",
        ),
        ({"mods": ["vllm-cpu-metadata", "nope"]}, "  - nope", "image.mods[1]: unknown mod 'nope', expected one of: "),
        ({"mods": ["nope.patch"]}, "  - nope.patch", "image.mods[0]: unknown mod 'nope.patch', expected one of: "),
        ({"mods": ["mend"]}, "  - mend", "image.mods[0]: unknown mod 'mend', expected one of: "),
        ({"mods": ["diff"]}, "  - diff", "image.mods[0]: unknown mod 'diff', expected one of: "),
    ],
    ids=str,
)
def test_a_template_or_mod_that_does_not_exist_is_refused_at_its_line(
    image: dict[str, Any], at: str, error: str
) -> None:
    file = written({f"image.{key}": value for key, value in image.items()})
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if text.startswith(at))

    with pytest.raises(ConfigError) as caught:
        recipe_file.load(file)

    assert str(caught.value).startswith(f"q.yaml:{line}: {error}")
    assert "vllm-cpu" in str(caught.value).rpartition(": ")[2]
    assert "mend" not in str(caught.value).rpartition("one of: ")[2]


GPU = {
    "image.template": "vllm-wheels",
    "image.base": "nvidia/cuda:13.0.2-devel-ubuntu24.04",
    "image.torch": {"version": "2.11.0", "backend": "cu130"},
    "image.vllm": "vllm==0.23.0",
}


@pytest.mark.parametrize("value", ["12.1a", "12.0", "8.9;12.1", "9.0 12.0+PTX", "12.0f,12.1f"])
def test_code_for_a_spark_is_accepted(value: str) -> None:
    file = written({**GPU, "serve.env": {"TORCH_CUDA_ARCH_LIST": value, "FLASHINFER_CUDA_ARCH_LIST": value}})

    assert recipe_file.load(file).serve.env["TORCH_CUDA_ARCH_LIST"] == value


@pytest.mark.parametrize("name", ["TORCH_CUDA_ARCH_LIST", "FLASHINFER_CUDA_ARCH_LIST"])
def test_code_for_other_gpus_is_refused_except_on_a_cpu(name: str) -> None:
    env = {"serve.env": {name: "9.0a;12.0a"}}
    assert recipe_file.load(written(env)).serve.env[name] == "9.0a;12.0a"

    with pytest.raises(ConfigError) as caught:
        recipe_file.load(written({**GPU, **env}))

    assert str(caught.value).endswith(
        f"serve.env.{name}: 9.0a;12.0a has no architecture of a Spark's GPU, expected 12.1a"
    )


@pytest.mark.parametrize(
    ("where", "value", "place"),
    [
        ("description", "with hf_abcdefghijklmnopqrst", "description"),
        ("serve.args", {"tool-call-parser": "sk-abcdefghijklmnopqrst"}, "serve.args.tool-call-parser"),
    ],
)
def test_a_key_in_a_recipe_is_refused_and_not_printed(where: str, value: object, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        recipe_file.load(written({where: value}))

    assert f" {place}" in str(caught.value)
    assert ", expected no secret in a recipe; " in str(caught.value)
    assert "abcdefghijklmnopqrst" not in str(caught.value)


SPECIAL: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": lambda file: socket.socket(socket.AF_UNIX).bind(str(file)),
    "device": lambda file: file.symlink_to("/dev/zero"),
    "large": lambda file: file.write_bytes(b"#" * (16 * 2**20 + 1)),
}
SPECIAL_FILE = "expected a regular file|No such device"  # ENXIO: a socket


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", ["q.yaml", "q.lock"])
def test_a_file_of_another_kind_or_size_is_refused_at_once(kind: str, name: str) -> None:
    SPECIAL[kind](Path(name))
    if name == "q.lock":
        written({})

    with pytest.raises(SparkopsError, match="larger than" if kind == "large" else SPECIAL_FILE) as caught:
        recipe_file.load(Path("q.yaml"))

    assert caught.value.exit_code == 2


def test_an_unknown_template_of_the_recipe_below_is_refused_where_it_is_written() -> None:
    base = written({"image.template": "nope"}).rename("p.yaml")
    base.write_text(base.read_text().replace("name: q", "name: p"))
    Path("q.yaml").write_text("name: q\nextends: p\ndescription: other\nverified: nothing\n")

    with pytest.raises(ConfigError, match=r"^p\.yaml:5: image\.template: expected one of: "):
        recipe_file.load(Path("q.yaml"))


def test_a_recipe_with_the_former_template_of_finished_images_is_told_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"image\.template: finished images .* `use: debian:bookworm-slim` for both"):
        recipe_file.load(written({"image.template": "vllm-upstream"}))


def test_a_mistake_names_its_line() -> None:
    file = Path("q.yaml")
    lines = yaml.safe_dump(RECIPE, sort_keys=False).splitlines()
    line = lines.index("  path: q") + 1
    file.write_text("\n".join([*lines[:line], "  pth: q", *lines[line:]]))

    with pytest.raises(ConfigError, match=rf"^q\.yaml:{line + 1}: model\.pth: unknown key, did you mean 'path'\?$"):
        recipe_file.load(file)


@pytest.mark.parametrize(
    "flag", ["host", "port", "hos", "model", "served-model-name", "tensor-parallel-size", "nnodes", "headless"]
)
def test_an_argument_that_sparkops_sets_is_refused(flag: str) -> None:
    expected = f"serve.args.{flag}: not allowed: sparkops sets it from the recipe's other keys"

    assert mistake({"serve.args": {flag: "x"}}) == expected


@pytest.mark.parametrize("flag", ["bind", "model-name", "model-from-path", "world-size"])
def test_each_engine_has_arguments_of_its_own_that_sparkops_sets(flag: str) -> None:
    atlas = {"engine": "atlas", "image.torch": None, "image.vllm": None}

    assert mistake({**atlas, "serve.args": {flag: "x"}}).startswith(f"serve.args.{flag}: not allowed: ")
    assert load(serve__args={flag: "x"}, serve__allow=[flag]).serve.args == {flag: "x"}


def test_values_with_a_dash_that_no_engine_reads_as_flags_are_accepted() -> None:
    args = {"x": "--port=9999", "y": [-1], "z": {"a": ["-b"]}, "long-prefill-token-threshold": 1}

    assert load(serve__args=args, serve__allow=["x", "y", "z"]).serve.args == args


def test_only_chats_have_conversations_that_stay_with_a_replica() -> None:
    assert load(serve__sticky=True).serve.sticky
    problem = "serve.sticky: expected false: the task embedding has no conversations"
    assert mistake({"serve.sticky": True, "serve.task": "embedding"}) == problem


@pytest.mark.parametrize("aliases", [["chat"], ["fast", "fast"]])
def test_an_alias_is_a_name_of_its_own(aliases: list[str]) -> None:
    assert load(serve__aliases=["fast", "org/Chat-2"]).serve.aliases == ["fast", "org/Chat-2"]
    problem = "serve.aliases: expected names that differ from each other and from chat"
    assert mistake({"serve.aliases": aliases}) == problem


@pytest.mark.parametrize("alias", ["", "a b", "../a", "a/b/c", "-a", "a\nb", "#a"])
def test_an_alias_is_a_name_that_the_gateway_can_look_up(alias: str) -> None:
    assert mistake({"serve.aliases": [alias]}).startswith("serve.aliases[0]: expected the name of a model")


def test_an_engine_that_takes_one_name_has_no_alias() -> None:
    atlas = {"engine": "atlas", "image.torch": None, "image.vllm": None}

    assert mistake({**atlas, "serve.aliases": ["fast"]}) == (
        "serve.aliases: expected none: the engine atlas takes one name"
    )


def test_an_engine_that_loads_a_gguf_file_needs_its_name_and_no_other_takes_one() -> None:
    llama = {"engine": "llama-cpp", "image.torch": None, "image.vllm": None}

    assert mistake(llama) == "model.file: missing, but the engine llama-cpp loads one GGUF file"
    assert mistake({"model.file": "q.gguf"}) == "model.file: expected none: the engine vllm loads the directory `path`"
    assert mistake({**llama, "model.file": "q.gguf", "serve.args": {"model": "x"}}).startswith(
        "serve.args.model: not allowed: "
    )


def test_where_an_engine_computes_is_stated_once() -> None:
    assert mistake({"image.backend": "cpu"}) == "image.backend: not allowed with `torch`: state torch.backend"


def test_atlas_is_started_on_one_node_and_the_stand_in_on_two_without_ray() -> None:
    stand_in = {"engine": "stand-in", "image.torch": None, "image.vllm": None, "serve.tensor_parallel": 2}
    atlas = {"engine": "atlas", "image.torch": None, "image.vllm": None}

    assert mistake({**atlas, "serve.tensor_parallel": 2}) == (
        "serve.tensor_parallel: expected 1: sparkops starts the engine atlas on one node"
    )
    assert (
        mistake({**stand_in, "serve.executor": "ray"})
        == "serve.executor: expected mp, which joins ranks of the engine stand-in"
    )
    assert load(serve__tensor_parallel=2).serve.executor == "mp"
    assert mistake({**atlas, "serve.pipeline_parallel": 3}) == (
        "serve.pipeline_parallel: expected 1: sparkops starts the engine atlas on one node"
    )


def test_ranks_are_the_product_of_both_ways_to_split_and_at_most_sixteen() -> None:
    assert load(serve__tensor_parallel=2, serve__pipeline_parallel=3).serve.ranks == 6
    assert mistake({"serve.tensor_parallel": 8, "serve.pipeline_parallel": 3}) == (
        "serve.pipeline_parallel: 8 x 3 = 24 nodes, expected at most 16"
    )


@pytest.mark.parametrize("size", [3, 5, 6, 12])
def test_nodes_that_cannot_share_attention_heads_are_pointed_to_pipeline_parallel(size: int) -> None:
    assert mistake({"serve.tensor_parallel": size}) == (
        f"serve.tensor_parallel: {size} nodes cannot share the attention heads of a model evenly, expected 1, 2, 4, 8 "
        f"or 16; for {size} nodes set pipeline_parallel: {size}, which splits the model by layers, and "
        "tensor_parallel: 1"
    )


@pytest.mark.parametrize("missing", ["image.torch", "image.vllm"])
def test_vllm_needs_a_torch_and_a_vllm(missing: str) -> None:
    assert mistake({missing: None}) == f"{missing}: missing, but the engine vllm needs it"


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"serve.args": {"dtype": "auto", "model": "x", "host": "y"}}, "    model:"),
        ({"serve.tensor_parallel": 2, "engine": "atlas"}, "  tensor_parallel:"),
        ({"image.torch": None}, "image:"),
        ({"image.vllm": None}, "image:"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_engine_is_refused_at_its_line(changes: dict[str, Any], at: str) -> None:
    file = written(changes)
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if text.startswith(at))

    with pytest.raises(ConfigError, match=rf"^q\.yaml:{line}: "):
        recipe_file.load(file)


@pytest.mark.parametrize(("engine", "backend"), [("stand-in", "cpu"), ("atlas", "cu130")])
def test_another_engine_needs_neither(engine: str, backend: str) -> None:
    assert load(engine=engine, image__torch=None, image__vllm=None).backend == backend


def test_a_vllm_from_source_says_where_it_comes_from() -> None:
    source = {"url": "https://example.org/vllm.git", "commit": "0123456789" * 4}
    image = examples.recipe(image={"source": source, "mods": ["a", "b.patch"]}).image

    assert image.source_version == "0.32.0+g012345678"
    assert (image.source_patches, image.installed_mods) == (["b.patch"], ["a"])


def test_without_a_source_a_diff_changes_what_is_installed() -> None:
    image = examples.recipe(image={"mods": ["a", "b.patch"]}).image

    assert image.source_version == "0.32.0"
    assert (image.source_patches, image.installed_mods) == ([], ["a", "b.patch"])


def test_a_recipe_has_the_name_of_its_file() -> None:
    assert mistake({"name": "p"}) == "name: expected 'q' as in the file's name, got 'p'"


def test_a_recipe_names_only_nodes_of_the_inventory() -> None:
    file = written({"nodes": ["n1", "n3"]})

    with pytest.raises(ConfigError, match=r": nodes\[1\]: unknown node 'n3', expected one of: n1, n2$"):
        recipe_file.load(file, ["n1", "n2"])
    assert recipe_file.load(file).nodes == ["n1", "n3"]


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/b", "..", "a/../b.patch"])
def test_no_mod_template_or_step_is_a_path(name: str) -> None:
    """A build reads mods and templates by name: none leaves the checkout."""
    for key in ("image.mods", "image.template", "model.steps"):
        value = {"image.mods": [name], "image.template": name, "model.steps": [step(script=name)]}[key]
        assert mistake({key: value}).startswith(key)


FINISHED = {"use": "vllm/vllm-openai:v0.19.0"}
PACKAGES = {"packages": ["ray==2.60.0"]}


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ({}, "image.template: missing; or name a finished image with `use`"),
        ({"template": "vllm-cpu"}, "image.base: missing; or name a finished image with `use`"),
        ({**FINISHED, "base": "debian"}, "image.base: not allowed with `use`: a finished image is not built"),
        ({**FINISHED, "template": "vllm-cpu"}, "image.template: not allowed with `use`: a finished image is not built"),
        ({**FINISHED, **PACKAGES}, "image.torch: missing: `packages` would replace a torch that no pin holds"),
    ],
)
def test_an_image_is_built_or_used(image: dict[str, Any], problem: str) -> None:
    file = Path("q.yaml")
    file.write_text(yaml.safe_dump({**RECIPE, "image": image or {"apt": ["curl"]}}))

    with pytest.raises(ConfigError) as caught:
        recipe_file.load(file)

    assert str(caught.value).endswith(problem)


def test_a_finished_image_needs_no_versions_and_computes_on_the_gpu() -> None:
    used = Recipe.model_validate({**RECIPE, "image": FINISHED})

    assert (used.image.parent, used.image.template, used.backend) == (FINISHED["use"], "finished", "cu130")
