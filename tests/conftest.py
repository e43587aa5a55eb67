"""What every test is: a unit test, unless it is marked otherwise or lies where real programs run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

TIMEOUT_S = 60
LOCAL = {"fleet_unit", "gateway", "guard", "load", "models", "nodes", "probes", "standin"}
"""Directories whose tests run real programs, sockets and servers on this machine, each for its own seconds."""

settings.register_profile("unit", deadline=None, max_examples=5)
settings.register_profile("thorough", deadline=None, max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "unit"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "unit: every test that is not marked otherwise; all of them take seconds")
    config.addinivalue_line("markers", "local: runs real programs and servers on this machine, without Docker")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m unit` what is none is not even imported: the fast loop is to stay fast."""
    if config.option.markexpr == "unit" and (LOCAL | {"real"}) & set(collection_path.parts):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("fleet") or item.get_closest_marker("vllm"):
            continue
        here = item.get_closest_marker("local") or LOCAL & set(item.path.parts)
        item.add_marker(pytest.mark.local if here else pytest.mark.unit)
        item.add_marker(pytest.mark.timeout(TIMEOUT_S))
