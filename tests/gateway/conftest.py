"""One gateway for all tests of this package that need a real one, on a node that nobody else uses."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkops.config import inventory
from sparkops.config.inventory import Gateway
from sparkops.gateway import commands
from sparkops.names import Slot
from sparkops.operator.build.gateway import files
from sparkops.operator.build.gateway import image as render
from sparkops.operator.build.gateway.files import Secrets
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.fleet.connected import connect
from tests.fleet.fleet import Fleet
from tests.gateway.here import PROGRAM
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


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module `disk` of the program with a state of its own, that knows one service."""
    for name in ("state", "run"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(f"GATEWAY_{name.upper()}", str(tmp_path / name))
    monkeypatch.syspath_prepend(PROGRAM)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.import_module("disk")
    config = render.config([Service("chat", 8000)], Gateway(node="n"), files.load_templates())
    for name, text in config.items():
        module.put(module.STATE / name, text)
    yield module
    for name in ("disk", "store"):
        del sys.modules[name]
