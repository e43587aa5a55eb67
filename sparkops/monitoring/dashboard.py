"""A Grafana dashboard for a fleet: services, engines, gateway, nodes and guards. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA = 39
"""Version of Grafana's dashboard schema, of Grafana 10.4; later ones migrate it when they load it."""
COLUMNS, HEIGHT = 24, 7
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF_SERVICE = '{service=~"$service"}'
OF_NODE = '{node=~"$node"}'
RATE = "[$__rate_interval]"


@dataclass(frozen=True)
class Panel:
    """One panel. `queries`: expression and legend of each curve."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    kind: str = "timeseries"
    width: int = 8


def _first_token() -> str:
    family = "sparkops_engine_first_token_seconds"
    return f"rate({family}_sum{OF_SERVICE}{RATE}) / rate({family}_count{OF_SERVICE}{RATE})"


def _share(part: str, whole: str) -> str:
    return f"rate({part}{OF_SERVICE}{RATE}) / rate({whole}{OF_SERVICE}{RATE})"


ENGINE = "{{service}} {{slot}} on {{node}}"
ROWS: Mapping[str, Sequence[Panel]] = {
    "Services": (
        Panel("Answers", "bool_yes_no", ((f"sparkops_service_answers{OF_SERVICE}", "{{service}}"),), "stat", 6),
        Panel(
            "Needs an operator",
            "bool_yes_no",
            ((f"sparkops_service_needs_operator{OF_SERVICE}", "{{service}}"),),
            "stat",
            6,
        ),
        Panel(
            "Active release",
            "none",
            ((f"sparkops_service_active{OF_SERVICE}", "{{service}}: {{release}} ({{slot}})"),),
            "stat",
            6,
        ),
        Panel(
            "Swap in progress",
            "none",
            ((f"sparkops_service_swap{OF_SERVICE}", "{{service}}: {{mode}}, {{phase}}"),),
            "stat",
            6,
        ),
    ),
    "Engines": (
        Panel(
            "Tokens generated",
            "tokens/s",
            ((f"rate(sparkops_engine_generated_tokens_total{OF_SERVICE}{RATE})", ENGINE),),
        ),
        Panel("Time to the first token, mean", "s", ((_first_token(), ENGINE),)),
        Panel(
            "Requests",
            "short",
            (
                (f"sparkops_engine_requests_running{OF_SERVICE}", f"running: {ENGINE}"),
                (f"sparkops_engine_requests_waiting{OF_SERVICE}", f"waiting: {ENGINE}"),
            ),
        ),
        Panel("KV cache in use", "percentunit", ((f"sparkops_engine_kv_cache_used_ratio{OF_SERVICE}", ENGINE),)),
        Panel(
            "Prefix cache hits",
            "percentunit",
            (
                (
                    _share(
                        "sparkops_engine_prefix_cache_hit_tokens_total",
                        "sparkops_engine_prefix_cache_queried_tokens_total",
                    ),
                    ENGINE,
                ),
            ),
        ),
        Panel(
            "Drafted tokens accepted",
            "percentunit",
            ((_share("sparkops_engine_draft_accepted_tokens_total", "sparkops_engine_drafted_tokens_total"), ENGINE),),
        ),
    ),
    "Gateway": (
        Panel(
            "Replies",
            "reqps",
            (
                (
                    f'sum by (proxy, code) (rate(haproxy_backend_http_responses_total{{proxy=~"be_.+"}}{RATE}))',
                    "{{proxy}} {{code}}",
                ),
            ),
        ),
        Panel("Open requests", "short", (('haproxy_backend_current_sessions{proxy=~"be_.+"}', "{{proxy}}"),)),
        Panel(
            "Requests that wait for a release",
            "short",
            ((f"sparkops_gateway_waiting_requests{OF_SERVICE}", "{{service}}"),),
        ),
    ),
    "Nodes": (
        Panel("Memory available", "bytes", ((f"sparkops_node_memory_available_bytes{OF_NODE}", "{{node}}"),)),
        Panel("Disk free", "bytes", ((f"sparkops_node_disk_free_bytes{OF_NODE}", "{{node}}"),)),
        Panel(
            "Starts of engines in an hour",
            "short",
            ((f"changes(sparkops_engine_start_time_seconds{OF_NODE}[1h])", ENGINE),),
        ),
        Panel("Guards", "bool_yes_no", (('up{job="sparkops-guard",node=~"$node"}', "{{node}}"),), "stat", 6),
        Panel("Leader", "bool_yes_no", ((f"sparkops_guard_leads{OF_NODE}", "{{node}}"),), "stat", 6),
        Panel("Guards that the leader reaches", "bool_yes_no", (("sparkops_peer_reachable", "{{peer}}"),), "stat", 6),
        Panel("Versions", "none", ((f"sparkops_guard_info{OF_NODE}", "{{node}}: {{version}}"),), "stat", 6),
    ),
}


def dashboard() -> Mapping[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "uid": "sparkops-fleet",
        "title": "sparkops fleet",
        "tags": ["sparkops"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                _variable("service", "sparkops_service_needs_operator"),
                _variable("node", "sparkops_guard_leads"),
            ]
        },
        "panels": list(_panels()),
    }


def expressions() -> Iterator[str]:
    """Yield each expression, with Grafana's variables."""
    for panels in ROWS.values():
        for panel in panels:
            yield from (expr for expr, _ in panel.queries)


def _variable(label: str, metric: str) -> Mapping[str, Any]:
    """Return a variable with all values of a label of a metric."""
    query = f"label_values({metric}, {label})"
    return {
        "name": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": label},
        "definition": query,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }


def _panels() -> Iterator[Mapping[str, Any]]:
    """Yield rows and panels from left to right, each row on lines of its own."""
    number, y = 0, 0
    for title, panels in ROWS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": _at(0, y, COLUMNS, 1),
        }
        x, y = 0, y + 1
        for panel in panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + HEIGHT
            number += 1
            yield _panel(panel, number, _at(x, y, panel.width, HEIGHT))
            x += panel.width
        y += HEIGHT


def _at(x: int, y: int, width: int, height: int) -> Mapping[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, number: int, place: Mapping[str, int]) -> Mapping[str, Any]:
    stat = panel.kind == "stat"
    targets = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expr, "legendFormat": legend, "instant": stat}
        for at, (expr, legend) in enumerate(panel.queries)
    ]
    shown = {"textMode": "name" if panel.unit == "none" else "value_and_name", "graphMode": "none"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": shown if stat else {"legend": {"displayMode": "list", "placement": "bottom"}},
    }
