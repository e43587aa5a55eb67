"""Run import over the corpus again: `python -m tests.lab.corpora.judge CLONES` rewrites docs/evidence/recipes.jsonl.

A judgement is by hand: WRONG names all that was judged false, with the reason. A change of import that gives other
results needs new judgements.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sparkops.config import source
from sparkops.config.recipe import Recipe
from sparkops.errors import ConfigError
from sparkops.operator.convert import other_tools
from tests.lab.corpora.collect import Entry, recorded
from tests.places import ROOT

EVIDENCE = ROOT / "docs" / "evidence" / "recipes.jsonl"
WRONG: Mapping[tuple[str, str], str] = {}
"""By repository and path."""


def imported(content: bytes) -> dict[str, Any]:
    """Return the result of an import: imported with its losses, or refused with the reasons."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "recipe.yaml")
        file.write_bytes(content)
        try:
            conversion = other_tools.convert(other_tools.read(file), content.decode(), "recipe")
            reasons = [f"{omission.line}: {omission.key}: {omission.reason}" for omission in conversion.refusals]
            if not reasons:
                source.validate(source.Source(file, conversion.data, conversion.lines), Recipe)
        except ConfigError as error:
            return {"result": "not read", "reasons": [str(error).removeprefix(f"{file}:")]}
    if reasons:
        return {"result": "refused", "reasons": reasons}
    return {"result": "imported", "losses": [f"{omission.line}: {omission.key}" for omission in conversion.losses]}


def judged(entry: Entry) -> dict[str, Any]:
    reason = WRONG.get((entry.repository, entry.path))
    return {"true": reason is None} | ({"why": reason} if reason else {})


def lines(clones: Path) -> Iterator[dict[str, Any]]:
    manifest = [json.loads(line) for line in EVIDENCE.read_text().splitlines()]
    for entry, content in recorded(clones, manifest):
        yield entry._asdict() | imported(content) | judged(entry)


def main() -> None:
    records = list(lines(Path(sys.argv[1])))
    EVIDENCE.write_text("".join(json.dumps(record) + "\n" for record in records))
    print(Counter(record["result"] for record in records))


if __name__ == "__main__":
    main()
