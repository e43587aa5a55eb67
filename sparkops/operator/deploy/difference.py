"""The difference between the release that serves and the one of a deploy, as an operator reads it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

from sparkops.config import overlay
from sparkops.config.recipe import Recipe
from sparkops.config.release import Release
from sparkops.redact import redacted

DECIDING = {"engine", "image", "model", "serve", "memory", "probe", "swap"}
"""Keys of a recipe that change what a service does. The rest describes it, or is compared as a whole."""
FIRST = ("engine", "image", "model")
"""The keys that come first."""
MOST_LINES, MOST_CHARACTERS, BEFORE_CHARACTERS = 10, 60, 12
"""Lines of a difference, characters of a value, and those of a long value before the first that differs."""
UNSET = "not set"


@dataclass(frozen=True)
class Change:
    """A key of the recipe with its value in the release that serves and in the new one, as text."""

    key: str
    before: str
    after: str

    def __str__(self) -> str:
        pairs = zip(self.before, self.after, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        cut = max(0, same - BEFORE_CHARACTERS) if max(len(self.before), len(self.after)) > MOST_CHARACTERS else 0
        before, after = (f"{'...' if cut else ''}{text[cut:]}" for text in (self.before, self.after))
        return f"{self.key}: {_cut(before)} -> {_cut(after)}"


@dataclass(frozen=True)
class Difference:
    """What a deploy changes. `lost`: KEY=VALUE of the `--set` of the release that serves, which it takes back."""

    serving: str
    changes: tuple[Change, ...] = ()
    lost: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return at most MOST_LINES lines, and one for each lost `--set`."""
        head = f"changes from {self.serving}, which serves:"
        if not self.changes:
            return [f"{head} none"]
        shown = self.changes[: MOST_LINES - 1] if len(self.changes) > MOST_LINES else self.changes
        more = len(self.changes) - len(shown)
        return [
            head,
            *(f"  {change}" for change in shown),
            *([f"  and {more} more: sparkops plan --json"] if more else []),
            *(f"  {self.serving} was deployed with --set {item}; pass it again to keep it" for item in self.lost),
        ]

    def as_json(self) -> dict[str, object]:
        changes = [{"key": item.key, "from": item.before, "to": item.after} for item in self.changes]
        return {"from": self.serving, "changes": changes, "lost": list(self.lost)}


def difference(serving: Release, new: Release) -> Difference:
    """Return what a deploy of `new` changes for the clients of the service, image and model first."""
    before, after = _flat(serving.recipe), _flat(new.recipe)
    keys = sorted({*before, *after}, key=lambda key: (key.partition(".")[0] not in FIRST, key))
    changes = [
        Change(key, before.get(key, UNSET), after.get(key, UNSET)) for key in keys if before.get(key) != after.get(key)
    ]
    if serving.inputs != new.inputs and not any(change.key.startswith("image.") for change in changes):
        changes.insert(0, Change("image", serving.image, new.image))
    if serving.recipe.name != new.recipe.name:
        changes.insert(0, Change("recipe", serving.recipe.name, new.recipe.name))
    return Difference(serving.id, tuple(changes), tuple(_lost(serving.recipe, new.recipe, before, after)))


def _lost(serving: Recipe, new: Recipe, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Yield each `--set` of the release that serves which the new one has neither repeated nor in its file."""
    again = {overlay.place(change) for change in new.changes}
    for change in serving.changes:
        path = overlay.place(change)
        key = ".".join(path)
        values = ({name: text for name, text in flat.items() if _below(name, key)} for flat in (before, after))
        if path not in again and next(values) != next(values):
            yield redacted(change)


def _below(name: str, key: str) -> bool:
    return name == key or name.startswith(f"{key}.")


def _flat(recipe: Recipe) -> dict[str, str]:
    """Return the values of a recipe by their dotted keys; lists as a whole."""
    stated = recipe.model_dump(mode="json", include=DECIDING, exclude={"image": {"disk_gib"}}, exclude_none=True)
    return {key: redacted(text) for key, text in _walk("", stated)}


def _walk(place: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _walk(f"{place}.{key}" if place else str(key), inner)
    elif value not in ({}, []):
        yield place, value if isinstance(value, str) else json.dumps(value)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 3]}..."
