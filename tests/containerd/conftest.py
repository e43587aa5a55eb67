"""Nodes whose engines use containerd's image store, for the same tests as those with Docker's own in tests/real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkops.config import inventory
from sparkops.config.inventory import Fleet
from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import Store
from tests.real.conftest import anywhere, service, stand_in, swept
from tests.real.program import Cli

__all__ = ["anywhere", "service", "stand_in"]


@pytest.fixture(scope="package")
def nodes() -> Iterator[RealFleet]:
    """A fleet of two beside that of the worker: whichever worker runs these tests, their store is containerd's.

    After the last of them it stops: other fleets need the cores that its guards, gateway and engines would take.
    """
    nodes = RealFleet.up(2, root=CHECKOUT / ".fleet/containerd", store=Store.CONTAINERD)
    yield nodes
    nodes.stop()


@pytest.fixture(scope="package")
def sparkops(nodes: RealFleet, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return Cli(nodes.inventory, tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="package")
def fleet(nodes: RealFleet) -> Fleet:
    """The inventory as sparkops reads it."""
    return inventory.load(nodes.inventory)


@pytest.fixture(scope="package")
def front(nodes: RealFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """sparkops with a gateway on node-1, and the stand-in's image on both nodes."""
    yield from swept(nodes, tmp_path_factory.mktemp("front"))
