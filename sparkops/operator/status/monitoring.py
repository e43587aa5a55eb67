"""Files for Prometheus and Grafana: those of templates/monitoring/, with the addresses of the inventory.

The rules are over what guards (guard/report/exposition.py) and HAProxy serve.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from sparkops.config import shipped
from sparkops.config.inventory import Fleet
from sparkops.config.node import LOOPBACK
from sparkops.names import host_port
from sparkops.operator.build.render.sandbox import fill

PROMETHEUS, ALERTS, DASHBOARD = "prometheus.yml", "sparkops-alerts.yml", "sparkops-dashboard.json"
TEMPLATE = f"monitoring/{PROMETHEUS}.j2"
Target = tuple[str, str]
"""Address with port, and name of a node, as YAML."""


def files(fleet: Fleet) -> dict[str, str]:
    """Return the files by name. Without `monitoring`, only the gateway is scraped, by a Prometheus on its node."""
    templates = shipped.directory("templates")
    scraping = fill(
        TEMPLATE,
        {TEMPLATE: (templates / TEMPLATE).read_text()},
        key=_yaml(str(fleet.resolve(fleet.monitoring.key))) if fleet.monitoring else "",
        guards=[*_guards(fleet)],
        gateway=[*_gateway(fleet)],
    )
    shown = {name: (templates / "monitoring" / name).read_text() for name in (ALERTS, DASHBOARD)}
    return {PROMETHEUS: scraping, **shown}


def _guards(fleet: Fleet) -> Iterator[Target]:
    if fleet.monitoring:
        for name, node in fleet.nodes.items():
            yield _target(node.address, fleet.monitoring.port, name)


def _gateway(fleet: Fleet) -> Iterator[Target]:
    if gateway := fleet.gateway:
        address = fleet.node(gateway.node).address if fleet.monitoring else LOOPBACK
        yield _target(address, gateway.metrics_port, gateway.node)


def _target(address: str, port: int, node: str) -> Target:
    return _yaml(host_port(address, port)), _yaml(node)


def _yaml(text: str) -> str:
    """Return a text in double quotes, which YAML reads as JSON does."""
    return json.dumps(text, ensure_ascii=False)
