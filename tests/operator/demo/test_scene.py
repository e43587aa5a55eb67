"""The files of a demonstration: an inventory of this machine, and two releases of one image."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.config import assets, inventory, recipe_file
from sparkops.config.assets import BuildInputs
from sparkops.config.inventory import Build
from sparkops.config.release import Rank, Release
from sparkops.names import Slot
from sparkops.node.agents.commands import PEER_PORT
from sparkops.operator.build.render.context import build_context
from sparkops.operator.demo import scene
from sparkops.operator.demo.scene import STAND_IN, VLLM, DemoEngine, Ports
from tests.examples import INPUTS


@pytest.mark.parametrize("engine", [STAND_IN, VLLM])
def test_both_releases_have_one_image_and_other_settings(engine: DemoEngine, tmp_path: Path) -> None:
    file = tmp_path / "demo.yaml"
    file.write_text(scene.recipe(engine, Ports(9200)))
    first, second = recipe_file.load(file, None), recipe_file.load(file, None, [engine.second])
    digests = [
        build_context(loaded, assets.load_templates(), assets.load_mods(), BuildInputs()).digest
        for loaded in (first, second)
    ]

    assert digests[0] == digests[1]
    assert Release(first, INPUTS).id != Release(second, INPUTS).id
    assert (first.service, first.extends, first.serve.port) == ("demo", engine.extends, 9200)
    assert first.swap.keep_old_s >= 300, "the rollback is a switch only while the old release runs"
    assert (first.model.path == scene.TINY_MODEL) is engine.trained


def test_the_named_ports_are_all_that_the_demonstration_uses(tmp_path: Path) -> None:
    ports = Ports(9300)
    file, text = tmp_path / "demo.yaml", scene.inventory(ports, tmp_path, Build())
    file.write_text(scene.recipe(STAND_IN, ports))
    (tmp_path / "inventory.yaml").write_text(text)
    gateway = inventory.load(tmp_path / "inventory.yaml").require_gateway()
    release = Release(recipe_file.load(file, None), INPUTS)
    engines = {Rank(release, slot, scene.NODE).port for slot in Slot}

    assert {gateway.port, gateway.metrics_port, PEER_PORT, *engines} == set(ports.words)
    assert gateway.url(9300) == "http://127.0.0.1:9300/v1"


def test_the_inventory_keeps_settings_of_builds(tmp_path: Path) -> None:
    build = Build(package_index="https://index.lan/simple", parent_images={"debian:trixie-slim": "mirror.lan/trixie"})
    (tmp_path / "inventory.yaml").write_text(scene.inventory(Ports(), tmp_path, build))

    fleet = inventory.load(tmp_path / "inventory.yaml")

    assert fleet.build == build
    assert fleet.node(scene.NODE).transport == "local"


def test_the_model_is_trained_without_network_and_rights() -> None:
    command = scene.train("sparkops/demo:1", b"print()", Path("/d/models"), "1000:1000")

    assert str(command) == (
        "docker run --rm --interactive --network=none --cap-drop=ALL --security-opt=no-new-privileges "
        "--user=1000:1000 --env=HOME=/tmp --volume=/d/models:/models --entrypoint=python sparkops/demo:1 "
        "- /models/tiny-qwen3"
    )
    assert command.stdin == b"print()"
