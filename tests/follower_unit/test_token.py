"""A rank of a Ray cluster is created with the token of its own deploy, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.engines.launch import Seat
from sparkops.errors import NotReady
from sparkops.guard.engines import Engines, secrets
from sparkops.guard.state import State
from sparkops.guard_client.engine_spec import EngineSpec, rank_spec, token_digest, token_name
from sparkops.names import Slot
from sparkops.nodes.local import LocalNode
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Replica
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


@pytest.mark.parametrize(("kept", "why"), [(None, "no Ray token"), (b"earlier", "belongs to another deploy")])
def test_a_guard_without_the_token_of_this_deploy_creates_nothing(kept: bytes | None, why: str) -> None:
    spec = deployed(b"this one")
    engines = Engines(LocalNode("n2"), lambda *_: kept, print)

    with pytest.raises(NotReady, match=f"{why}.*: deploy again"):
        engines.create(rank_spec(spec, "n2"))


def test_the_token_of_a_deploy_that_was_refused_replaces_none_in_use(tmp_path: Path) -> None:
    state = State(tmp_path)
    specs = {token: deployed(token) for token in (b"in use", b"refused")}
    for token, spec in specs.items():
        release = spec.rank("n2").release
        state.put_secret(release.service, token_name(release.id, spec.slot, spec.token), token)
    engines = Engines(LocalNode("n2"), state.secret, print)

    assert engines._token(specs[b"in use"], rank_spec(specs[b"in use"], "n2")) == b"in use"


def test_the_token_that_an_earlier_version_has_kept_is_used(tmp_path: Path) -> None:
    state, spec = State(tmp_path), deployed(b"in use")
    release = spec.rank("n2").release
    state.put_secret(release.service, f"ray-{release.id}-blue", b"in use")
    deployment = Deployment(release.id, spec.slot, (Replica((rank_spec(spec, "n2"),)),))

    assert Engines(LocalNode("n2"), state.secret, print)._token(spec, rank_spec(spec, "n2")) == b"in use"
    assert secrets(Journal(release.service, "n1", active=deployment)) == {
        f"ray-{release.id}-blue",
        token_name(release.id, spec.slot, spec.token),
    }
