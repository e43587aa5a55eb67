"""Nodes whose engines use containerd's image store, for the same tests as those with Docker's own in tests/real."""

from __future__ import annotations

import pytest

from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import Store
from tests.real.conftest import anywhere, fleet, front, service, sparkops, stand_in

__all__ = ["anywhere", "fleet", "front", "service", "sparkops", "stand_in"]


@pytest.fixture(scope="session")
def nodes() -> RealFleet:
    """A fleet of two beside that of the worker: whichever worker runs these tests, their store is containerd's."""
    return RealFleet.up(2, root=CHECKOUT / ".fleet/containerd", store=Store.CONTAINERD)
