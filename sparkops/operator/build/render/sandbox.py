"""Render templates in a strict sandbox. Its filters reject values that would add a line or an argument."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import GeneratorType, TracebackType
from typing import cast

from jinja2 import FunctionLoader, StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.sandbox import SandboxedEnvironment

from sparkops.errors import ConfigError

ROOT = "templates/"

FILTERS = {
    "word": (r"[A-Za-z0-9][A-Za-z0-9._+-]*", "a word"),
    "image": (r"[A-Za-z0-9][A-Za-z0-9._/:@-]*", "an image"),
    "model": (r"[A-Za-z0-9][A-Za-z0-9._/-]*", "the name of a model"),
    "origin": (r"[a-z][a-z0-9+.-]*://[A-Za-z0-9_.:\[\]-]+", "an origin"),
    "requirement": (r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?==[A-Za-z0-9.!+]+", "a requirement"),
    "repository": (r"https://[A-Za-z0-9.-]+(/[A-Za-z0-9._-]+)+", "a git repository"),
    "commit": (r"[0-9a-f]{40}", "a commit"),
    "setting": (r"[A-Z_]+=[A-Za-z0-9/:._$-]+", "a setting"),
    "quoted": (r'"(?:[^"\\\n]|\\[^\n])*"', "a text in double quotes"),
}
"""Allowed characters of each kind of value, also checked by the models."""


def fill(name: str, templates: Mapping[str, str], **values: object) -> str:
    """Return the text of the template `name`, without runs of empty lines. Raises ConfigError with file and line."""
    try:
        text = _environment(frozenset(templates.items())).get_template(name).render(**values)
    except TemplateError as error:
        raise _translate(error, name) from error
    return re.sub(r"\n{3,}", "\n\n", text.strip()) + "\n"


def origins(name: str, templates: Mapping[str, str], **values: object) -> list[int]:
    """Return the line of the template for each line of its text that is not blank.

    The text of a macro has the line that calls it.
    """
    template = _environment(frozenset(templates.items())).get_template(name)
    pieces = cast("GeneratorType[str, None, None]", template.root_render_func(template.new_context(values)))
    source, lines, begins = templates[name].split("\n"), list[int](), True
    for piece in pieces:
        frame = pieces.gi_frame
        at = template.get_corresponding_lineno(frame.f_lineno) if frame else 1
        for number, part in enumerate(piece.split("\n")):
            begins = begins or number > 0
            if part.strip() and begins:
                if piece in templates[name]:
                    at = next((line for line in range(at, len(source) + 1) if part in source[line - 1]), at)
                lines.append(at)
                begins = False
    return lines


@lru_cache(maxsize=8)
def _environment(sources: frozenset[tuple[str, str]]) -> SandboxedEnvironment:
    """Return the environment of these templates, which compiles a template once."""
    templates = dict(sources)

    def load(name: str) -> tuple[str, str, None] | None:
        return (templates[name], ROOT + name, None) if name in templates else None

    environment = SandboxedEnvironment(
        loader=FunctionLoader(load), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters = {name: _only(characters, words) for name, (characters, words) in FILTERS.items()}
    return environment


def _only(characters: str, words: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(characters, value):
            raise TemplateError(f"expected {words}, got {value!r}")
        return value

    return check


def _translate(error: TemplateError, name: str) -> ConfigError:
    if isinstance(error, TemplateSyntaxError):
        file, line = error.filename or ROOT + name, error.lineno
    else:
        file, line = _place(error.__traceback__, ROOT + name)
    return ConfigError(Path(file), line, "", error.message or type(error).__name__)


def _place(traceback: TracebackType | None, file: str, line: int = 1) -> tuple[str, int]:
    """Return file and line of an error: those of the last frame in a template."""
    while traceback:
        if traceback.tb_frame.f_code.co_filename.startswith(ROOT):
            file, line = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next
    return file, line
