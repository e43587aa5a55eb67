"""The image that fetches models: nothing but the hub's library, each package by its hash."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkops.config import assets
from sparkops.config.assets import BuildInputs, WheelFile
from sparkops.errors import UsageError
from sparkops.operator.build.hub.pull import Hub, hub_context, hub_dockerfile, hub_order
from tests.places import ROOT

TEMPLATES, PACKAGES = assets.load_templates(), assets.load_hub_packages()
COMMITTED = ROOT / "Dockerfiles/hub.Dockerfile"
INPUTS = BuildInputs(package_index="https://user:secret@index/simple", wheels=(WheelFile("x.whl", Path(), "0", 1),))


def test_the_committed_dockerfile_is_as_rendered() -> None:
    assert COMMITTED.read_text() == hub_dockerfile(TEMPLATES)


def test_every_package_has_a_version_and_hashes() -> None:
    blocks = re.split(r"\n(?=\S)", PACKAGES.decode().partition("\n")[2].strip())

    assert any(block.startswith("huggingface-hub==") for block in blocks)
    assert all(
        re.match(r"[a-z0-9-]+==[0-9.]+ \\\n( +--hash=sha256:[0-9a-f]{64}( \\)?\n?)+$", block) for block in blocks
    )
    assert "--require-hashes" in hub_dockerfile(TEMPLATES)


def test_the_build_sees_the_index_and_no_wheels_of_recipes() -> None:
    built = hub_context(TEMPLATES, PACKAGES, INPUTS)
    files = dict(built.files)

    assert b"https://user:secret@index/simple" in built.secrets["pip.conf"]
    assert not [name for name in files if name.endswith(".whl")]
    assert built.digest == hub_context(TEMPLATES, PACKAGES, BuildInputs()).digest


@pytest.mark.parametrize("endpoint", ["http://mirror.lan", "HTTP://mirror.lan:8080/x", "mirror.lan"])
def test_a_token_is_never_sent_without_encryption(endpoint: str) -> None:
    built = hub_order(TEMPLATES, PACKAGES, BuildInputs())
    with pytest.raises(UsageError, match=f"the token would be sent unencrypted to {endpoint}, expected https://"):
        Hub(built, token="secret", endpoint=endpoint)

    assert Hub(built, endpoint=endpoint).endpoint == endpoint
    assert Hub(built, token="secret", endpoint="https://mirror.lan").token == "secret"
    assert Hub(built, token="secret").endpoint == ""
