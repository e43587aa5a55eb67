"""What every test is: a unit test, unless it is marked otherwise or lies where real programs run."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.fleet.scheduling import ByFleet, order
from tests.places import CAPTURED

TIMEOUT_S = 300  # only a hang takes so long: the slowest takes 24 s on two quiet cores, and several times that in CI
TESTS = Path(__file__).parent
LOCAL = {
    "config/test_addresses_checked.py",
    "config/test_source.py",
    "docs",
    "doctor/test_machine.py",
    "engine/test_endpoints.py",
    "fleet_unit",
    "gateway",
    "guard",
    "operator/fleet/test_connect.py",
    "node/test_docker_api.py",
    "operator/fleet/test_host_keys.py",
    "node/test_http.py",
    "node/test_local.py",
    "operator/fleet/test_ssh.py",
    "node/test_streams.py",
    "operator/fleet/test_trace.py",
    "operator/build/guard/test_image.py",
    "operator/build/hub/test_pull.py",
    "operator/build/images/test_build.py",
    "operator/build/images/test_load.py",
    "operator/build/weights/test_copy.py",
    "operator/build/weights/test_describe.py",
    "operator/build/weights/test_look.py",
    "operator/build/weights/test_scripts.py",
    "operator/cli/test_recipes.py",
    "operator/cli/test_setup.py",
    "operator/cli/test_verbose.py",
    "operator/cli/test_verbs.py",
    "operator/demo/traffic",
    "operator/deploy/test_fitting.py",
    "operator/deploy/test_node_checks.py",
    "operator/fleet/guards/test_leader.py",
    "operator/fleet/guards/test_leases.py",
    "operator/fleet/network/test_preflight.py",
    "operator/fleet/transfer",
    "operator/status/test_read.py",
    "operator/status/test_unused.py",
    "packaging",
    "serving/smoke",
    "standin",
}
"""Tests that run real programs, sockets and servers on this machine, or read whole corpora: for seconds."""
WHOLE_FILE = "\npytestmark = pytest.mark.local"
"""How a file marks all its tests."""

settings.register_profile("unit", deadline=None, max_examples=5)
settings.register_profile("thorough", deadline=None, max_examples=10)
settings.register_profile("fuzz", deadline=None, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "unit"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "unit: every test that is not marked otherwise; all of them take seconds")
    config.addinivalue_line("markers", "local: runs real programs and servers on this machine, without Docker")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m unit` what is none is not even imported: the fast loop is to stay fast."""
    if config.option.markexpr != "unit":
        return None
    is_local = collection_path.suffix == ".py" and WHOLE_FILE in collection_path.read_text()
    return (
        True
        if is_local
        or (LOCAL | {"containerd", "real", "lab/gpu", "lab/clients", "lab/browser"}) & _below(collection_path)
        else None
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector not walk through modules and tests again and again: they stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFleet | None:
    return ByFleet(config, log) if _on_nodes(config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _on_nodes(config):
        items.sort(key=lambda item: order(item.nodeid))
    for item in items:
        if any(item.get_closest_marker(marker) for marker in ("fleet", "vllm", "gpu", "clients", "browser")):
            continue
        here = item.get_closest_marker("local") or LOCAL & _below(item.path)
        item.add_marker(pytest.mark.local if here else pytest.mark.unit)
        item.add_marker(pytest.mark.timeout(TIMEOUT_S))


def _on_nodes(config: pytest.Config) -> bool:
    return any(marker in config.option.markexpr for marker in ("fleet", "matrix", "vllm"))


def _below(path: Path) -> set[str]:
    """Return a path and its directories as LOCAL names them: `nodes/test_ssh.py` and `nodes`."""
    if not path.is_relative_to(TESTS):
        return set()
    below = path.relative_to(TESTS)
    return {below.as_posix(), *(parent.as_posix() for parent in below.parents)}


@pytest.fixture(scope="session")
def captured() -> Callable[[str], str]:
    """Captured outputs by file name; tests/captured/README.md states where each comes from."""

    def read(name: str) -> str:
        # read_text() would end a line at each return of a progress bar
        return (CAPTURED / name).read_bytes().decode()

    return read
