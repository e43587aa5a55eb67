"""Every recipe's arguments, as the parser of a real vLLM reads them: one container for all of them."""

from __future__ import annotations

import json

import pytest

from sparkops.config import recipe, shipped
from sparkops.config.recipe import Recipe
from sparkops.engine import ranks
from sparkops.names import Slot
from sparkops.release import Rank, Release
from tests.fleet.fleet import Fleet as RealFleet

# What the vLLM of this image does not take any more, with the last version that did: none of the shipped recipes.
OLDER: dict[str, str] = {}
# What starts the ranks of a pair; sparkops adds it, so no recipe has it.
PAIR = {
    "ray": ("--tensor-parallel-size=2", "--distributed-executor-backend=ray"),
    "mp": ("--tensor-parallel-size=2", "--nnodes=2", "--node-rank=0", "--master-addr=10.0.0.1", "--master-port=29501"),
}
WRONG = {
    "an unknown argument": ["serve", "/models/q", "--no-such-argument=1"],
    "a value that is none": ["serve", "/models/q", "--kv-cache-dtype=turboquant35"],
    "JSON that is none": ["serve", "/models/q", "--speculative-config={method: mtp}"],
    "a tool parser that is none": ["serve", "/models/q", "--enable-auto-tool-choice", "--tool-call-parser=qwen9"],
    "a reasoning parser that is none": ["serve", "/models/q", "--reasoning-parser=qwen9"],
}
PARSE = """
import contextlib, io, json, sys

from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))


def problem(argv):
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args = parser.parse_args(argv[1:])
        validate_parsed_serve_args(args)
    except SystemExit:
        return said.getvalue().strip().splitlines()[-1]
    except (TypeError, ValueError, KeyError) as error:
        return str(error)
    tools, thoughts = ToolParserManager.list_registered(), ReasoningParserManager.list_registered()
    named = (args.tool_call_parser, tools), (args.reasoning_parser, thoughts)
    return next((f"no parser {name}" for name, known in named if name and name not in known), "")


print(json.dumps({name: problem(argv) for name, argv in json.loads(sys.argv[1]).items()}))
"""


def argv(of: Recipe) -> list[str]:
    """What the container of rank 0 is told."""
    arguments = ranks.serve(Rank(Release(of, "0" * 64), Slot.BLUE, "n1"), "/models")
    return [*arguments, *(PAIR[of.serve.executor] if of.serve.tensor_parallel == 2 else ())]


@pytest.fixture(scope="module")
def problems(nodes: RealFleet, built: str) -> dict[str, str]:
    """What the parser says of each recipe and of each wrong example; empty where it takes it."""
    loaded = [recipe.load(file) for file in sorted(shipped.directory("recipes").glob("*.yaml"))]
    command_lines = {
        shipped_recipe.name: argv(shipped_recipe) for shipped_recipe in loaded if shipped_recipe.engine == "vllm"
    } | WRONG
    options = ("--rm", "--interactive", "--network=none", "--entrypoint=python")
    output = nodes.node("node-1").exec(
        "docker", "run", *options, built, "-", json.dumps(command_lines), stdin=PARSE.encode()
    )
    verdicts: dict[str, str] = json.loads(output.strip().splitlines()[-1])
    return verdicts


@pytest.mark.vllm
def test_every_recipe_has_arguments_that_a_real_vllm_takes(problems: dict[str, str]) -> None:
    refused = {name: problem for name, problem in problems.items() if problem and name not in WRONG}

    assert set(refused) == set(OLDER), refused
    assert len(problems) - len(WRONG) >= 26


@pytest.mark.vllm
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(problems: dict[str, str], name: str) -> None:
    """Otherwise the test above could not fail."""
    assert problems[name]
