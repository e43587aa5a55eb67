"""Files for Prometheus and Grafana, from the inventory: scrape configuration, alert rules and a dashboard. Pure.

The rules are over what guards (guard/exposition.py) and HAProxy serve.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from sparkops.config.inventory import Fleet, Gateway
from sparkops.config.node import LOOPBACK
from sparkops.notices.catalogue import CATALOGUE, DISK_LOW_GIB, Code

CRITICAL, WARNING = "critical", "warning"


@dataclass(frozen=True)
class Alert:
    """One rule. `lasting`: how long `expr` must hold; `summary` and `step` are Prometheus's templates.

    `event`: the notice about the same, of which it has severity and time; None where guards tell nothing.
    """

    name: str
    expr: str
    lasting: str
    severity: str
    summary: str
    step: str = "sparkops status"
    event: Code | None = None

    def rule(self) -> Mapping[str, Any]:
        """Return the rule as the rule file has it."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.lasting,
            "labels": {"severity": self.severity, **({"event": self.event.value} if self.event else {})},
            "annotations": {"summary": self.summary, "next": self.step},
        }


def _of(event: Code, name: str, expr: str, summary: str, step: str = "sparkops status") -> Alert:
    """Return the rule for what guards tell as `event`: with its severity, and after as many seconds."""
    entry = CATALOGUE[event]
    return Alert(name, expr, f"{entry.after_s:.0f}s", entry.severity.value, summary, step, event)


ALERTS = (
    Alert(
        "SparkopsGuardDown",
        'up{job="sparkops-guard"} == 0',
        "2m",
        CRITICAL,
        "{{ $labels.node }}: its guard serves no figures; nothing restarts its engines",
        "sparkops doctor",
    ),
    _of(
        Code.GATEWAY_DOWN,
        "SparkopsGatewayDown",
        'up{job="sparkops-gateway"} == 0',
        "{{ $labels.node }}: the gateway serves no figures; clients may get no answer",
    ),
    _of(
        Code.LEADER_LOST,
        "SparkopsNoLeader",
        "sum(sparkops_guard_leads) == 0",
        "No guard leads the fleet: no service can be changed",
        "sparkops doctor",
    ),
    Alert(
        "SparkopsDockerDown",
        "sparkops_docker_up == 0",
        "2m",
        CRITICAL,
        "{{ $labels.node }}: Docker does not answer its guard",
        "systemctl status docker, on {{ $labels.node }}",
    ),
    Alert(
        "SparkopsGuardFiguresOld",
        "time() - sparkops_guard_read_time_seconds > 300",
        "2m",
        WARNING,
        "{{ $labels.node }}: the figures of its guard are {{ $value | humanizeDuration }} old, or its clock is wrong",
        "docker logs sparkops-guard, on {{ $labels.node }}",
    ),
    _of(
        Code.NOT_ANSWERING,
        "SparkopsServiceNotAnswering",
        "sparkops_service_answers == 0",
        "{{ $labels.service }}: the active release does not answer",
    ),
    _of(
        Code.NEEDS_OPERATOR,
        "SparkopsServiceNeedsOperator",
        "sparkops_service_needs_operator == 1",
        "{{ $labels.service }}: the fleet cannot continue without an operator",
    ),
    Alert(
        "SparkopsSwapUnfinished",
        "max by (service, mode) (sparkops_service_swap) == 1",
        "2h",
        WARNING,
        "{{ $labels.service }}: a swap is unfinished for 2 h; it may wait for `sparkops promote`",
        "sparkops follow {{ $labels.service }}",
    ),
    _of(
        Code.NODE_LOST,
        "SparkopsGuardNotReached",
        "sparkops_peer_reachable == 0",
        "{{ $labels.node }} does not reach the guard of {{ $labels.peer }}: swaps wait",
        "sparkops doctor",
    ),
    _of(
        Code.FINDING,
        "SparkopsEngineFinding",
        "sparkops_engine_finding == 1",
        "{{ $labels.service }}: {{ $labels.code }}: the watch has a finding about {{ $labels.container }}",
    ),
    _of(
        Code.RESTARTED,
        "SparkopsEngineRestarts",
        "changes(sparkops_engine_start_time_seconds[1h]) >= 3",
        "{{ $labels.service }}: its engine on {{ $labels.node }} has started {{ $value }} times in an hour",
        "sparkops history {{ $labels.service }}",
    ),
    Alert(
        "SparkopsEngineQueue",
        "min_over_time(sparkops_engine_requests_waiting[10m]) >= 8",
        "0s",
        WARNING,
        "{{ $labels.service }}: 8 or more requests wait in its engine on {{ $labels.node }} for 10 min",
    ),
    Alert(
        "SparkopsKvCacheFull",
        "min_over_time(sparkops_engine_kv_cache_used_ratio[10m]) > 0.95",
        "0s",
        WARNING,
        "{{ $labels.service }}: the KV cache of its engine on {{ $labels.node }} is full for 10 min",
        "sparkops fit RECIPE",
    ),
    Alert(
        "SparkopsGatewayErrors",
        'sum by (proxy) (rate(haproxy_backend_http_responses_total{code="5xx",proxy=~"be_.+"}[5m]))'
        ' / sum by (proxy) (rate(haproxy_backend_http_responses_total{proxy=~"be_.+"}[5m])) > 0.05',
        "5m",
        WARNING,
        "{{ $labels.proxy }}: more than 5 % of the replies are errors",
    ),
    Alert(
        "SparkopsNodeMemoryLow",
        "sparkops_node_memory_available_bytes / sparkops_node_memory_total_bytes < 0.03",
        "5m",
        WARNING,
        "{{ $labels.node }}: {{ $value | humanizePercentage }} of its memory is available",
        "sparkops status --gpu",
    ),
    _of(
        Code.DISK_LOW,
        "SparkopsNodeDiskLow",
        f"sparkops_node_disk_free_bytes < {DISK_LOW_GIB:.0f} * 2^30",
        "{{ $labels.node }}: {{ $value | humanize1024 }}B of disk are free",
        "sparkops prune",
    ),
)
"""All rules. Thresholds are starting points: edit the written file for a fleet that needs others."""


def rules() -> Mapping[str, Any]:
    """Return the content of the rule file."""
    return {"groups": [{"name": "sparkops", "rules": [alert.rule() for alert in ALERTS]}]}


SCHEMA = 39
"""Version of Grafana's dashboard schema, of Grafana 10.4; later ones migrate it when they load it."""
COLUMNS, HEIGHT = 24, 7
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF_SERVICE = '{service=~"$service"}'
OF_NODE = '{node=~"$node"}'
RATE = "[$__rate_interval]"
_FAMILY = "sparkops_engine_first_token_seconds"
FIRST_TOKEN = f"rate({_FAMILY}_sum{OF_SERVICE}{RATE}) / rate({_FAMILY}_count{OF_SERVICE}{RATE})"


@dataclass(frozen=True)
class Panel:
    """One panel. `queries`: expression and legend of each curve."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    kind: str = "timeseries"
    width: int = 8


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
        Panel("Time to the first token, mean", "s", ((FIRST_TOKEN, ENGINE),)),
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


PROMETHEUS, ALERTS_FILE, DASHBOARD = "prometheus.yml", "sparkops-alerts.yml", "sparkops-dashboard.json"
INTERVAL_S = 15
"""Seconds between two scrapes. A guard samples the engines as often (guard/node_report.py)."""
HEAD = "# Written by `sparkops monitoring` from the inventory; docs/monitoring.md explains it.\n"


def files(fleet: Fleet) -> dict[str, str]:
    """Return the files by name. Without `monitoring`, only the gateway is scraped, by a Prometheus on its node."""
    return {
        PROMETHEUS: HEAD + _yaml(scraping(fleet)),
        ALERTS_FILE: HEAD + _yaml(rules()),
        DASHBOARD: json.dumps(dashboard(), indent=2) + "\n",
    }


def scraping(fleet: Fleet) -> dict[str, Any]:
    """Return the configuration of Prometheus. It reads the key from the file that the inventory names."""
    every = f"{INTERVAL_S}s"
    return {
        "global": {"scrape_interval": every, "scrape_timeout": "10s", "evaluation_interval": every},
        "rule_files": [ALERTS_FILE],
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
