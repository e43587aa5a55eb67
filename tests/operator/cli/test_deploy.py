"""The request that `up` prints at its end, and the check of arguments before a deploy."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkops.config import inventory
from sparkops.errors import Busy
from sparkops.node.progress import Event
from sparkops.operator.cli import deploy as deploy_verb
from sparkops.operator.cli.deploy import request
from tests.examples import recipe, release

NODES = "nodes: {n1: {address: 10.0.0.1}, n2: {address: 10.0.0.2}}\n"


@pytest.mark.parametrize(
    ("gateway", "url", "authorized"),
    [
        ("gateway: {node: n1}\n", "http://10.0.0.1:8000/v1/chat/completions", False),
        ("gateway: {node: n1, address: spark, api_keys: [k]}\n", "http://spark:8000/v1/chat/completions", True),
        ("gateway: {node: n1, port: 9000}\n", "http://10.0.0.1:9000/v1/chat/completions", False),
    ],
)
def test_the_request_is_one_that_a_shell_understands(tmp_path: Path, gateway: str, url: str, authorized: bool) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(NODES + gateway)

    command, called, *options = shlex.split(request(inventory.load(file), recipe()))

    assert (command, called) == ("curl", url)
    assert ("Authorization: Bearer KEY" in options) is authorized
    assert json.loads(options[-1])["model"] == recipe().service


@pytest.mark.parametrize("loading", [False, True], ids=["judged", "an engine loads"])
def test_changed_arguments_are_judged_before_a_deploy_unless_an_engine_loads(
    monkeypatch: pytest.MonkeyPatch, loading: bool
) -> None:
    asked, events = list[tuple[str, str]](), list[Event]()

    def require(member: SimpleNamespace, tag: str, *_: object) -> None:
        asked.append((member.name, tag))
        if loading:
            raise Busy("n2: an engine loads")

    monkeypatch.setattr(deploy_verb, "require_accepted", require)
    members = {name: SimpleNamespace(name=name) for name in ("n1", "n2")}
    operation = SimpleNamespace(connected=SimpleNamespace(members=members), report=events.append)
    plan = SimpleNamespace(ranks=[SimpleNamespace(node="n2"), SimpleNamespace(node="n1")])

    for of in (release(), release(engine="stand-in", image={"torch": None, "vllm": None})):
        deploy_verb._require_arguments(operation, of, plan)  # type: ignore[arg-type]  # what it reads of them

    assert asked == [("n2", release().image)], "only an engine with a parser is asked, on the node of rank 0"
    assert [event.text for event in events] == (
        ["arguments not checked before the start: n2: an engine loads"] if loading else []
    )
