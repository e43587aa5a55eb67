"""What a guard does with an order, and replies, before it has read Docker."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.errors import NotReady
from sparkops.guard.daemon import link
from sparkops.guard.disk.state import State
from sparkops.guard.environment import NodeClock
from sparkops.guard.follow.follower import Follower
from sparkops.guard.lead.leadership import Leadership
from sparkops.guard.lead.operator_requests import OperatorRequests
from sparkops.names import Slot
from sparkops.node.local import LocalNode
from sparkops.swap.model import Deployment, RankSpec, Replica
from sparkops.swap.orders import order
from tests.guard.disk.test_state import JOURNAL
from tests.guard.lead.test_gateway_front import released


def test_a_new_copy_of_the_journal_ends_the_secrets_of_releases_that_have_left_it(tmp_path: Path) -> None:
    state = State(tmp_path, lambda: NodeClock(1.0, "boot"))
    spec = {**json.loads(next(released("127.0.0.1").heads).spec), "token": "d" * 64}
    active = Deployment("q-1", Slot.BLUE, (Replica((RankSpec("spark-2", "q-r0", spec=json.dumps(spec)),)),))
    journal = replace(JOURNAL, active=active)
    gone, kept = f"ray-q-0-green-{'d' * 16}", f"ray-q-1-blue-{'d' * 16}"
    for name in (gone, kept):
        state.put_secret("chat", name, b"token")
        os.utime(tmp_path / "services/chat/secrets" / name, (0, 0))
    follower = Follower(state, LocalNode("spark-2"), print)

    with pytest.raises(NotReady, match="containers unknown"):
        follower.handle("chat", order(journal, "spark-2", "boot"))

    assert state.record("chat").copy == journal
    assert [state.secret("chat", name) for name in (gone, kept)] == [None, b"token"]


def test_any_guard_answers_which_starts_it_remembers(tmp_path: Path) -> None:
    state, node = State(tmp_path, lambda: NodeClock(1.0, "boot")), LocalNode("spark-2")
    state.learn("chat", {"release": "q-1", "kind": "", "stages": {"serving": 70.0}})
    leadership = Leadership(state, node, Follower(state, node, print), link("spark-2"), print)

    starts = OperatorRequests(leadership).verbs()["starts"]({"service": "chat"})

    assert starts == [{"release": "q-1", "kind": "", "stages": {"serving": 70.0}}]
