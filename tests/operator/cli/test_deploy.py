"""The request that `up` prints at its end, and the check of arguments before a deploy."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from sparkops.config import inventory
from sparkops.operator.cli.deploy import request
from tests.examples import recipe

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
