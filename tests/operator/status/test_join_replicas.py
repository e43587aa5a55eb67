"""Several replicas are shown one by one: the service is up while one answers, and each that does not is told."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.config.release import Rank
from sparkops.gateway.facts import ServiceFacts, SlotFacts
from sparkops.names import Slot, backend
from sparkops.operator.status.join import _service, drift_of
from sparkops.operator.status.observation import RankReport, ServiceReport
from sparkops.operator.status.picture import Health
from sparkops.serving.service_state import ServiceState
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, RankSpec, Replica
from tests.examples import container, release

OLD, NEW = release(model={"revision": "old"}), release()


def replica(of: Any, node: str) -> Replica:
    return Replica((RankSpec(node, Rank(of, Slot.BLUE, node).container),))


def engine(of: Any, node: str, health: Health = Health.OK) -> RankReport:
    state: dict[str, Any] = {} if health is Health.OK else {"state": "exited", "exit_code": 1}
    return RankReport(container(Rank(of, Slot.BLUE, node), restart_policy="no", **state), health)


def report(active: Deployment, *engines: RankReport, **changes: Any) -> ServiceReport:
    addresses = ("10.0.0.1:8001", "10.0.0.2:8001")
    slot = SlotFacts("chat", Slot.BLUE, active.release, active.release, addresses, addresses)
    name = backend("chat", Slot.BLUE)
    front = ServiceFacts("chat", 8000, name, name, {Slot.BLUE: slot})
    journal = Journal("chat", "n1", **{"active": active, **changes})
    return ServiceReport("chat", engines, front, (ServiceState(journal),))


BOTH = Deployment(NEW.id, Slot.BLUE, (replica(NEW, "n1"), replica(NEW, "n2")))


def test_two_replicas_of_a_release_are_two_that_are_active() -> None:
    row = _service(report(BOTH, engine(NEW, "n1"), engine(NEW, "n2")), None, None)

    assert (row.state, [item.active for item in row.replicas]) == ("healthy", [True, True])


@pytest.mark.parametrize("health", [Health.FAILING, Health.NONE])
def test_a_replica_that_does_not_answer_degrades_the_service_and_is_told(health: Health) -> None:
    known = report(BOTH, engine(NEW, "n1"), engine(NEW, "n2", health))

    [drift] = [item for item in drift_of(known) if item.code == "REPLICA_DOWN"]

    assert _service(known, None, None).state == "degraded"
    assert (drift.node, drift.next_step) == ("n2", "sparkops logs chat --node n2")
    assert drift.detail.startswith("chat: 1 of 2 replicas do not answer: ")


def test_while_replicas_are_replaced_those_of_both_releases_that_serve_are_active() -> None:
    old = Deployment(OLD.id, Slot.BLUE, (replica(OLD, "n1"), replica(OLD, "n2")))
    begun = Journal("chat", "n1", active=old).begun("i1", Mode.ROLLING, BOTH, automatic=True)
    while begun.swap and begun.swap.coming.nodes != {"n2"}:
        begun = begun.advanced()
    assert begun.active
    known = report(begun.active, engine(NEW, "n1"), engine(OLD, "n2"), engine(OLD, "n1", Health.NONE), swap=begun.swap)

    row = _service(known, None, None)

    active = {(item.release, item.ranks[0].node): item.active for item in row.replicas}
    assert active == {(NEW.id, "n1"): True, (OLD.id, "n2"): True, (OLD.id, "n1"): False}
    assert (row.state, [item.code for item in drift_of(known)]) == ("healthy", [])
