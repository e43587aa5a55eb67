"""Flags and variables that run code need an opt-in of the recipe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import assets, opt_in, recipe_file, shipped
from sparkops.config.harmless import PACKAGES, VARIABLES
from sparkops.config.recipe import Recipe
from sparkops.config.release import Release
from sparkops.engines import ENGINES
from sparkops.engines.vllm import harmless
from sparkops.errors import ConfigError
from sparkops.operator.convert import other_tools, server_flags, vllm_023
from tests.examples import INPUTS, RECIPE

UNJUDGED = {
    "enable-elastic-ep",
    "enable-ssl-refresh",
    "ray-workers-use-nsight",
    "ssl-cert-reqs",
    "ssl-ciphers",
    "tokens-only",
}
"""Flags that need `allow` without a known effect."""
COMMIT = "0123456789" * 4
DANGEROUS = [
    ("args", "trust-remote-code", True, "trust-remote-code"),
    ("args", "trust-remote", True, "trust-remote-code"),  # argparse takes the beginning of a flag for the flag
    ("args", "middleware", ["a.B"], "middleware"),
    ("args", "worker-extension-cls", "a.B", "worker-extension-cls"),
    ("args", "tool-parser-plugin", "/models/a.py", "tool-parser-plugin"),
    ("args", "allowed-local-media-path", "/", "allowed-local-media-path"),
    ("args", "config", "/models/flags.yaml", "config"),
    (
        "args",
        "kv-transfer-config",
        {"kv_connector": "A", "kv_connector_module_path": "a.b"},
        "kv-transfer-config.kv_connector_module_path",
    ),
    (
        "args",
        "kv-transfer-config.kv_connector_module_path",
        "a.b",
        "kv-transfer-config.kv_connector_module_path",
    ),
    ("args", "compilation-config", {"backend": "a.b"}, "compilation-config.backend"),
    ("args", "speculative-config", {"model": "a.Proposer"}, "speculative-config.model"),
    ("env", "LD_PRELOAD", "/models/x.so", "LD_PRELOAD"),
    ("env", "PYTHONPATH", "/models", "PYTHONPATH"),
    ("env", "HF_HUB_OFFLINE", "0", "HF_HUB_OFFLINE"),
    ("env", "TRANSFORMERS_OFFLINE", "False", "TRANSFORMERS_OFFLINE"),
    ("env", "VLLM_ALLOW_INSECURE_SERIALIZATION", "1", "VLLM_ALLOW_INSECURE_SERIALIZATION"),
    ("env", "VLLM_PLUGINS", "x", "VLLM_PLUGINS"),
    ("env", "VLLM_PORT", "20000", "VLLM_PORT"),
    ("env", "NCCL_NET_PLUGIN", "/models/x.so", "NCCL_NET_PLUGIN"),
    # What is not known, and what went around a list of what is dangerous.
    ("args", "no-such-flag-yet", 1, "no-such-flag-yet"),
    ("args", "no-such-flag-yet", False, "no-such-flag-yet"),
    ("args", "additional-config", '{"a": 1}', "additional-config"),
    (
        "args",
        "kv-transfer-config",
        ' {"kv_connector_module_path": "a.b"}',
        "kv-transfer-config.kv_connector_module_path",
    ),
    (
        "args",
        "kv-transfer-config",
        '{"kv_connector_extra_config": {"a": 1}}',
        "kv-transfer-config.kv_connector_extra_config",
    ),
    ("args", "compilation-config", '{"backend": "a.b"}', "compilation-config.backend"),
    ("args", "compilation-config", '{"backend": "a.b", "backend": "inductor"}', "compilation-config.backend"),
    ("args", "compilation-config", {"backend": "a-b.c"}, "compilation-config.backend"),
    (
        "args",
        "compilation-config.pass_config",
        '{"x_module_path": "a"}',
        "compilation-config.pass_config.x_module_path",
    ),
    ("args", "compilation-config", {"debug_dump_path": "/tmp/x"}, "compilation-config.debug_dump_path"),
    ("args", "compilation-config", "{backend: a.b}", "compilation-config"),
    ("args", "compilation-config", "[" * 100_000, "compilation-config"),
    ("args", "speculative-config", '{"method": "custom_class", "model": "a/b"}', "speculative-config.method"),
    ("args", "mm-processor-kwargs", {"trust_remote_code": True}, "mm-processor-kwargs.trust_remote_code"),
    ("args", "mm-processor-kwargs", {"size": {"trust_remote_code": 1}}, "mm-processor-kwargs.size.trust_remote_code"),
    ("args", "hf-overrides", {"auto_map": {"AutoConfig": "a.B"}}, "hf-overrides.auto_map"),
    ("args", "uds", "/tmp/x", "uds"),
    ("args", "chat-template", "/etc/passwd", "chat-template"),
    ("args", "otlp-traces-endpoint", "http://h", "otlp-traces-endpoint"),
    *(
        ("env", name, "/models/x", name)
        for name in (
            "OPENSSL_CONF",
            "OMP_TOOL_LIBRARIES",
            "NCCL_CONF_FILE",
            "NCCL_NET",
            "CUDA_HOME",
            "PYTORCH_NVCC",
            "NVCC_PREPEND_FLAGS",
            "TRITON_PLUGIN_DIRS",
            "GIT_SSH_COMMAND",
            "LD_AUDIT",
            "STAND_IN_START_S",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
            "NO_SUCH_VARIABLE_YET",
        )
    ),
]
HARMLESS = [
    ("args", "trust-remote-code", False),
    ("args", "reasoning-parser", "qwen3"),
    ("args", "speculative-config", {"method": "mtp", "model": "org/some.model"}),
    ("args", "compilation-config", {"backend": "inductor", "cudagraph_mode": "NONE"}),
    ("args", "tokenizer-mode", "auto"),
    ("args", "no-enable-prefix-caching", True),
    ("args", "chat-template", "{{ messages }}"),
    ("args", "speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}'),
    ("args", "mm-processor-kwargs", {"max_pixels": 1, "trust_remote_code": False}),
    ("args", "limit-mm-per-prompt", {"image": 0}),
    ("env", "NCCL_IB_HCA", "=mlx5_0"),
    ("env", "HF_HUB_OFFLINE", "1"),
    ("env", "PYTHONUNBUFFERED", "1"),
    ("env", "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
    ("env", "TOKENIZERS_PARALLELISM", "false"),
]


def load(directory: Path, serve: dict[str, Any], **changes: Any) -> Recipe:
    file = directory / "q.yaml"
    model = {**RECIPE["model"], "revision": COMMIT}
    file.write_text(yaml.safe_dump({**RECIPE, "model": model, "serve": serve, **changes}, sort_keys=False))
    return recipe_file.load(file)


@pytest.mark.parametrize(("section", "key", "value", "name"), DANGEROUS, ids=lambda value: str(value)[:40])
def test_code_needs_an_opt_in_by_name(tmp_path: Path, section: str, key: str, value: Any, name: str) -> None:
    expected = (
        rf":\d+: serve\.{section}\.{re.escape(key)}: .*, expected `allow: \[something-else, {re.escape(name)}\]`$"
    )
    with pytest.raises(ConfigError, match=expected):
        load(tmp_path, {section: {key: value}, "allow": ["something-else"]})

    assert load(tmp_path, {section: {key: value}, "allow": [name]}).serve.allow == [name]


@pytest.mark.parametrize(("section", "key", "value"), HARMLESS, ids=lambda value: str(value)[:40])
def test_other_keys_need_none(tmp_path: Path, section: str, key: str, value: Any) -> None:
    assert getattr(load(tmp_path, {section: {key: value}}).serve, section) == {key: value}


EVIL = "registry.evil.example/vllm"
DIGEST = "sha256:" + 64 * "a"
SOURCE = "https://github.com/vllm-project/vllm.git"
CODE = [
    ({"use": f"{EVIL}:latest"}, "use", EVIL),
    ({"use": f"{EVIL}@{DIGEST}"}, "use", EVIL),
    ({"use": "registry.evil.example:5000/vllm/vllm-openai"}, "use", "registry.evil.example:5000/vllm/vllm-openai"),
    ({"use": "nvcr.io/nvidia-evil/vllm:26.04-py3"}, "use", "nvcr.io/nvidia-evil/vllm"),
    ({"use": "vllm-node"}, "use", "vllm-node"),
    ({**RECIPE["image"], "base": f"{EVIL}:latest"}, "base", EVIL),
    ({**RECIPE["image"], "source": {"url": SOURCE, "commit": COMMIT}}, "source", SOURCE),
    ({**RECIPE["image"], "packages": ["Innocent_helper[x]==1.0"]}, "packages", "innocent-helper"),
    ({**RECIPE["image"], "override": ["innocent-helper==1.0"]}, "override", "innocent-helper"),
    ({**RECIPE["image"], "vllm": "vllm-faster==0.32.0"}, "vllm", "vllm-faster"),
    ({**RECIPE["image"], "mods": ["mine"]}, "mods", "mine"),
    ({**RECIPE["image"], "mods": ["mine.patch"]}, "mods", "mine.patch"),
]


@pytest.mark.parametrize(("image", "key", "name"), CODE, ids=lambda value: str(value)[:60])
def test_code_of_the_author_in_the_image_needs_an_opt_in_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: dict[str, Any], key: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mods").mkdir()
    for mod in ("mine.py", "mine.patch"):
        (Path("mods") / mod).write_text("")
    expected = rf":\d+: image\.{key}.*: {re.escape(name)} is .*, expected `allow: \[{re.escape(name)}\]`$"
    with pytest.raises(ConfigError, match=expected):
        load(tmp_path, {}, image=image)

    loaded = load(tmp_path, {"allow": [name]}, image=image)
    assert [note.partition(" (")[0] for note in opt_in.notes(loaded.serve, loaded.engine, loaded.image)] == [
        f"allowed: {name}"
    ]


@pytest.mark.parametrize(
    "image",
    [
        {"use": "nvcr.io/nvidia/vllm:26.04-py3"},
        {"use": f"docker.io/lmsysorg/sglang@{DIGEST}"},
        {"use": "vllm/vllm-openai"},
        {**RECIPE["image"], "base": "docker.io/library/debian:bookworm-slim"},
        {**RECIPE["image"], "packages": ["ray[default]==2.60.0"], "mods": ["vllm-cpu-metadata"]},
    ],
    ids=str,
)
def test_images_and_packages_of_known_publishers_need_none(tmp_path: Path, image: dict[str, Any]) -> None:
    loaded = load(tmp_path, {}, image=image)

    assert list(opt_in.notes(loaded.serve, loaded.engine, loaded.image)) == []


def test_the_note_of_an_image_with_a_tag_says_that_it_can_move(tmp_path: Path) -> None:
    tag, pinned = (load(tmp_path, {"allow": [EVIL]}, image={"use": f"{EVIL}{of}"}) for of in (":1", f"@{DIGEST}"))

    assert "its tag can move (`sparkops recipe lock` pins it)" in "".join(opt_in.notes(tag.serve, "vllm", tag.image))
    assert "its tag can move" not in "".join(opt_in.notes(pinned.serve, "vllm", pinned.image))


def test_every_shipped_recipe_names_the_code_of_others_and_no_more() -> None:
    for file in shipped.recipes().values():
        recipe = recipe_file.load(file)
        needs = (*opt_in.needs(recipe.serve, recipe.engine), *opt_in.of_image(recipe.image, recipe.engine))
        names = {need.name for need in needs} - {*assets.mod_names()}

        assert names == {*recipe.serve.allow}, file


def test_packages_that_import_adds_need_no_opt_in() -> None:
    packages = {*server_flags.LOADERS.values(), other_tools.RAY}

    assert {re.split(r"[\[=]", package)[0] for package in packages} < PACKAGES


@pytest.mark.parametrize("revision", [None, "main"])
def test_code_of_a_repository_needs_its_commit(tmp_path: Path, revision: str | None) -> None:
    serve = {"args": {"trust-remote-code": True}, "allow": ["trust-remote-code"]}
    model = {**RECIPE["model"], **({"revision": revision} if revision else {})}
    got = repr(revision) if revision else "none"

    with pytest.raises(ConfigError, match=rf": model\.revision: .*, expected a commit of 40 hex digits, got {got}$"):
        load(tmp_path, serve, model=model)
    source, step = {"id": "a", "path": "a"}, {"script": "s", "inputs": {"in": "a"}, "output": "q", "disk_gb": 1}
    with pytest.raises(ConfigError, match=r": model\.sources\[0\]\.revision: .*, got none$"):
        load(tmp_path, serve, model={**RECIPE["model"], "sources": [source], "steps": [step]})


def test_an_opt_in_makes_no_other_release(tmp_path: Path) -> None:
    plain, allowed = load(tmp_path, {}), load(tmp_path, {"allow": ["middleware"]})

    assert Release(plain, INPUTS).id == Release(allowed, INPUTS).id


def test_the_error_of_a_mistyped_flag_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r": max-num-seq is not known to be harmless \(did you mean max-num-seqs\?\); "
    ):
        load(tmp_path, {"args": {"max-num-seq": 16}})


def test_each_error_has_the_line_that_allows_all(tmp_path: Path) -> None:
    serve = {"args": {"uds": "/tmp/x"}, "env": {"CUDA_HOME": "/models"}, "allow": ["middleware"]}
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, serve)

    line = "expected `allow: [middleware, uds, CUDA_HOME]`"
    assert [text.rpartition("; not in serve.allow, ")[2] for text in str(caught.value).splitlines()] == [line, line]
    assert load(tmp_path, {**serve, "allow": yaml.safe_load(line.split("`")[1])["allow"]}).serve.env == serve["env"]


def test_every_flag_of_the_imported_vllm_is_harmless_or_has_its_effect() -> None:
    facts = ENGINES["vllm"].flags
    known = harmless.VLLM_FLAGS | {*facts.effects} | facts.secrets | ENGINES["vllm"].taken

    assert harmless.VLLM_FLAGS <= vllm_023.FLAGS
    assert not harmless.VLLM_FLAGS & {*facts.effects}
    assert vllm_023.FLAGS - known == UNJUDGED


def test_no_variable_is_both_harmless_and_dangerous() -> None:
    variables = harmless.VARIABLES | VARIABLES
    effects = {*ENGINES["vllm"].flags.variable_effects, *opt_in.VARIABLES}
    dangerous = {name for name in variables for names in effects if re.fullmatch(names, name)}

    assert dangerous == set()
