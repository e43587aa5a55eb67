"""A Python program that is sent with the command that runs it: nothing is installed on a node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sparkops import foreign
from sparkops.command import Command

# The first line of stdin holds the modules, each created under its name; the last one is the program. Its request
# is the second line, so that no list of processes shows it.
BOOT = (
    "import json, sys; "
    "[exec(compile(text, name + '.py', 'exec'), sys.modules.setdefault(name, type(sys)(name)).__dict__) "
    "for name, text in json.loads(sys.stdin.buffer.readline()).items()]"
)
NODE = ("python3",)
"""The node's own Python: 3.9 or newer, which every DGX OS has."""


def python(
    modules: Mapping[str, str],
    request: Mapping[str, Any],
    *,
    interpreter: Sequence[str] = NODE,
    timeout_s: float = 60.0,
    changes: bool = False,
) -> Command:
    """Run `modules` (the last one is the program) with `interpreter`, and send it `request`."""
    stdin = "".join(f"{json.dumps(line)}\n" for line in (modules, request))
    return Command((*interpreter, "-c", BOOT), stdin=stdin.encode(), timeout_s=timeout_s, changes=changes)


def parsed(line: str) -> Any:
    """Return the JSON of a line that a program printed; None for anything else, such as a warning."""
    try:
        return foreign.loads(line)
    except ValueError:
        return None
