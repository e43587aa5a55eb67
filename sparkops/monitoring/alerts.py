"""Alert rules for Prometheus, over what guards (guard/exposition.py) and HAProxy serve. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
