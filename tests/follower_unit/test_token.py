"""A rank of a Ray cluster is created with the token of its own deploy, or not at all."""

from __future__ import annotations

import pytest

from sparkops.engine.ranks import Seat
from sparkops.errors import NotReady
from sparkops.guard.engines import Engines
from sparkops.guard_client.engine_spec import EngineSpec, rank_spec, token_digest
from sparkops.names import Slot
from sparkops.nodes.local import LocalNode
from tests import examples

RECIPE = examples.recipe(serve={"tensor_parallel": 2, "executor": "ray"})
SEAT = Seat("10.0.0.2", "10.0.0.1", peers=("10.0.0.1", "10.0.0.2"))


@pytest.mark.parametrize(("kept", "why"), [(None, "no Ray token"), (b"earlier", "belongs to another deploy")])
def test_a_guard_without_the_token_of_this_deploy_creates_nothing(kept: bytes | None, why: str) -> None:
    spec = EngineSpec(
        recipe=RECIPE.model_dump(mode="json", exclude_defaults=True),
        inputs=examples.INPUTS,
        image=examples.IMAGE_ID,
        slot=Slot.BLUE,
        index=1,
        address="10.0.0.2",
        node={"address": "10.0.0.2", "gpu": "none"},
        jobs=1,
        seat=SEAT,
        token=token_digest(b"this one"),
    )
    engines = Engines(LocalNode("n2"), lambda *_: kept, print)

    with pytest.raises(NotReady, match=f"{why}.*: deploy again"):
        engines.create(rank_spec(spec, "n2"))
