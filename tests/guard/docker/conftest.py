"""The stand-in's image on this machine, and a follower that starts with nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkops.guard.follow import filter as ports
from tests.fleet import engine
from tests.guard.docker import here
from tests.guard.docker.here import Here


@pytest.fixture(scope="session")
def stand_in() -> str:
    engine.ensure()
    engine.require({"nft": "nftables"})
    return here.image()


@pytest.fixture
def guard(stand_in: str, tmp_path: Path) -> Iterator[Here]:
    here.sweep()
    local_guard = Here(tmp_path / "v2", stand_in)
    yield local_guard
    local_guard.follower.close()
    here.sweep()
    ports.close_ports(local_guard.node)
