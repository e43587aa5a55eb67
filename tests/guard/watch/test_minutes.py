"""The samples that a guard keeps: of its engines by their last samples, of its gateway as it was read last."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from sparkops.engines.vllm.figures import FIGURES
from sparkops.gateway.facts import GatewayFacts, HoldFacts, ServiceFacts
from sparkops.guard.report.node_report import Sampled
from sparkops.guard.watch.minutes import MinuteWatch
from sparkops.serving.watch.minutes import KEPT, MOST_SERVICES


def sampled(at_s: float, generated: float, start: str = "running 1", service: str = "chat", **more: Any) -> Sampled:
    names = FIGURES.by_meaning
    figures = {names["running"]: 1.0, names["generated"]: generated, names["waiting"]: 2.0}
    engine = {"healthy": True, "first": figures}
    return replace(Sampled(f"{service}-c", start, at_s, engine, service), **more)


SILENT: dict[str, Any] = {"engine": {"healthy": False}}


def front(errors: int, held: int = 0) -> GatewayFacts:
    hold = HoldFacts("m", 540.0, 500, held, 1.0, 60.0) if held else None
    return GatewayFacts({"chat": ServiceFacts("chat", 1, "", "", {}, hold, errors={"7": errors})}, {}, loaded=True)


@dataclass
class Node:
    """A node at `minute`, with these engines and this gateway."""

    minute: float = 1000.0
    engines: list[Sampled] = field(default_factory=list)
    gateway: GatewayFacts | None = None

    def __post_init__(self) -> None:
        self.watch = MinuteWatch(lambda: self.engines, lambda: self.gateway, lambda: self.minute * 60)

    def looks(self, minute: float, *engines: Sampled, gateway: GatewayFacts | None = None) -> None:
        self.minute, self.engines, self.gateway = minute, [*engines], gateway
        self.watch.look()

    def kept(self, service: str = "chat") -> list[tuple[Any, ...]]:
        services: Any = json.loads(json.dumps(self.watch.report()))["services"]
        keys = ("minute", "tok_s", "waiting", "errors")
        return [tuple(sample[key] for key in keys) for sample in services.get(service, [])]


def test_one_sample_a_minute_from_what_was_sampled_anyway() -> None:
    node = Node()
    node.looks(1000.2, sampled(0, 100), gateway=front(5))
    node.looks(1000.9, sampled(40, 500), gateway=front(5))
    node.looks(1001.0, sampled(50, 600), gateway=front(8, held=4))
    node.looks(1001.5, sampled(80, 900), gateway=front(8))
    node.looks(1002.1, sampled(110, 1200), gateway=front(8))

    assert node.kept() == [(1001, 10.0, 6, 3), (1002, 10.0, 2, 0)]


def test_an_engine_that_started_anew_counts_from_its_first_sample() -> None:
    node = Node()
    node.looks(1, sampled(0, 100))
    node.looks(2, sampled(60, 5, "running 2"))
    node.looks(3, sampled(120, 65, "running 2"))

    assert node.kept() == [(2, None, 2, None), (3, 1.0, 2, None)]


def test_an_engine_that_did_not_answer_for_a_while_is_counted_over_that_time() -> None:
    node = Node()
    node.looks(1, sampled(0, 0))
    node.looks(2, sampled(60, 0, **SILENT))
    node.looks(3, sampled(120, 240))

    assert node.kept() == [(2, None, None, None), (3, 2.0, 2, None)]


def test_the_leader_counts_errors_of_a_service_with_engines_elsewhere() -> None:
    node = Node()
    node.looks(1, gateway=front(1))
    node.looks(2, gateway=front(4))

    assert node.kept() == [(2, None, None, 3)]


def test_an_hour_of_each_of_at_most_64_services_is_kept() -> None:
    node = Node()
    for minute in range(1, 100):
        node.looks(minute, *(sampled(minute * 60, 0, service=f"s{number}") for number in range(100)))

    services: Any = node.watch.report()["services"]
    assert len(services) == MOST_SERVICES
    assert {len(samples) for samples in services.values()} == {KEPT}
    assert len(json.dumps(node.watch.report())) < 2**20


def test_a_service_that_has_gone_is_forgotten_after_an_hour() -> None:
    node = Node()
    node.looks(1, sampled(0, 0))
    node.looks(2, sampled(60, 0))
    node.looks(3)
    assert len(node.kept()) == 1
    node.looks(2 + KEPT)

    assert node.kept() == []


def test_a_clock_that_was_set_back_loses_the_samples_after_it() -> None:
    node = Node()
    for minute in (10, 11, 12, 5, 6):
        node.looks(minute, sampled(minute * 60, 0))

    assert [sample[0] for sample in node.kept()] == [5, 6]
