"""The command lines in recipes of others: slots filled, shell words apart, flags and their values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparkops.command import unquote

SLOT = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
FLAG = re.compile(r"--(?P<flag>[A-Za-z][\w-]*(?:\.[\w-]+)*)(?:=(?P<value>.*))?", re.DOTALL)
INTEGER = re.compile(r"-?[0-9]+")
DECIMAL = re.compile(r"-?[0-9]*\.[0-9]+")
SHORT = {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size"}
"""Flags of vLLM that these recipes write short."""
MOST_DIGITS = 4300
"""Python reads no longer ones."""
OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "2>&1"})
SERVE = ["vllm", "serve"]
MOST_CHARACTERS = 64 * 1024
"""Of a command with its slots filled: a long value may stand in many slots. Real commands have about 1000."""
TOO_LARGE = f"larger than {MOST_CHARACTERS} characters with its slots filled"


def filled(text: str, values: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return a command with its {slots} filled, and the names of slots without a value. {{ and }} are braces.

    Raises ValueError for a command that is larger than MOST_CHARACTERS, before it is put together.
    """
    unknown: dict[str, None] = {}
    size = len(text)

    def one(found: re.Match[str]) -> str:
        nonlocal size
        if found[1] is None:
            return found[0][0]
        if found[1] not in values:
            unknown[found[1]] = None
            return found[0]
        value = str(values[found[1]])
        size += len(value)
        if size > MOST_CHARACTERS:
            raise ValueError(TOO_LARGE)
        return value

    if size > MOST_CHARACTERS:
        raise ValueError(TOO_LARGE)
    return SLOT.sub(one, text), [*unknown]


def words(command: str) -> list[str]:
    """The words of a command over several lines, without its comments. Raises ValueError for an open quote."""
    lines = (line for line in command.splitlines() if not line.lstrip().startswith("#"))
    return unquote(re.sub(r"\\\s*\n", " ", "\n".join(lines) + "\n"))


def serve(argv: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """What stands before `vllm serve`, its arguments, and what a shell would run after it."""
    start = next((n for n in range(len(argv)) if list(argv[n : n + 2]) == SERVE), len(argv))
    given = list(argv[start + 2 :])
    end = next((n for n, word in enumerate(given) if word in OPERATORS), len(given))
    return list(argv[:start]), given[:end], given[end:]


def flags(argv: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Each flag without dashes and its value: true for a bare one, a list for several words.

    What stands before the first flag comes with an empty name.
    """
    name, given = "", list[str]()
    for word in argv:
        found = FLAG.fullmatch(word)
        if found is None and word not in SHORT:
            given.append(word)
            continue
        if name or given:
            yield name, value(given)
        name = normal(found["flag"]) if found else SHORT[word]
        given = [found["value"]] if found and found["value"] is not None else []
    if name or given:
        yield name, value(given)


def normal(flag: str) -> str:
    """A flag as vLLM documents it. Behind a dot stands a key of its configuration, which keeps its underscores."""
    first, dot, rest = flag.partition(".")
    return first.replace("_", "-").lower() + dot + rest


def value(given: Sequence[str]) -> Any:
    """As YAML would have it: numbers and JSON are no text. Raises ValueError where Python cannot hold one."""
    if len(given) != 1:
        return [value([each]) for each in given] or True
    text = given[0]
    if INTEGER.fullmatch(text):
        if len(text) > MOST_DIGITS:
            raise ValueError(f"a number of {len(text)} digits is too long")
        return int(text)
    if DECIMAL.fullmatch(text):
        return float(text)
    try:
        return json.loads(text) if text[:1] in ("{", "[") else text
    except RecursionError:
        raise ValueError("JSON is nested too deep") from None
    except ValueError:
        return text
