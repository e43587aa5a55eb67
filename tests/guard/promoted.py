"""An engine that serves, as the guard of node n1 knows it."""

from __future__ import annotations

from typing import Any

from sparkops.guard.follow.local_service import PromotedRank
from sparkops.names import Slot
from sparkops.serving.engine_spec import EngineSpec, rank_spec
from tests.examples import IMAGE_ID, INPUTS, container, rank, recipe


def promoted_rank(*, alone: bool = False, **changes: Any) -> PromotedRank:
    """Return rank 0 of release q-1 of service chat, which runs. `changes`: keys of its recipe."""
    data = recipe(**changes).model_dump(mode="json", exclude_defaults=True)
    given = {"recipe": data, "inputs": INPUTS, "image": IMAGE_ID, "slot": Slot.BLUE, "index": 0, "jobs": 1}
    spec = EngineSpec.model_validate({**given, "address": "127.0.0.1", "node": {"transport": "local"}})
    return PromotedRank(
        service="chat",
        release="q-1",
        rank=rank_spec(spec, "n1"),
        head=True,
        container=container(rank(**changes), started_at=1.0),
        starting=False,
        hindered="",
        unknown=False,
        restarts=0,
        alone=alone,
    )
