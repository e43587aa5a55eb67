"""Run the smoke suite on an engine of this node, over localhost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

from sparkops.config.inventory import NodeConfig
from sparkops.config.recipe import Recipe
from sparkops.docker.facts import Container
from sparkops.nodes.connected import Member
from sparkops.nodes.docker_api import Engine
from sparkops.nodes.http import session
from sparkops.nodes.local import LocalNode
from sparkops.smoke import suite
from sparkops.smoke.probing import restarts
from sparkops.smoke.results import SmokeReport
from sparkops.smoke.suite import Server


def prove(
    node: LocalNode, container: Container, recipe: Recipe, show: Callable[[str], None], cancel: threading.Event
) -> SmokeReport:
    """Return the report of the passes that the recipe requires. A failed pass is repeated once before the verdict.

    Raises Interrupted once `cancel` is set, StartFailed if the container is gone, NotReady, ConnectionLost.
    """
    with closing(Engine(node)) as engine:
        member = Member(node.name, NodeConfig(transport="local"), node, engine)
        server = Server(
            open=lambda: session(node, container.port),
            recipe=recipe,
            restarts=lambda: restarts(member, container.name) - container.restarts,
            cancel=cancel,
        )
        report = suite.run(server, lambda verdict: show(str(verdict)))
        if report.ok:
            return report
        show(f"repeating a failed pass: {report.failure}")
        return suite.run(server, lambda verdict: show(str(verdict)), recipe.probe.passes - report.passes)
