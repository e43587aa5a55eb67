"""A proof that cannot be carried out is a verdict after some attempts: in place, the service is down meanwhile."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import requests

from sparkops.errors import ConnectionLost, NotReady
from sparkops.guard.disk.state import State
from sparkops.guard.follow.engines import Engines
from sparkops.guard.follow.jobs import PROOFS, Jobs
from sparkops.guard.follow.local_service import LocalService
from sparkops.guard.follow.tasks import Job
from sparkops.node.local import LocalNode
from sparkops.swap.effects import ProveEngine, WriteJournal
from sparkops.swap.fleet_state import FleetState
from sparkops.swap.follower import Record, report
from sparkops.swap.leader import step
from sparkops.swap.model import Answer, Phase
from sparkops.swap.orders import order
from tests.guard.test_reproductions import BOOT, NEW, begun, runs

JOURNAL = begun(Phase.VERIFY)
UNPARSABLE = requests.exceptions.JSONDecodeError("Expecting value", "<html>", 0)


@dataclass
class Failing(Jobs):
    """Jobs whose proofs raise an error; without one, the spec of another version does."""

    error: Exception | None = None

    def _prove(self, service: LocalService, container: str, key: str, cancel: threading.Event) -> None:
        if self.error:
            raise self.error
        super()._prove(service, container, key, cancel)


def proven(directory: Path, error: Exception | None, attempts: int) -> LocalService:
    """A service in VERIFY after so many attempts at the proof of NEW."""
    state, node = State(directory, lambda: BOOT), LocalNode("n1")
    jobs = Failing(state, node, Engines(node, state.secret, lambda _: None), lambda _: None, error=error)
    service = LocalService("chat", "n1", Record(term=1, copy=JOURNAL), frozenset(), 0.0)
    service.adopt(order(JOURNAL, "n1", BOOT.boot))
    service.update({NEW.container: runs(NEW)}, 1.0)
    service.start(NEW.container).run.note_health(Answer.YES)
    assert JOURNAL.swap
    service.record = replace(service.record, started=((NEW.container, JOURNAL.swap.key),))
    for _ in range(attempts):
        jobs._work(service, Job(ProveEngine(NEW.container, JOURNAL.swap.key)))
    return service


def decided(service: LocalService) -> str:
    """Why the leader reverts the swap; empty while it waits."""
    fleet = FleetState({"n1": report("n1", service.order, service.local(BOOT.boot))})
    effect = step(JOURNAL, fleet)
    return effect.journal.swap.why if isinstance(effect, WriteJournal) and effect.journal.swap else ""


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KeyError("choices"), "KeyError('choices')"),
        (UNPARSABLE, "Expecting value: line 1 column 1 (char 0)"),
        (None, "a key of another version"),
    ],
    ids=["a bug", "a reply that is no JSON", "an unreadable spec"],
)
def test_a_proof_that_cannot_be_carried_out_reverts_the_swap(tmp_path: Path, error: Exception | None, why: str) -> None:
    assert decided(proven(tmp_path, error, PROOFS - 1)) == ""

    reverted = decided(proven(tmp_path, error, PROOFS))

    assert reverted.startswith("n1: new-r0 could not be verified: ")
    assert why in reverted


@pytest.mark.parametrize("error", [ConnectionLost("n1", "no reply"), NotReady("n1", "busy"), OSError("no route")])
def test_a_docker_that_does_not_answer_proves_nothing(tmp_path: Path, error: Exception) -> None:
    service = proven(tmp_path, error, 2 * PROOFS)

    local = service.local(BOOT.boot)
    assert (local.proofs, local.problems, decided(service)) == ({}, {}, "")
    assert service.retry_s > 0


def test_the_next_start_has_all_attempts_again(tmp_path: Path) -> None:
    service = proven(tmp_path, KeyError("choices"), PROOFS)

    service.begin(NEW.container)

    local = service.local(BOOT.boot)
    assert (local.proofs, local.problems, service.start(NEW.container).unproven) == ({}, {}, {})
