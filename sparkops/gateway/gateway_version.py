"""The gateway as a program on its node replaces it. Guards import this, so it builds no image."""

from __future__ import annotations

from sparkops.errors import NodeError
from sparkops.gateway import commands
from sparkops.gateway.facts import GatewayFacts, parse_gateway
from sparkops.names import GATEWAY
from sparkops.node.agents.replaceable import Replaceable
from sparkops.node.node import Node


def gateway_version(node: str, inputs: str, memory_mib: str) -> Replaceable:
    """Return the gateway of a node, from an image with these inputs.

    Two gateways of one volume may run at once: HAProxy binds its ports with SO_REUSEPORT, so that the kernel shares
    connections between processes of one user; sockets and maps are in memory of each container, and the files of the
    volume change under one lock. A gateway that is stopped closes its ports at once, and finishes its requests.
    """
    mib = int(memory_mib)
    return Replaceable(
        name=GATEWAY,
        container=commands.CONTAINER,
        labels=commands.labels(inputs, mib),
        run=lambda image: commands.run(image, inputs, mib),
        ready=lambda reached: require_loaded(reached, empty=True),
        stop_s=commands.STOP_S,
        overlaps=True,
        arguments=(GATEWAY, node, inputs, memory_mib),
    )


def gateway_facts(node: Node) -> GatewayFacts:
    """Return the state of a node's gateway. Raises NodeError, and ValueError for an unexpected reply."""
    return parse_gateway(node.run(commands.SHOW).stdout)


def require_loaded(node: Node, *, empty: bool = False) -> GatewayFacts:
    """Return the state of a node's gateway. Raises NodeError unless HAProxy runs with its files, and ValueError.

    With `empty` it may also wait for its first files.
    """
    facts = gateway_facts(node)
    if (facts.files or not empty) and (facts.problem or not facts.loaded):
        raise NodeError(node.name, facts.problem or "HAProxy does not run with its files")
    return facts
