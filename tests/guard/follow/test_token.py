"""A rank of a Ray cluster is created with the token of its own deploy, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.engines.launch import Seat
from sparkops.errors import NotReady
from sparkops.guard.disk.state import State
from sparkops.guard.follow.engines import Engines
from sparkops.names import Slot
from sparkops.node.local import LocalNode
from sparkops.serving.engine_spec import EngineSpec, rank_spec, token_digest, token_name
from tests import examples

RECIPE = examples.recipe(serve={"tensor_parallel": 2, "executor": "ray"})
SEAT = Seat("10.0.0.2", "10.0.0.1", peers=("10.0.0.1", "10.0.0.2"))


def deployed(token: bytes) -> EngineSpec:
    """The spec of a rank that was deployed with a token."""
    return EngineSpec(
        recipe=RECIPE.model_dump(mode="json", exclude_defaults=True),
        inputs=examples.INPUTS,
        image=examples.IMAGE_ID,
        slot=Slot.BLUE,
        index=1,
        address="10.0.0.2",
        node={"address": "10.0.0.2", "gpu": "none"},
        jobs=1,
        seat=SEAT,
        token=token_digest(token),
    )


def test_a_guard_without_the_token_of_this_deploy_creates_nothing(tmp_path: Path) -> None:
    state, spec = State(tmp_path), deployed(b"this one")
    release = spec.rank("n2").release
    state.put_secret(release.service, token_name(release.id, spec.slot, deployed(b"earlier").token), b"earlier")
    engines = Engines(LocalNode("n2"), state.secret, print)

    with pytest.raises(NotReady, match=r"no Ray token on this node: deploy again"):
        engines.create(rank_spec(spec, "n2"))


def test_the_token_of_a_deploy_that_was_refused_replaces_none_in_use(tmp_path: Path) -> None:
    state = State(tmp_path)
    specs = {token: deployed(token) for token in (b"in use", b"refused")}
    for token, spec in specs.items():
        release = spec.rank("n2").release
        state.put_secret(release.service, token_name(release.id, spec.slot, spec.token), token)
    engines = Engines(LocalNode("n2"), state.secret, print)

    assert engines._token(specs[b"in use"], rank_spec(specs[b"in use"], "n2")) == b"in use"
