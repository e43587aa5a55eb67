"""What a connection needs to know of the nodes of a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Route(Protocol):
    """The way to one node; None takes the default of config.inventory."""

    @property
    def address(self) -> str:
        """Host name or IP address."""

    @property
    def transport(self) -> str:
        """`ssh`, or `local` for this machine."""

    @property
    def user(self) -> str | None:
        """SSH user."""

    @property
    def port(self) -> int | None:
        """SSH port."""

    @property
    def ssh_key(self) -> str | None:
        """Private key file."""

    @property
    def jump(self) -> str | None:
        """The node through which this one is reached."""


class GatewayPlace(Protocol):
    """The gateway of an inventory, or of the light reading of one."""

    @property
    def node(self) -> str:
        """Name of its node."""

    @property
    def address(self) -> str | None:
        """Host name or IP address that clients use."""

    @property
    def port(self) -> int | None:
        """Port of one address for all services."""

    def url(self, port: int) -> str:
        """Return the base URL for OpenAI clients of the service on `port`."""


class Routes(Protocol):
    """The ways to all nodes: an inventory, or the light reading of one."""

    @property
    def file(self) -> Path:
        """The inventory."""

    @property
    def known_hosts(self) -> Path:
        """File of pinned host keys."""

    def node(self, name: str) -> Route:
        """Return the way to a node. Raises UsageError for an unknown name."""

    def resolve(self, path: str) -> Path:
        """Return a path of the inventory, seen from the inventory's directory."""
