"""What takes room on a disk, as Docker Engine 26.1 counts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sparkops.prune import retention

IMAGE = "sha256:118abdad37c9e9bda598ad934ee5052ccae861dc4176ddaf892b9c35e02f0244"
CONTAINER = "01f9b73072908b4216090ab1c4ecb35790c834de47ed599092f567b8bb0d61b9"


@pytest.fixture
def image(captured: Callable[[str], str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(captured("docker-26.1-image.json"))
    return document


def test_an_image_with_its_steps(image: dict[str, Any]) -> None:
    stored_image = retention.parse_image(image["inspect"], image["history"])

    assert (stored_image.id, stored_image.tags) == (IMAGE, ("sparkops/broken:780559279b60",))
    assert stored_image.inputs.startswith("780559279b60")
    assert sum(stored_image.steps.values()) == image["inspect"]["Size"]
    assert len(stored_image.steps) == len(image["history"])


def test_an_image_is_as_young_as_its_newest_name(image: dict[str, Any]) -> None:
    inspect = {**image["inspect"], "Created": "2026-11-21T05:00:00.25Z"}
    never = {**inspect, "Metadata": {"LastTagTime": "0001-01-01T00:00:00Z"}}
    named = {**inspect, "Metadata": {"LastTagTime": "2026-11-21T06:00:00+01:00"}}
    later = {**inspect, "Metadata": {"LastTagTime": "2026-11-21T07:00:01+01:00"}}

    assert retention.parse_image(never, []).built_at == retention.parse_image(named, []).built_at == 1795237200.25
    assert retention.parse_image(later, []).built_at == 1795237200 + 3601


def test_an_image_without_a_time_is_the_oldest(image: dict[str, Any]) -> None:
    inspect = {key: value for key, value in image["inspect"].items() if key != "Created"}

    assert retention.parse_image({**inspect, "Metadata": {}}, []).built_at == 0.0
    assert retention.parse_image({**inspect, "Metadata": {"LastTagTime": "2026-11-21T06:00:00Z"}}, []).built_at > 0.0


def test_two_images_share_what_came_about_alike(image: dict[str, Any]) -> None:
    one = retention.parse_image(image["inspect"], image["history"])
    other = retention.parse_image(
        image["inspect"], [{"Created": 1, "CreatedBy": "x", "Size": 5}, *image["history"][1:]]
    )

    assert len(set(one.steps) & set(other.steps)) == len(image["history"]) - 1
    assert [other.steps[step] for step in set(other.steps) - set(one.steps)] == [5]


def test_the_usage_of_a_disk(captured: Callable[[str], str]) -> None:
    reply = json.loads(captured("docker-26.1-df.json"))
    disk = retention.parse_disk("n1", reply, [])

    assert IMAGE in disk.used
    assert disk.volumes["sparkops-cache-0123456789ab"] == 5000
    assert disk.cache + disk.cache_shared == sum(entry["Size"] for entry in reply["BuildCache"])
    assert disk.cache == sum(entry["Size"] for entry in reply["BuildCache"] if not entry["Shared"])


def test_a_container_of_sparkops_has_its_own_bytes_and_uses_no_image(captured: Callable[[str], str]) -> None:
    reply = json.loads(captured("docker-26.1-df.json"))
    inspect = {**json.loads(captured("docker-26.1-inspect-running.json")), "Id": CONTAINER}
    disk = retention.parse_disk("n1", reply, [inspect])

    assert [engine.written for engine in disk.engines] == [1_000_000]
    assert IMAGE not in disk.used
    assert IMAGE not in retention.parse_disk("n1", reply, [], [CONTAINER]).used


def test_an_empty_engine_uses_nothing() -> None:
    nothing = {"LayersSize": 0, "Images": None, "Containers": None, "Volumes": None, "BuildCache": None}

    assert retention.parse_disk("n1", nothing, []) == retention.Stored("n1")


def test_a_container_of_a_release(captured: Callable[[str], str]) -> None:
    inspect = json.loads(captured("docker-26.1-inspect-running.json"))
    counted = {"Containers": [{"Id": inspect["Id"], "ImageID": inspect["Image"], "SizeRw": 17}]}
    disk = retention.parse_disk("node-2", counted, [inspect])

    [engine] = disk.engines
    assert (disk.used, engine.written, engine.container.service) == (frozenset(), 17, "tiny")
    assert engine.created_at < engine.container.started_at
