"""A connected node. Guards import this: connecting, with SSH, is in operator/fleet/connected.py."""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.config.node import NodeConfig
from sparkops.node.docker_api import Engine
from sparkops.node.node import Node


@dataclass(frozen=True)
class Member:
    """A connected node and the reader of its Docker."""

    name: str
    config: NodeConfig
    node: Node
    engine: Engine
