"""Docker's reports of containers and images, as values."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sparkops.node.docker import facts
from sparkops.node.docker.facts import Container, Usage, image_content


@pytest.fixture
def inspect(captured: Callable[[str], str]) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(captured("docker-26.1-inspect-running.json"))
    return parsed


def test_a_whole_inspect(inspect: dict[str, Any]) -> None:
    assert facts.parse_container("node-2", inspect) == Container(
        name="tiny-qwen3-cpu-940eaeb127-blue-r0",
        node="node-2",
        service="tiny",
        release="tiny-qwen3-cpu-940eaeb127",
        slot="blue",
        rank=0,
        port=8001,
        inputs="8188b4b6b1af13c0c274f81e413a5bc61d3fea3cd57e0b5c3ff81237c3a5798e",
        image="sha256:1a0a8823b0ad104258ad7aa55fed5523e92e413d512dd959e314a5b7e2046b36",
        state="running",
        exit_code=0,
        oom_killed=False,
        restarts=0,
        restart_policy="no",
        started_at=1795221368.517305821,
        grace_s=60,
        created_at=1795221368.382279066,
    )


@pytest.mark.parametrize(
    ("state", "running"),
    [
        ("created", False),
        ("running", True),
        ("restarting", True),
        ("paused", True),
        ("removing", False),
        ("exited", False),
        ("dead", False),
    ],
)
def test_a_container_runs_while_it_has_a_process(inspect: dict[str, Any], *, state: str, running: bool) -> None:
    inspect["State"]["Status"] = state

    assert facts.parse_container("n1", inspect).running is running


@pytest.mark.parametrize("labels", [None, {}, {"other": "x", "sparkops.rank": "many", "sparkops.port": "-1"}])
def test_a_container_without_our_labels_can_still_be_shown(inspect: dict[str, Any], labels: dict[str, str]) -> None:
    inspect["Config"]["Labels"] = labels

    parsed = facts.parse_container("n1", inspect)

    assert (parsed.service, parsed.release, parsed.slot, parsed.rank, parsed.port) == ("", "", "", 0, 0)


def test_what_older_engines_leave_out_has_dockers_defaults(inspect: dict[str, Any]) -> None:
    del inspect["Config"]["StopTimeout"]
    inspect["HostConfig"]["RestartPolicy"]["Name"] = ""

    parsed = facts.parse_container("n1", inspect)

    assert (parsed.grace_s, parsed.restart_policy) == (10, "no")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T00:00:01.5Z", 1.5),
        ("2026-11-21T00:36:08.517305821Z", 1795221368.517305821),
        ("0001-01-01T00:00:00Z", -62135596800.0),
    ],
)
def test_docker_times_are_seconds_since_1970(text: str, seconds: float) -> None:
    assert facts.timestamp(text) == seconds


def test_a_whole_sample_of_stats(captured: Callable[[str], str]) -> None:
    stats = json.loads(captured("docker-26.1-stats.json"))

    assert facts.parse_usage(stats) == Usage(cpu_s=31.385434447, read_bytes=0, memory_bytes=2407497728 - 12828672)


def test_bytes_read_are_added_up_over_all_disks() -> None:
    operations = [
        {"major": 8, "minor": 0, "op": "Read", "value": 4096},
        {"major": 8, "minor": 0, "op": "Write", "value": 1},
        {"major": 8, "minor": 1, "op": "read", "value": 1000},
    ]

    assert facts.parse_usage({"blkio_stats": {"io_service_bytes_recursive": operations}}).read_bytes == 5096


@pytest.mark.parametrize("key", ["inactive_file", "total_inactive_file"], ids=["cgroup v2", "cgroup v1"])
def test_memory_is_counted_without_page_cache_that_nobody_uses(key: str) -> None:
    stats = {"memory_stats": {"usage": 1000, "stats": {key: 300}}}

    assert facts.parse_usage(stats).memory_bytes == 700


@pytest.mark.parametrize("stats", [{}, {"cpu_stats": {}, "blkio_stats": {"io_service_bytes_recursive": None}}], ids=str)
def test_a_container_that_has_just_ended_has_used_nothing(stats: dict[str, Any]) -> None:
    assert facts.parse_usage(stats) == Usage()


def test_the_lines_of_a_log_come_with_their_timestamps() -> None:
    text = (
        "2026-11-21T00:00:00.100000000Z first\n"
        "2026-11-21T00:00:01.200000000Z  10%\r  20%\r\n"
        "cut off by a rotation\n"
        "2026-11-21T00:00:02.300000000Z a b c\n"
        "2026-11-21T00:00:03.400000000Z \n"
    )

    assert list(facts.log_lines(text)) == [
        ("2026-11-21T00:00:00.100000000Z", "first"),
        ("2026-11-21T00:00:01.200000000Z", " 10%"),
        ("2026-11-21T00:00:01.200000000Z", "  20%"),
        ("2026-11-21T00:00:02.300000000Z", "a b c"),
    ]


IMAGE = {
    "Id": "sha256:1",
    "Os": "linux",
    "Architecture": "arm64",
    "RootFS": {"Layers": ["sha256:a"]},
    "Config": {"Env": ["A=b"], "Cmd": ["sh"], "Labels": {"x": "y"}},
}


@pytest.mark.parametrize("change", [{"Id": "sha256:2"}, {"RepoTags": ["x:y"]}, {"Created": "now"}])
def test_an_image_is_the_same_under_another_name(change: dict[str, object]) -> None:
    assert image_content({**IMAGE, **change}) == image_content(IMAGE)


@pytest.mark.parametrize(
    "change",
    [{"RootFS": {"Layers": ["sha256:b"]}}, {"Architecture": "amd64"}, {"Config": {"Env": ["A=c"], "Cmd": ["sh"]}}],
)
def test_an_image_of_other_layers_or_settings_is_another(change: dict[str, object]) -> None:
    assert image_content({**IMAGE, **change}) != image_content(IMAGE)


def test_a_line_of_a_log_is_cut_and_each_state_of_a_progress_bar_is_a_line() -> None:
    """Docker returns a line of any length, with the time of each 16 KiB of it within the line."""
    stamp = "2026-11-28T09:00:00.123456789Z"
    states = "\r".join(f"Loading {percent} %" for percent in range(1000))
    log = f"{stamp} {'a' * 5000}\n{stamp} {states}\nno time {'b' * 10}\n{stamp} last\n"

    lines = [*facts.log_lines(log)]

    assert [len(text) for _, text in lines[:2]] == [4096, 11]
    assert [text for _, text in lines[-2:]] == ["Loading 999 %", "last"]
    assert {time for time, _ in lines} == {stamp}
