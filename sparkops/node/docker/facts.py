"""Docker's inspect, stats and logs of a container, and its inspect of an image, as values."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sparkops.names import LABEL

NEVER = "0001-01-01T00:00:00Z"
"""Docker's time of a start that has not happened."""


@dataclass(frozen=True)
class Container:
    """A container of sparkops. `state` is Docker's word: created, running, restarting, paused, exited, dead."""

    name: str
    node: str
    service: str
    release: str
    slot: str
    rank: int
    port: int
    inputs: str
    image: str
    state: str
    exit_code: int
    oom_killed: bool
    restarts: int
    restart_policy: str
    started_at: float
    grace_s: int
    claim_gib: float = 0.0
    ranks: int = 1
    generation: str = ""
    callers: tuple[str, ...] | None = None
    """IP addresses that may connect to its port from other nodes. None: every address; empty: loopback only."""
    rendezvous_port: int = 0
    peers: tuple[str, ...] = ()
    """Addresses of all ranks, where they are on several nodes."""
    ssh_port: int = 0
    spec: str = ""
    """SHA-256 of the spec that a guard created it from; empty for a container that no guard created."""
    created_at: float | None = None
    """When it was created, in seconds since 1970; None if Docker does not report it."""

    @property
    def running(self) -> bool:
        return self.state in ("running", "restarting", "paused")


def parse_container(node: str, inspect: Mapping[str, Any]) -> Container:
    """Read Docker's inspect. Labels that a container lacks come out empty, so that it can still be shown."""
    labels = {key.removeprefix(LABEL): value for key, value in (inspect["Config"]["Labels"] or {}).items()}
    state = inspect["State"]
    return Container(
        name=inspect["Name"].lstrip("/"),
        node=node,
        service=labels.get("service", ""),
        release=labels.get("release", ""),
        slot=labels.get("slot", ""),
        rank=_number(labels.get("rank", "")),
        port=_number(labels.get("port", "")),
        inputs=labels.get("inputs", ""),
        image=inspect["Image"],
        state=state["Status"],
        exit_code=state["ExitCode"],
        oom_killed=state["OOMKilled"],
        restarts=inspect["RestartCount"],
        restart_policy=inspect["HostConfig"]["RestartPolicy"]["Name"] or "no",
        started_at=timestamp(state["StartedAt"]),
        grace_s=inspect["Config"].get("StopTimeout") or 10,
        claim_gib=float(labels.get("claim-gib") or 0.0),
        ranks=_number(labels.get("ranks", "1")),
        generation=labels.get("generation", ""),
        callers=tuple(filter(None, labels["callers"].split(","))) if "callers" in labels else None,
        rendezvous_port=_number(labels.get("meeting-port", "")),
        ssh_port=_number(labels.get("ssh-port", "")),
        peers=tuple(filter(None, labels.get("peers", "").split(","))),
        spec=labels.get("spec", ""),
        created_at=timestamp(inspect["Created"]) if "Created" in inspect else None,
    )


def parse_listed(node: str, listed: Mapping[str, Any]) -> Container:
    """Read an item of Docker's list: labels and state. How a container started and ended is not in it.

    One whose removal has failed may have no name there (state dead): its ID stands for it.
    """
    state = {"Status": listed["State"], "ExitCode": 0, "OOMKilled": False, "StartedAt": NEVER}
    name = next((name for name in listed["Names"] if name.count("/") == 1), listed.get("Id", ""))  # not that of a link
    inspect = {"Name": name, "Config": {"Labels": listed["Labels"]}, "State": state, "Image": listed["ImageID"]}
    container = parse_container(node, {**inspect, "RestartCount": 0, "HostConfig": {"RestartPolicy": {"Name": ""}}})
    return replace(container, created_at=float(listed["Created"]))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def timestamp(text: str) -> float:
    """Return Docker's RFC 3339 time in seconds since 1970. Python does not read its nanoseconds."""
    moment, _, fraction = text.rstrip("Z").partition(".")
    seconds = datetime.fromisoformat(f"{moment}+00:00").timestamp()
    return seconds + float(f"0.{fraction or 0}")


@dataclass(frozen=True)
class Usage:
    """Seconds of CPU and bytes read since the start of a container; memory now, without inactive page cache."""

    cpu_s: float = 0.0
    read_bytes: int = 0
    memory_bytes: int = 0


def parse_usage(stats: Mapping[str, Any]) -> Usage:
    """Read one sample of Docker's stats."""
    nanoseconds = stats.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage", 0)
    operations = stats.get("blkio_stats", {}).get("io_service_bytes_recursive") or ()
    read = sum(operation["value"] for operation in operations if operation["op"].lower() == "read")
    memory = stats.get("memory_stats", {})
    details = memory.get("stats", {})
    cache = details.get("total_inactive_file", details.get("inactive_file", 0))  # cgroup v1, v2
    return Usage(nanoseconds / 1e9, read, max(0, memory.get("usage", 0) - cache))


STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,32}Z")
LINE_CHARACTERS = 4096
"""Most characters of a line of a log that are read. An engine may print a line of any length, and Docker returns it."""


def log_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield timestamp and text of each line of a log, cut to LINE_CHARACTERS.

    A progress bar redraws its line after carriage returns.
    """
    for record in text.split("\n"):
        stamp, _, line = record.partition(" ")
        if STAMP.fullmatch(stamp):
            yield from ((stamp, part[:LINE_CHARACTERS]) for part in line.split("\r") if part)


IMAGE_SETTINGS = ("Env", "Entrypoint", "Cmd", "User", "WorkingDir", "Healthcheck")
"""Settings of an image that decide which programs a container runs."""


def image_content(inspect: Mapping[str, Any]) -> str:
    """Return a digest of the layers and settings of an image. Its ID differs between Docker's two image stores."""
    settings = {key: inspect["Config"].get(key) for key in IMAGE_SETTINGS}
    parts = {key: inspect[key] for key in ("Os", "Architecture", "RootFS")}
    return hashlib.sha256(json.dumps({**parts, "Config": settings}, sort_keys=True).encode()).hexdigest()
