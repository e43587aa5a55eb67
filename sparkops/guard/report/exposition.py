"""Figures of a guard in Prometheus's text format. Pure.

Engines of every kind have the same names here, whatever they call their own figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from sparkops.engines import load
from sparkops.node.docker.facts import Container
from sparkops.node.host import HostFacts
from sparkops.serving.watch.finding import EngineFinding
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer
from sparkops.units import GIB

ENGINE = ("service", "release", "slot", "rank")
"""Labels of an engine's figures."""


@dataclass(frozen=True)
class EngineFigures:
    """One container. `healthy`: whether its server answers, None if nobody asks it; `sums`: its own figures by name."""

    container: Container
    healthy: bool | None = None
    sums: Mapping[str, float] | None = None


@dataclass(frozen=True)
class PeerFigures:
    """Another guard as its leader knows it. `replied_at`: Unix time of its last reply; None without one."""

    node: str
    reachable: bool
    replied_at: float | None


@dataclass(frozen=True)
class ServiceFigures:
    """A service that this guard leads. `answers`: whether it answers; UNKNOWN while no release must have traffic."""

    journal: Journal
    answers: Answer
    needs_operator: bool


@dataclass(frozen=True)
class GuardFigures:
    """All that a guard serves. Times are Unix times in seconds."""

    version: str
    started_at: float
    leads: bool
    docker: bool
    """Whether Docker answers."""
    host: HostFacts | None = None
    """Memory and disk; None if they cannot be read."""
    engines: tuple[EngineFigures, ...] = ()
    peers: tuple[PeerFigures, ...] = ()
    services: tuple[ServiceFigures, ...] = ()
    findings: tuple[EngineFinding, ...] = ()
    """The open findings of the watch."""
    ordered_at: float | None = None
    """When the leader's last message came; None without one."""
    read_at: float | None = None
    """When all this was read."""


def text(figures: GuardFigures) -> bytes:
    """Return the figures in the text format, version 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    engines = (*_engines(figures.engines), *_findings(figures.findings))
    registry.register(_Collected([*_guard(figures), *_services(figures.services), *engines]))
    return generate_latest(registry)


@dataclass(eq=False)
class _Collected(Collector):
    families: list[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def _gauge(name: str, meaning: str, value: float | None) -> GaugeMetricFamily:
    """Return a figure without labels, and without a sample if it is unknown."""
    family = GaugeMetricFamily(f"sparkops_{name}", meaning)
    if value is not None:
        family.add_metric([], value)
    return family


def _guard(figures: GuardFigures) -> Iterator[Metric]:
    yield InfoMetricFamily("sparkops_guard", "The guard", value={"version": figures.version})
    yield _gauge("guard_start_time_seconds", "Unix time of the start of the guard", figures.started_at)
    yield _gauge("guard_leads", "Whether this guard leads the fleet", figures.leads)
    yield _gauge("guard_leader_message_time_seconds", "Unix time of the leader's last message", figures.ordered_at)
    yield _gauge("guard_read_time_seconds", "Unix time at which these figures were read", figures.read_at)
    yield _gauge("docker_up", "Whether Docker answers", figures.docker)
    host = figures.host
    total, available = (host.memory_total_gib, host.memory_available_gib) if host else (None, None)
    yield _gauge("node_memory_total_bytes", "Memory of the node", _bytes(total))
    yield _gauge("node_memory_available_bytes", "Memory available to new programs", _bytes(available))
    disk = host.disk_free_gib if host else None
    yield _gauge("node_disk_free_bytes", "Free disk for images and containers", _bytes(disk))
    reachable = GaugeMetricFamily("sparkops_peer_reachable", "Whether the leader reaches a guard", labels=("peer",))
    replied = GaugeMetricFamily("sparkops_peer_reply_time_seconds", "Unix time of a guard's reply", labels=("peer",))
    for peer in figures.peers:
        reachable.add_metric([peer.node], peer.reachable)
        if peer.replied_at is not None:
            replied.add_metric([peer.node], peer.replied_at)
    yield from (reachable, replied)


def _findings(findings: Iterable[EngineFinding]) -> Iterator[Metric]:
    labels = ("service", "container", "code")
    family = GaugeMetricFamily("sparkops_engine_finding", "A finding of the watch about an engine", labels=labels)
    for finding in findings:
        family.add_metric([finding.service, finding.container, finding.code], 1)
    yield family


def _bytes(gib: float | None) -> float | None:
    return None if gib is None else gib * GIB


def _services(services: Iterable[ServiceFigures]) -> Iterator[Metric]:
    labels = ("service",)
    active = GaugeMetricFamily("sparkops_service_active", "The active release", labels=("service", "release", "slot"))
    answers = GaugeMetricFamily("sparkops_service_answers", "Whether the active release answers", labels=labels)
    swap = GaugeMetricFamily(
        "sparkops_service_swap", "A swap in progress", labels=("service", "mode", "phase", "reverting")
    )
    held = GaugeMetricFamily("sparkops_service_on_hold", "Whether a hold blocks changes", labels=labels)
    trouble = GaugeMetricFamily("sparkops_service_needs_operator", "Whether it needs an operator", labels=labels)
    for service in services:
        journal = service.journal
        name = journal.service
        if journal.active:
            active.add_metric([name, journal.active.release, journal.active.slot], 1)
            if service.answers is not Answer.UNKNOWN:
                answers.add_metric([name], service.answers is Answer.YES)
        if unfinished := journal.unfinished:
            reverting = str(unfinished.reverting).lower()
            swap.add_metric([name, unfinished.way, unfinished.phase.value, reverting], 1)
        held.add_metric([name], bool(journal.hold))
        trouble.add_metric([name], service.needs_operator)
    yield from (active, answers, swap, held, trouble)


GAUGES = {
    "running": ("engine_requests_running", "Requests in the batch"),
    "waiting": ("engine_requests_waiting", "Requests in the queue"),
    "kv_use": ("engine_kv_cache_used_ratio", "Share of the KV cache in use, 0 to 1"),
}
COUNTERS = {
    "generated": ("engine_generated_tokens", "Tokens generated since the start of the engine"),
    "prefix_queries": ("engine_prefix_cache_queried_tokens", "Tokens of prompts"),
    "prefix_hits": ("engine_prefix_cache_hit_tokens", "Tokens of prompts that were in the prefix cache"),
    "drafted": ("engine_drafted_tokens", "Tokens that were drafted"),
    "draft_accepted": ("engine_draft_accepted_tokens", "Drafted tokens that were accepted"),
}
"""By the meaning in Figures: our name, without the prefix, and its meaning. Counters end in _total."""


def _engines(engines: Iterable[EngineFigures]) -> Iterator[Metric]:
    running = GaugeMetricFamily("sparkops_engine_running", "Whether its container runs", labels=ENGINE)
    healthy = GaugeMetricFamily("sparkops_engine_healthy", "Whether its server answers", labels=ENGINE)
    started = GaugeMetricFamily("sparkops_engine_start_time_seconds", "Unix time of its last start", labels=ENGINE)
    first = SummaryMetricFamily("sparkops_engine_first_token_seconds", "Time to the first token", labels=ENGINE)
    gauges = {name: GaugeMetricFamily(f"sparkops_{our}", text, labels=ENGINE) for name, (our, text) in GAUGES.items()}
    counters = {
        name: CounterMetricFamily(f"sparkops_{our}", text, labels=ENGINE) for name, (our, text) in COUNTERS.items()
    }
    for engine in engines:
        container, sums = engine.container, load.by_meaning(engine.sums or {})
        labels = [container.service, container.release, container.slot, str(container.rank)]
        running.add_metric(labels, container.running)
        if container.started_at > 0:
            started.add_metric(labels, container.started_at)
        if engine.healthy is not None:
            healthy.add_metric(labels, engine.healthy)
        for name, family in (gauges | counters).items():
            if name in sums:
                family.add_metric(labels, sums[name])
        if (total := sums.get("ttft_s")) is not None:
            first.add_metric(labels, count_value=int(sums.get("ttft_count", 0)), sum_value=total)
    yield from (running, healthy, started, *gauges.values(), *counters.values(), first)
