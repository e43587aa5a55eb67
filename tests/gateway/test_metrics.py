"""The gateway's figures: on loopback for every program; with `monitoring`, on every address for whoever has the key."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import requests

from sparkops.config.inventory import Gateway
from sparkops.operator.build.gateway import files
from sparkops.operator.build.gateway.files import Secrets
from sparkops.operator.build.gateway.image import Service, hashed
from sparkops.operator.build.gateway.image import files as gateway_files
from tests.gateway.here import Program, moved
from tests.ports import free_port

KEY = "figures-5f0d3c1b9a7e24680"
SERVICES = [Service("chat", 9100)]


def configuration(**secrets: str) -> str:
    settings = Gateway(node="n", address="10.0.0.1")
    written = gateway_files(SERVICES, settings, Secrets(**secrets), files.load_templates())  # type: ignore[arg-type]
    return str(written["gateway.cfg"])


def test_without_monitoring_only_loopback_has_the_figures() -> None:
    assert "  bind 127.0.0.1:8405\n" in configuration()
    assert "401" not in configuration().partition("frontend metrics")[2].partition("frontend probe")[0]


def test_with_monitoring_the_configuration_has_the_hash_of_the_key_only() -> None:
    text = configuration(monitoring=KEY)

    assert "  bind :8405\n" in text
    assert KEY not in text
    assert hashed([KEY]).strip() in text


def own_address() -> str:
    """An address of this machine that is not loopback, from which a request comes as from elsewhere."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address besides loopback")
        return str(probe.getsockname()[0])


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A gateway with `monitoring`; the port of its figures."""
    state, run, port = tmp_path / "state", tmp_path / "run", free_port()
    program = Program(state, run)
    settings = Gateway(node="n", metrics_port=port)
    services = [Service("chat", free_port())]
    written = gateway_files(services, settings, Secrets(monitoring=KEY), files.load_templates())
    program.give({name: moved(text, state, run) for name, text in written.items() if text})
    with program.started():
        yield port


def scraped(address: str, port: int, header: str = "") -> int:
    headers = {"Authorization": header} if header else {}
    return requests.get(f"http://{address}:{port}/metrics", headers=headers, timeout=30).status_code


def test_other_machines_need_the_key_and_programs_of_the_node_do_not(port: int) -> None:
    address = own_address()

    assert scraped("127.0.0.1", port) == 200
    assert scraped(address, port, f"Bearer {KEY}") == 200
    for wrong in ("", "Bearer another-key-0123456789", f"Basic {KEY}", KEY):
        assert scraped(address, port, wrong) == 401


def test_one_address_that_holds_connections_does_not_keep_another_one_out(port: int) -> None:
    """Eight of one address are served, so that 68 of them do not fill the port. The others are reset, some at once."""
    address = own_address()
    with ExitStack() as held:
        for _ in range(80):
            with suppress(ConnectionResetError):
                held.enter_context(socket.create_connection((address, port)))

        assert scraped("127.0.0.1", port) == 200
