"""No key, token or password stands where everybody who has the image can read it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkops.lint.dockerfile import Instruction
from sparkops.lint.finding import Found
from sparkops.lint.stages import Build, variables
from sparkops.lint.words import split
from sparkops.redact import KEY, KINDS, names_secret, redacted

HARMLESS = re.compile(r"[0-9.]*|true|false|/\S*|<\S*>", re.IGNORECASE)
FIX = "RUN --mount=type=secret,id=NAME,env=NAME for a build; for a server, a key that its node keeps"


def check(build: Build) -> Iterator[Found]:
    """Each ENV and ARG that holds a secret, and each text that looks like a key, wherever it stands."""
    for each in build.dockerfile.instructions:
        named = list(_named(each, build.dockerfile.escape))
        yield from named or _written(each)


def named_secret(name: str, value: str | None) -> bool:
    """Whether the name says that its value is a secret. None: the value is given at build time."""
    return names_secret(name) and (value is None or not HARMLESS.fullmatch(value.strip("\"'")))


def looks_secret(text: str) -> tuple[int, str] | None:
    """Where in the text a key begins, and its kind."""
    found = KEY.search(text)
    return (found.start(), list(KINDS)[(found.lastindex or 1) - 1]) if found else None


def hidden(text: str) -> str:
    """The text without what may be a secret in it: findings are printed and kept."""
    return KEY.sub("...", redacted(text))


def _named(instruction: Instruction, escape: str) -> Iterator[Found]:
    if instruction.keyword not in ("ARG", "ENV"):
        return
    lines = {word.text({}).partition("=")[0]: word.line for word in split(instruction.rest, escape)}
    given = dict.fromkeys(lines) if instruction.keyword == "ARG" else {}
    for name, value in (given | dict(variables(instruction, escape, {}))).items():
        if named_secret(name, value or given.get(name, "")):
            line = lines.get(name, instruction.line)
            told = f"{instruction.keyword} {name} holds a secret, and the image's history shows it to whoever has it"
            yield Found(line, f"{told}, expected a secret mount", FIX)


def _written(instruction: Instruction) -> Iterator[Found]:
    for text in (instruction.rest, *(each.body for each in instruction.heredocs)):
        if found := looks_secret(text.text):
            told = f"{found[1]} stands in this {instruction.keyword}, and whoever has the image can read it"
            yield Found(text.line(found[0]), f"{told}, expected a secret mount", FIX)
