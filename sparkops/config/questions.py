"""An owner's own questions for `swap.compare`: a file of requests, one a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparkops import foreign
from sparkops.config.recipe import Recipe
from sparkops.errors import ConfigError

MOST = 16
MOST_BYTES = 2**20


def of(recipe: Recipe) -> tuple[dict[str, Any], ...]:
    """Read the file of `swap.questions`; nothing without one. Raises ConfigError."""
    if recipe.swap.questions is None:
        return ()
    file = recipe.file.parent / Path(recipe.swap.questions).expanduser()
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(recipe.file, 1, "swap.questions", f"{file}: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise ConfigError(file, 1, "", f"expected at most {MOST_BYTES} bytes")
    found = tuple(_read(file, data.decode(errors="replace")))
    if not 1 <= len(found) <= MOST:
        raise ConfigError(file, 1, "", f"{len(found)} questions, expected 1 to {MOST}")
    return found


def _read(file: Path, text: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            body = foreign.loads(line)
        except ValueError as error:
            raise ConfigError(file, number, "", f"not JSON: {error}") from None
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
            raise ConfigError(file, number, "messages", "missing, expected a request of /v1/chat/completions")
        yield body
