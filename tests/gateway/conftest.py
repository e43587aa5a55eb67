"""One gateway for all tests of this package that need a real one, on a node that nobody else uses."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sparkops.config import inventory
from sparkops.config.inventory import Gateway
from sparkops.gateway import commands
from sparkops.names import Slot
from sparkops.operator.build.gateway.files import Secrets
from sparkops.operator.fleet.connected import connect
from tests.fleet.fleet import Fleet
from tests.gateway.live import METRICS, Live

NAME = f"gateway-{os.getpid()}"


@pytest.fixture(scope="package")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The gateway as it is after its first start, with one service that nobody serves."""
    fleet = Fleet.up(2)
    machine = fleet.add(NAME, suites=("bookworm",))
    try:
        file = fleet.write_inventory(tmp_path_factory.mktemp("gateway") / "inventory.yaml", [machine])
        with connect(inventory.load(file)) as connected:
            live = Live(machine, connected.members[NAME])
            live.run(commands.run(live.build(), "0" * 64))
            live.configure()
            yield live
    finally:
        fleet.remove(NAME)


@pytest.fixture(scope="package")
def engines(alone: Live) -> Iterator[Live]:
    """The gateway with an engine in each slot."""
    with alone.engine("blue", 9311), alone.engine("green", 9312):
        for slot in Slot:
            alone.point(slot)
        yield alone


@pytest.fixture
def live(engines: Live) -> Iterator[Live]:
    """The gateway with blue serving, and afterwards as it was."""
    engines.switch(Slot.BLUE)
    yield engines
    if engines.gateway.api_keys or engines.gateway.tls_certificate:
        engines.gateway, engines.secrets = Gateway(node="n", metrics_port=METRICS), Secrets()
        engines.configure()
