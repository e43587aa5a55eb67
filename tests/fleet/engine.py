"""The host's Docker Engine: there already, or installed and started."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .shell import (
    SEARCH_PATH,
    FleetError,
    client,
    detach,
    docker,
    run,
    say,
    seconds_since,
    step,
)

LOG = Path("/var/log/dockerd.log")
PATIENCE_S = 300
LOCK = Path(tempfile.gettempdir(), "sparkops-fleet-engine.lock")
PACKAGES = {"dockerd": "docker.io", "iptables": "iptables"}
PID_FILE = Path("/var/run/docker.pid")
CONTAINERD_PID_FILE = Path("/var/run/docker/containerd/containerd.pid")


def ensure() -> None:
    if answers():
        return
    require(PACKAGES)
    start = time.monotonic()
    with one_at_a_time():
        if not answers():  # installing the package starts it where an init system runs
            launch()
        wait(start)
    say(f"host: Docker Engine {version()} answers after {seconds_since(start)} s")


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait for the test workers: apt-get refuses a second run beside the first, and so does dockerd."""
    with LOCK.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def answers() -> bool:
    try:
        client()
    except FleetError:
        return False
    return True


def version() -> str:
    return docker("version", "--format", "{{.Server.Version}}")


def require(needs: dict[str, str]) -> None:
    """Install what is missing; a key is a command, or the path of a file."""
    with one_at_a_time():
        missing = sorted({package for need, package in needs.items() if not present(need)})
        if missing:
            install(missing)


def install(packages: list[str]) -> None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise FleetError(
            f"this machine lacks {', '.join(packages)} (names of Debian's packages): "
            "install and start them, or run this as root on Debian or Ubuntu"
        )
    with step(f"host: installed {', '.join(packages)}"):
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "-qq", "update", env=quiet)
        run("apt-get", "-qq", "install", "--no-install-recommends", *packages, env=quiet)


def present(need: str) -> bool:
    if need.startswith("/"):
        return Path(need).exists()
    return shutil.which(need, path=SEARCH_PATH) is not None


def launch() -> None:
    if os.geteuid() != 0:
        raise FleetError("no Docker Engine answers: start it, let this user use it, or run this as root")
    if Path("/run/systemd/system").is_dir():
        run("systemctl", "start", "docker")
    elif not starting():
        # What a reboot or a kill left: dockerd refuses to start when another has the number now.
        PID_FILE.unlink(missing_ok=True)
        if not alive(CONTAINERD_PID_FILE, "containerd"):
            CONTAINERD_PID_FILE.unlink(missing_ok=True)
        detach(("dockerd",), LOG)


def starting() -> bool:
    """Is a dockerd there that does not answer yet? Its number may be another's by now."""
    return alive(PID_FILE, "dockerd")


def alive(file: Path, name: str) -> bool:
    try:
        _, rest = Path("/proc", file.read_text().strip(), "stat").read_text().split("(", 1)
    except OSError:
        return False
    comm, state, *_ = rest.replace(")", "").split()
    return comm == name and state != "Z"  # a zombie: dead, and nobody has asked how


def wait(start: float) -> None:
    while not answers():
        if time.monotonic() - start > PATIENCE_S:
            raise FleetError(f"dockerd does not answer after {PATIENCE_S} s: read {LOG} for its reason")
        time.sleep(0.2)
