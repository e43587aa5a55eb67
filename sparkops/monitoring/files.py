"""The files that `sparkops monitoring` writes: scrape configuration, alert rules and dashboard. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from sparkops.config.inventory import LOOPBACK, Fleet, Gateway
from sparkops.monitoring.alerts import rules
from sparkops.monitoring.dashboard import dashboard

PROMETHEUS, ALERTS, DASHBOARD = "prometheus.yml", "sparkops-alerts.yml", "sparkops-dashboard.json"
INTERVAL_S = 15
"""Seconds between two scrapes. A guard samples the engines as often (guard/node_report.py)."""
HEAD = "# Written by `sparkops monitoring` from the inventory; docs/monitoring.md explains it.\n"


def files(fleet: Fleet) -> dict[str, str]:
    """Return the files by name. Without `monitoring`, only the gateway is scraped, by a Prometheus on its node."""
    return {
        PROMETHEUS: HEAD + _yaml(scraping(fleet)),
        ALERTS: HEAD + _yaml(rules()),
        DASHBOARD: json.dumps(dashboard(), indent=2) + "\n",
    }


def scraping(fleet: Fleet) -> dict[str, Any]:
    """Return the configuration of Prometheus. It reads the key from the file that the inventory names."""
    every = f"{INTERVAL_S}s"
    return {
        "global": {"scrape_interval": every, "scrape_timeout": "10s", "evaluation_interval": every},
        "rule_files": [ALERTS],
        "scrape_configs": [*_guards(fleet), *(_gateway(fleet, fleet.gateway) if fleet.gateway else ())],
    }


def _guards(fleet: Fleet) -> list[dict[str, Any]]:
    if fleet.monitoring is None:
        return []
    port = fleet.monitoring.port
    targets = [_target(node.address, port, name) for name, node in fleet.nodes.items()]
    return [{"job_name": "sparkops-guard", **_authorization(fleet), "static_configs": targets}]


def _gateway(fleet: Fleet, gateway: Gateway) -> list[dict[str, Any]]:
    """Return the jobs of HAProxy's figures, and of the requests that wait for a release."""
    address = fleet.node(gateway.node).address if fleet.monitoring else LOOPBACK
    scraped = {
        **_authorization(fleet),
        "static_configs": [_target(address, gateway.metrics_port, gateway.node)],
    }
    return [
        {"job_name": "sparkops-gateway", **scraped},
        {"job_name": "sparkops-gateway-waiting", "metrics_path": "/metrics/waiting", **scraped},
    ]


def _authorization(fleet: Fleet) -> dict[str, Any]:
    if fleet.monitoring is None:
        return {}
    return {"authorization": {"type": "Bearer", "credentials_file": str(fleet.resolve(fleet.monitoring.key))}}


def _target(address: str, port: int, node: str) -> dict[str, Any]:
    host = f"[{address}]" if ":" in address else address
    return {"targets": [f"{host}:{port}"], "labels": {"node": node}}


class _Dumper(yaml.SafeDumper):
    """Writes no anchors: jobs share values."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


def _yaml(value: Mapping[str, Any]) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120))
