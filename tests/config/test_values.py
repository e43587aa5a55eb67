"""Values that no node can use are refused with their line when the file is read, and templates of an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import assets, inventory, recipe, recipe_file
from sparkops.errors import ConfigError, UsageError
from tests.examples import RECIPE

TEMPLATE = "/opt/sparkops/templates/mine.jinja"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(**changes: Any) -> recipe.Recipe:
    Path("q.yaml").write_text(yaml.safe_dump({**RECIPE, **changes}, sort_keys=False, default_flow_style=False))
    return recipe_file.load(Path("q.yaml"))


@pytest.mark.parametrize("share", [2, -0.5, 0, True, "lots", 85, [0.5]])
def test_a_share_of_the_memory_that_no_gpu_has_is_refused(share: Any) -> None:
    with pytest.raises(ConfigError, match=r"q\.yaml:\d+: serve\.args\.gpu-memory-utilization: expected a share"):
        load(serve={"args": {"gpu-memory-utilization": share}})


@pytest.mark.parametrize("window", [-1, 0, True, "many", "-1"])
def test_a_context_without_tokens_is_refused(window: Any) -> None:
    with pytest.raises(ConfigError, match=r"q\.yaml:\d+: serve\.args\.max-model-len: expected a number of tokens"):
        load(serve={"args": {"max-model-len": window}})


@pytest.mark.parametrize("args", [{"gpu-memory-utilization": 1}, {"max-model-len": "32k"}, {"max-model-len": "auto"}])
def test_a_value_that_vllm_reads_is_accepted(args: dict[str, Any]) -> None:
    assert load(serve={"args": args}).serve.args == args


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nodes:\n  a: {address: h, model_dir: /}", "2: nodes.a.model_dir: expected a directory for models only"),
        ("nodes:\n  a: {address: h}\ndefaults: {model_dir: /./}", "3: defaults.model_dir: expected a directory"),
        ("nodes:\n  a: {address: h}\n  b: {address: H}", "3: nodes.b.address: address H is that of node a"),
        (
            "nodes:\n  a: {transport: local}\n  b: {transport: local}",
            "3: nodes.b.transport: `transport: local`",
        ),
    ],
)
def test_an_inventory_that_no_fleet_can_have_is_refused(text: str, problem: str) -> None:
    Path("inventory.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        inventory.load(Path("inventory.yaml"))
    assert str(refused.value).startswith(f"inventory.yaml:{problem}")


def test_two_nodes_behind_one_address_have_ports_of_their_own() -> None:
    Path("inventory.yaml").write_text("nodes:\n  a: {address: h, port: 2201}\n  b: {address: h, port: 2202}\n")

    assert len(inventory.load(Path("inventory.yaml")).nodes) == 2


def test_a_chat_template_in_mods_needs_no_opt_in() -> None:
    Path("mods").mkdir()
    Path("mods/mine.jinja").write_text("{{ messages }}")
    image = {**RECIPE["image"], "mods": ["mine.jinja"]}

    assert load(image=image, serve={"args": {"chat-template": TEMPLATE}}).image.mod_files == ["mine.jinja"]
    assert assets.load_mods()["mine.jinja"] == b"{{ messages }}"
    with pytest.raises(ConfigError, match=r"chat-template: the image has no mine\.jinja: expected it in image\.mods"):
        load(serve={"args": {"chat-template": TEMPLATE}})


@pytest.mark.parametrize("name", ["mend.py", "diff.py", "transformers5-rope-keys.py"])
def test_a_file_in_mods_does_not_replace_a_mod_of_sparkops(name: str) -> None:
    """The working directory may be a checkout of somebody else, and the mod that of a recipe of sparkops."""
    Path("mods").mkdir()
    (Path("mods") / name).write_text("raise SystemExit")

    with pytest.raises(UsageError, match=f"mods/{name} has the name of a mod of sparkops") as refused:
        assets.load_mods()
    assert refused.value.next_step.startswith(f"Rename mods/{name}")
