"""Nested JSON of a node, an engine or an image is like any other text that is none: an error of its parser."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import closing

import pytest

from sparkops import foreign
from sparkops.engines import image_facts
from sparkops.errors import ConnectionLost, NodeError
from sparkops.gateway.facts import parse_gateway
from sparkops.node import program
from sparkops.node.network.commands import rendezvous_report
from sparkops.operator.build.images import buildkit
from sparkops.operator.build.lock import finished
from sparkops.operator.build.weights import checkpoint, description
from sparkops.operator.demo.traffic.sender import is_openai_error
from sparkops.operator.fleet.network.facts import SECTIONS, parse_fabric
from sparkops.operator.status.doctor import bundle
from sparkops.serving.smoke import claims
from tests.node.test_docker_api import engine
from tests.operator.fleet.guards.test_leader import replying
from tests.test_architecture import FILES, NODES, relative

NESTED = "[" * 100_000
FABRIC = "".join(f"== {name}\n{NESTED if name == 'addresses' else ''}\n" for name in SECTIONS)
OWN = {
    "config/opt_in.py",  # refuses it by name, as the next one does
    "operator/convert/command_lines.py",
    "config/shipped.py",  # files of the wheel
    "foreign.py",
    "operator/fleet/guards/leader.py",  # what `dumps` has just written
    "node/survey/node_survey.py",  # runs alone, on the node that it reads
    "operator/demo/traffic/report.py",  # what this program has written
    "operator/demo/traffic/sender.py",  # its settings, from the program that starts it
}
"""Modules that read JSON of their own."""


@pytest.mark.parametrize(
    "parse",
    [
        foreign.loads,
        bundle.evidence,
        buildkit.platforms,
        checkpoint.hashes,
        checkpoint.parse,
        image_facts.parse,
        lambda text: description.parse(text, "n1"),
        lambda _: parse_fabric(FABRIC),
        parse_gateway,
        rendezvous_report,
    ],
)
def test_nested_json_is_refused(parse: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match=r"nested too deeply|expected one JSON object|unexpected description"):
        parse(NESTED)


def test_nested_json_is_nothing_where_other_text_is() -> None:
    assert program.parsed(NESTED) is None
    assert checkpoint.bytes_read(NESTED) is None
    assert not is_openai_error(NESTED.encode())
    assert finished.parse({}, NESTED).vllm is None
    assert claims.judge_structured(NESTED)


def test_nested_json_of_a_guard_or_of_docker_is_an_error_of_its_node() -> None:
    unreadable = "the guard's reply to `services` is unreadable: JSON is nested too deeply"
    with closing(replying(f'{{"ok": {NESTED}')) as guard, pytest.raises(ConnectionLost, match=unreadable):
        guard.services()
    with engine(json=NESTED.encode) as reader, pytest.raises(NodeError, match="Docker's answer about c is nested"):
        reader.container("c")


def test_no_other_module_reads_json_without_a_bound_of_its_depth() -> None:
    reads = {
        relative(file)
        for file in FILES
        for node in NODES[file]
        if isinstance(node, ast.Attribute) and node.attr in ("loads", "load") and ast.unparse(node.value) == "json"
    }

    assert reads == OWN
