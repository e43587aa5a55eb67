"""`python -m tests.docs.verbs > docs/verbs.md`: every verb with its options, as the program's own --help has them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from sparkops.operator.cli.main import command
from sparkops.operator.cli.verbs import GROUPS

HEAD = """\
# Verbs

Written by `python -m tests.docs.verbs` from the `--help` of each verb. [operations.md](operations.md#exit-codes)
has the exit codes."""
EVERYWHERE = {"help", "install_completion", "show_completion"}
EVERY = """\
## Every verb

These options may stand before the verb or after it; each verb has `--help`. Data goes to stdout, messages and progress
to stderr. With `--json`, a refusal prints `{"exit_code": 5, "error": "...", "next": ["..."]}` to stdout as well, unless
the verb has printed its own object. Times are seconds or such as `90s`, `10m`, `1h30m`. `sparkops
--install-completion` completes verbs, recipes, services and nodes."""


def page() -> str:
    """Return the page."""
    program: Any = command()
    context = program.make_context("sparkops", ["status"])
    parts = [HEAD, EVERY, options(program, context)]
    for title, group in GROUPS.items():
        parts.append(f"## {title}")
        for name, verb in group.items():
            parts += described(verb.load(name), name, context)
    return "\n\n".join(part for part in parts if part) + "\n"


def described(verb: Any, name: str, parent: Any) -> Iterator[str]:
    """Yield heading, usage, text and options of a verb, then of those below it."""
    context = verb.context_class(verb, info_name=name, parent=parent)
    words = context.command_path
    yield f"### {words.removeprefix('sparkops ')}"
    if hasattr(verb, "resolve_command"):
        yield from paragraphs(verb.help or "")
        for inner in verb.list_commands(context):
            yield from described(verb.verbs[inner].load(inner), inner, context)
        return
    yield f"    {' '.join([words, *verb.collect_usage_pieces(context)])}"
    yield from paragraphs(verb.help or "")
    yield options(verb, context)


def paragraphs(text: str) -> Iterator[str]:
    """Yield each paragraph of a help text; the first is a title without a period."""
    first, *rest = (" ".join(part.split()) for part in text.split("\n\n"))
    yield f"{first}."
    yield from rest


def options(verb: Any, context: Any) -> str:
    """Return the arguments and options as a table, without those that every verb has."""
    every = (param for param in verb.get_params(context) if not getattr(param, "hidden", False))
    own = (param for param in every if param.name not in EVERYWHERE)
    rows = [f"| `{name}` | {' '.join(meaning.split())} |" for name, meaning in (shown(param, context) for param in own)]
    return "\n".join(["| option | effect |", "| --- | --- |", *rows]) if rows else ""


def shown(param: Any, context: Any) -> tuple[str, str]:
    """Return the two columns of an argument or option in --help."""
    name, meaning = param.get_help_record(context)
    return name.replace("|", "\\|"), meaning.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
