"""By alert: series with which it fires, and those with which it ends, in promtool's notation with a value a minute."""

from __future__ import annotations

BAD_MIN, ALL_MIN = 150, 320
"""Minutes with the first values, longer than any rule waits, and in all."""


def turned(bad: str, good: str) -> str:
    return f"{bad}x{BAD_MIN} {good}x{ALL_MIN - BAD_MIN}"


GIB = 2**30
CASES: dict[str, dict[str, str]] = {
    "SparkopsGuardDown": {'up{job="sparkops-guard",node="n1"}': turned("0", "1")},
    "SparkopsGatewayDown": {'up{job="sparkops-gateway",node="n1"}': turned("0", "1")},
    "SparkopsNoLeader": {
        'sparkops_guard_leads{node="n1"}': turned("0", "1"),
        'sparkops_guard_leads{node="n2"}': turned("0", "0"),
    },
    "SparkopsDockerDown": {'sparkops_docker_up{node="n1"}': turned("0", "1")},
    "SparkopsGuardFiguresOld": {'sparkops_guard_read_time_seconds{node="n1"}': turned("0", f"{60 * BAD_MIN}+60")},
    "SparkopsServiceNotAnswering": {'sparkops_service_answers{service="chat"}': turned("0", "1")},
    "SparkopsServiceNeedsOperator": {'sparkops_service_needs_operator{service="chat"}': turned("1", "0")},
    "SparkopsSwapUnfinished": {
        'sparkops_service_swap{service="chat",mode="beside",phase="bake",reverting="false"}': turned("1", "_")
    },
    "SparkopsGuardNotReached": {'sparkops_peer_reachable{node="n1",peer="n2"}': turned("0", "1")},
    "SparkopsEngineFinding": {
        'sparkops_engine_finding{service="chat",container="sparkops-chat-blue",code="STALLED"}': turned("1", "_")
    },
    "SparkopsEngineRestarts": {'sparkops_engine_start_time_seconds{service="chat"}': turned("0+9", "2000")},
    "SparkopsEngineQueue": {'sparkops_engine_requests_waiting{service="chat"}': turned("8", "7")},
    "SparkopsKvCacheFull": {'sparkops_engine_kv_cache_used_ratio{service="chat"}': turned("0.96", "0.5")},
    "SparkopsGatewayErrors": {
        'haproxy_backend_http_responses_total{proxy="be_chat_blue",code="2xx"}': f"0+90x{ALL_MIN}",
        'haproxy_backend_http_responses_total{proxy="be_chat_blue",code="5xx"}': turned("0+10", "1500"),
    },
    "SparkopsNodeMemoryLow": {
        'sparkops_node_memory_available_bytes{node="n1"}': turned("2", "10"),
        'sparkops_node_memory_total_bytes{node="n1"}': f"100x{ALL_MIN}",
    },
    "SparkopsNodeDiskLow": {'sparkops_node_disk_free_bytes{node="n1"}': turned(f"{19 * GIB}", f"{21 * GIB}")},
}
