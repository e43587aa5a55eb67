"""The addresses of an inventory, read without its checks: the first connections need no more.

config.inventory reads the same file with all checks and errors, before anything is printed. Digests of inventories that
passed are kept, so that `status` need not repeat the checks.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sparkops import __version__
from sparkops.config import files
from sparkops.errors import UsageError
from sparkops.names import host_port

MAX_BYTES = 64 * 1024
MAX_DIGESTS = 64
KINDS: Mapping[str, type] = {"address": str, "transport": str, "user": str, "port": int, "ssh_key": str}


@dataclass(frozen=True)
class Address:
    """How to reach one node, as config.node.NodeConfig has it."""

    address: str = "127.0.0.1"
    transport: str = "ssh"
    user: str | None = None
    port: int | None = None
    ssh_key: str | None = None
    jump: None = None
    """Always None: config.inventory reads and checks inventories with jumps."""


def gateway_url(address: str, port: int, *, encrypted: bool) -> str:
    """Return the base URL for OpenAI clients of the service on `port` of the gateway."""
    return f"{'https' if encrypted else 'http'}://{host_port(address, port)}/v1"


@dataclass(frozen=True)
class GatewayAddress:
    """How clients reach the gateway, as config.inventory.Gateway has it. `encrypted`: it uses TLS."""

    node: str
    address: str
    port: int | None = None
    encrypted: bool = False

    def url(self, port: int) -> str:
        return gateway_url(self.address, self.port or port, encrypted=self.encrypted)


@dataclass(frozen=True)
class Addresses:
    """How to reach all nodes, and the gateway if there is one. `text` is the inventory."""

    file: Path
    nodes: Mapping[str, Address]
    known_hosts: Path
    gateway: GatewayAddress | None = None
    text: bytes = b""

    def node(self, name: str) -> Address:
        if name not in self.nodes:
            raise UsageError(f"{self.file}: unknown node '{name}'")
        return self.nodes[name]

    def resolve(self, path: str) -> Path:
        return _resolved(self.file, path)


def read(file: Path) -> Addresses | None:
    """Return the addresses of an inventory; None for a file that only config.inventory can read or refuse."""
    try:
        text = files.read(file, MAX_BYTES)
        data: Any = yaml.load(text, Loader=_Loader) if len(text) <= MAX_BYTES else {}  # noqa: S506 - a safe loader
        defaults = data.get("defaults") or {}
        nodes = {name: _address(node, defaults) for name, node in data["nodes"].items()}
        gateway = _gateway(data["gateway"], nodes) if data.get("gateway") else None
        return Addresses(file, nodes, _resolved(file, data.get("known_hosts", "known_hosts")), gateway, text)
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _resolved(file: Path, path: str) -> Path:
    return (file.parent / Path(path).expanduser()).absolute()


def _address(node: Mapping[str, Any], defaults: Mapping[str, Any]) -> Address:
    """Return a node's address with the defaults. Raises TypeError for a jump node and for values of another type."""
    settings = {key: value for key, value in [*defaults.items(), *node.items()] if value is not None}
    address = {key: settings[key] for key in (*KINDS, "jump") if key in settings}
    if any(type(value) is not KINDS.get(key) for key, value in address.items()):
        raise TypeError(str(address))
    if "address" not in address and address.get("transport") != "local":
        raise TypeError("no address")
    return Address(**address)


def _gateway(settings: Mapping[str, Any], nodes: Mapping[str, Address]) -> GatewayAddress:
    node = settings["node"]
    address, encrypted = settings.get("address") or nodes[node].address, bool(settings.get("tls_certificate"))
    return GatewayAddress(node, address, settings.get("port"), encrypted)


def is_checked(text: bytes) -> bool:
    """Return whether an inventory of that text passed the checks of this version."""
    return _digest(text) in _digests()


def note_checked(text: bytes) -> None:
    """Record that an inventory of that text passed. If nothing can be written, every call checks it."""
    digests = [digest for digest in _digests() if digest != _digest(text)]
    with suppress(OSError):
        _digests_file().parent.mkdir(parents=True, exist_ok=True)
        _digests_file().write_text("".join(f"{digest}\n" for digest in [*digests, _digest(text)][-MAX_DIGESTS:]))


def _digests() -> list[str]:
    try:
        return _digests_file().read_text().splitlines()
    except (OSError, ValueError):
        return []


def _digest(text: bytes) -> str:
    return hashlib.sha256(f"{__version__}\n".encode() + text).hexdigest()


def _digests_file() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "sparkops" / "checked-inventories"
