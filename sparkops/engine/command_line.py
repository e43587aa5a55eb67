"""What a container runs: the engine's program and its arguments, as values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sparkops.config.engine import ENGINES
from sparkops.config.inventory import LOOPBACK
from sparkops.release import Rank

JSON_LISTS = frozenset({"allowed-origins", "allowed-methods", "allowed-headers"})
"""Flags of vLLM that take a list as JSON; so does each key behind a dot. Every other list is several words: nargs='+'
(vllm/entrypoints/launchers/cli_args.py and utils/argparse_utils.py of 0.32.0)."""
REPEATED = frozenset({"middleware"})
"""Flags of vLLM that are written once for each item (ibid., action='append')."""


def serve(rank: Rank, models: str) -> tuple[str, ...]:
    """What follows the engine's program. `models` is where its container sees the node's model directory."""
    recipe = rank.release.recipe
    engine = ENGINES[recipe.engine]
    host = LOOPBACK if rank.callers == () else "0.0.0.0"  # noqa: S104 - the guard filters, or there is no gateway
    known = {"model": f"{models}/{recipe.model.path}", "host": host, "port": rank.port}
    given = (argument.format(**known) for argument in engine.arguments)
    name = [recipe.service, *recipe.serve.aliases] if recipe.serve.aliases else recipe.service
    return (*given, *arguments({engine.name_flag: name, **recipe.serve.args}, engine.off))


def arguments(args: Mapping[str, Any], off: str) -> Iterable[str]:
    """The arguments of the recipe's mapping, in the order in which they were written. `off` writes a false one."""
    for flag, value in args.items():
        match value:
            case True:
                yield f"--{flag}"
            case False:
                yield off.format(flag=flag)
            case dict():
                yield f"--{flag}={json.dumps(value)}"
            case list() if "." in flag or flag in JSON_LISTS:
                yield f"--{flag}={json.dumps(value)}"
            case list() if flag in REPEATED:
                yield from (f"--{flag}={_text(item)}" for item in value)
            case list():
                yield from (f"--{flag}", *(_text(item) for item in value))
            case _:
                yield f"--{flag}={value}"


def _text(item: Any) -> str:
    return item if isinstance(item, str) else json.dumps(item)
