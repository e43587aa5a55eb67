"""Debian's packages in the images of the agents: another day makes another image, whose packages are installed anew."""

from __future__ import annotations

import pytest

from sparkops.config import assets
from sparkops.operator.build.gateway.files import load_program, load_templates
from sparkops.operator.build.gateway.image import gateway_context
from sparkops.operator.build.guard.image import guard_context
from sparkops.operator.build.hub.pull import hub_context
from sparkops.operator.build.render import debian
from sparkops.operator.build.render.context import Context

TEMPLATES, PACKAGE = {**assets.load_templates(), **load_templates()}, assets.load_package()
HUB, INPUTS, PROGRAM = assets.load_hub_packages(), assets.BuildInputs(), load_program()


def contexts(day: str | None) -> dict[str, Context]:
    return {
        "gateway": gateway_context(TEMPLATES, PROGRAM, day=day),
        "guard": guard_context(TEMPLATES, PACKAGE, day=day),
        "hub": hub_context(TEMPLATES, HUB, INPUTS, day=day),
    }


@pytest.mark.parametrize("agent", ["gateway", "guard", "hub"])
def test_the_day_of_the_packages_is_an_input_of_the_image(agent: str) -> None:
    assert contexts(None)[agent].digest == contexts(debian.DAY)[agent].digest
    assert contexts(None)[agent].digest != contexts("2099-01-01")[agent].digest


@pytest.mark.parametrize("agent", ["gateway", "guard", "hub"])
def test_the_base_is_upgraded_before_anything_is_installed(agent: str) -> None:
    """BuildKit keeps a layer whose text and parent are the same: the day is in the first one, so all are new."""
    dockerfile = dict(contexts("2099-01-01")[agent].files)["Dockerfile"]
    assert isinstance(dockerfile, bytes)
    first = dockerfile.decode().index("RUN ")

    assert dockerfile.decode()[first:].startswith("RUN : 2099-01-01 \\\n    && apt-get update \\\n")
    assert "apt-get -y upgrade" in dockerfile.decode().split("RUN ")[1]
    assert "apt-get install" in dockerfile.decode().split("RUN ")[2]
