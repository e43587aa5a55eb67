"""The inventory's section, and the files that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.config import inventory
from sparkops.config.inventory import Fleet
from sparkops.errors import ConfigError
from sparkops.operator.build.gateway import files
from sparkops.operator.build.gateway.files import Secrets

NODES = "nodes:\n  a: {address: 10.0.0.1}\n"
KEY = "sk-0123456789abcdef"
PEM = "-----BEGIN CERTIFICATE-----\nx\n-----BEGIN PRIVATE KEY-----\ny\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(gateway: str) -> Fleet:
    Path("inventory.yaml").write_text(f"{NODES}{gateway}")
    return inventory.load(Path("inventory.yaml"))


def secret(name: str, text: str, mode: int = 0o600) -> None:
    Path(name).write_text(text)
    Path(name).chmod(mode)


def test_a_fleet_needs_no_gateway() -> None:
    fleet = load("")

    assert fleet.gateway is None
    assert files.load_secrets(fleet) == Secrets()


def test_clients_use_the_address_of_the_node_unless_another_is_named() -> None:
    plain, named = load("gateway: {node: a}\n").gateway, load("gateway: {node: a, address: llm.example}\n").gateway

    assert plain
    assert (plain.address, plain.metrics_port, plain.url(8000)) == ("10.0.0.1", 8405, "http://10.0.0.1:8000/v1")
    assert named
    assert named.address == "llm.example"


def test_a_gateway_on_an_absent_node_is_named_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"^inventory.yaml:4: gateway.node: unknown node 'b', expected one of: a$"):
        load("gateway:\n  node: b\n")


def test_keys_and_certificate_are_read_from_files_beside_the_inventory() -> None:
    secret("one.key", f"{KEY}\n")
    secret("tls.pem", PEM)
    fleet = load("gateway: {node: a, api_keys: [one.key], tls_certificate: tls.pem}\n")

    assert files.load_secrets(fleet) == Secrets((KEY,), PEM)


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        (KEY, 0o644, "is readable by other users: chmod 600 "),
        (KEY, 0o640, "is readable by other users: chmod 600 "),
        ("", 0o600, "one.key has no valid key: expected one line of 16 to 512 letters"),
        ("short-secret", 0o600, "one.key has no valid key"),
        (f"{KEY}\n{KEY}\n", 0o600, "one.key has no valid key"),
        (f"{KEY} x", 0o600, "one.key has no valid key"),
    ],
)
def test_a_key_file_that_is_wrong_is_named_and_never_shown(text: str, mode: int, problem: str) -> None:
    secret("one.key", text, mode)
    fleet = load("gateway:\n  node: a\n  api_keys:\n    - one.key\n")

    with pytest.raises(ConfigError) as caught:
        files.load_secrets(fleet)

    assert str(caught.value).startswith("inventory.yaml:6: gateway.api_keys[0]: ")
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"gateway.api_keys\[0\]: .*/none cannot be read: No such file"):
        files.load_secrets(load("gateway: {node: a, api_keys: [none]}\n"))


def test_a_certificate_without_its_key_is_refused() -> None:
    secret("tls.pem", PEM.splitlines()[0])

    with pytest.raises(ConfigError, match=r"tls\.pem: expected a PEM certificate and its private key"):
        files.load_secrets(load("gateway: {node: a, tls_certificate: tls.pem}\n"))
