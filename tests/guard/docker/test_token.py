"""The token of a Ray cluster: in the container of a rank before its start, and nowhere else."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import replace
from typing import Any

import pytest

from sparkops.command import Command, Completed
from sparkops.config.recipe import Recipe
from sparkops.engines.launch import Seat
from sparkops.engines.ray import TOKEN
from sparkops.guard.follow.engines import Engines
from sparkops.node.local import LocalNode
from sparkops.serving import engine_spec
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.model import Deployment, RankSpec
from tests import examples
from tests.fleet.shell import client
from tests.guard.docker.here import Here, inspect

pytestmark = pytest.mark.fleet


class Ended(BaseException):
    """The guard's process ends."""


class Mortal(LocalNode):
    """A node whose guard ends before it writes the token."""

    def run(self, command: Command, **options: Any) -> Completed:
        if command.argv[:2] == ("docker", "cp"):
            raise Ended
        return super().run(command, **options)


SEAT = Seat("127.0.0.1", "127.0.0.1", peers=("127.0.0.1", "127.0.0.2"))


def pair(guard: Here, token: bytes = b"secret token") -> Deployment:
    """A release whose rank here is the second of two."""
    serve = {"tensor_parallel": 2, "executor": "ray", "shm_gib": 0.1}
    data: dict[str, Any] = {"name": "f-pair", "service": "pair", "serve": serve}
    recipe: Recipe = examples.recipe(**data)
    return guard.deployment(recipe, index=1, seat=SEAT, token=engine_spec.token_digest(token))


def test_without_a_token_nothing_is_created(guard: Here) -> None:
    target = pair(guard)
    [rank] = target.ranks
    guard.turn()
    guard.send(guard.begun(target))
    assert guard.until(lambda: guard.engine(rank).problem) == "no Ray token on this node: deploy again"
    assert inspect(rank.container) is None


def token_name(target: Deployment, rank: RankSpec) -> str:
    """The name of the token that a rank was deployed with."""
    return engine_spec.token_name(target.release, target.slot, engine_spec.of(rank).token)


def refused(guard: Here, rank: RankSpec) -> None:
    """Tend until the guard reports that it lacks the token of this deploy."""
    assert guard.until(lambda: guard.engine(rank).problem).endswith("deploy again")


def test_a_container_of_an_earlier_deploy_is_created_anew_with_the_token_of_this_one(guard: Here) -> None:
    guard.turn()
    for number, token in enumerate((b"first token", b"second token")):
        target = pair(guard, token)
        [rank] = target.ranks
        begun = guard.begun(target)
        guard.send(replace(begun, revision=begun.revision + number))
        refused(guard, rank)
        guard.state.put_secret("pair", token_name(target, rank), token)
        guard.restart().turn()
        guard.send(replace(begun, revision=begun.revision + number))
        guard.is_(rank, EngineState.STOPPED)
        assert token_of(rank) == token


def test_the_token_lies_in_the_container_for_its_user_only(guard: Here) -> None:
    target = pair(guard)
    [rank] = target.ranks
    guard.state.put_secret("pair", token_name(target, rank), b"secret token")
    guard.turn()
    guard.send(guard.begun(target))
    guard.is_(rank, EngineState.STOPPED)
    copied = subprocess.run((client(), "cp", f"{rank.container}:{TOKEN}", "-"), capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(copied.stdout)) as packed:
        [member] = packed.getmembers()
        content = packed.extractfile(member)
        assert (member.mode & 0o777, content.read() if content else b"") == (0o400, b"secret token")
    assert "secret token" not in str(inspect(rank.container))


def token_of(rank: RankSpec) -> bytes:
    """What lies in a container."""
    copied = subprocess.run((client(), "cp", f"{rank.container}:{TOKEN}", "-"), capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(copied.stdout)) as packed:
        [member] = packed.getmembers()
        content = packed.extractfile(member)
        assert content
        return content.read()


def test_a_container_that_got_no_token_before_its_guard_ended_is_created_anew(guard: Here) -> None:
    target = pair(guard)
    [rank] = target.ranks
    guard.state.put_secret("pair", token_name(target, rank), b"secret token")
    with pytest.raises(Ended):
        Engines(Mortal(guard.node.name), guard.state.secret, print).create(rank)
    guard.restart().turn()
    guard.send(guard.begun(target))
    guard.is_(rank, EngineState.STOPPED)
    assert (token_of(rank), inspect(f"{rank.container}.new")) == (b"secret token", None)
