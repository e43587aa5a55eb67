"""Which images are of sparkops, as Docker Engine 26.1 describes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sparkops.operator.deploy.prune import stored
from sparkops.operator.deploy.prune.stored import StoredImage


@pytest.fixture
def inspect(captured: Callable[[str], str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(captured("docker-26.1-image.json"))["inspect"]
    return document


def parsed(inspect: dict[str, Any], **changes: Any) -> StoredImage:
    image = stored.parse_image({**inspect, **changes})
    assert image is not None
    return image


def test_an_image_with_its_tags_and_inputs(inspect: dict[str, Any]) -> None:
    image = parsed(inspect)

    assert (image.id, image.tags) == (inspect["Id"], ("sparkops/broken:780559279b60",))
    assert image.inputs.startswith("780559279b60")


def test_an_image_is_as_young_as_its_newest_name(inspect: dict[str, Any]) -> None:
    inspect["Created"] = "2026-11-21T05:00:00.25Z"
    never, named, later = ("0001-01-01T00:00:00Z", "2026-11-21T06:00:00+01:00", "2026-11-21T07:00:01+01:00")

    assert parsed(inspect, Metadata={"LastTagTime": never}).named_s == 1795237200.25
    assert parsed(inspect, Metadata={"LastTagTime": named}).named_s == 1795237200.25
    assert parsed(inspect, Metadata={"LastTagTime": later}).named_s == 1795237200 + 3601


def test_an_image_without_a_time_is_the_oldest(inspect: dict[str, Any]) -> None:
    del inspect["Created"]

    assert parsed(inspect, Metadata={}).named_s == 0.0


def test_an_image_of_another_program_is_none_of_sparkops(inspect: dict[str, Any]) -> None:
    unlabelled = {**inspect["Config"], "Labels": None}

    assert stored.parse_image({**inspect, "RepoTags": ["mine:1"]}) is None
    assert stored.parse_image({**inspect, "RepoTags": None, "Config": unlabelled}) is None
    assert parsed(inspect, RepoTags=None).tags == ()
    assert parsed(inspect, RepoTags=["mine:1", "sparkops-candidate/q:1"]).own_tags == ("sparkops-candidate/q:1",)
