"""Run lint and import over the corpora again: `python -m tests.corpora.judge CLONES` rewrites docs/evidence/*.jsonl.

A judgement is by hand: WRONG and WRONG_IMPORTS name all that was judged false, with the reason. A change of lint or
import that gives other findings needs new judgements.
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
from sparkops.convert import other_tools
from sparkops.errors import ConfigError
from sparkops.lint.check import check_dockerfile, findings
from sparkops.lint.rules.table import NAMES
from tests.corpora.collect import Entry, recorded

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
WRONG: Mapping[tuple[str, str, int, str], str] = {
    ("InternLM/lmdeploy", "docker/Dockerfile_dev", 61, "torch-override"): "the torch there is what lmdeploy asks for",
    ("kvcache-ai/ktransformers", "archive/Dockerfile", 54, "torch-override"): "this release asks for torch>=2.3 only",
    ("llm-d/llm-d", "Dockerfile", 207, "torch-override"): "it names a wheel of vLLM for the torch that is there",
    ("opendatahub-io/vllm", "Dockerfile", 202, "torch-override"): "the wheel asks for the torch of the stage below",
}
"""By repository, path, line and rule."""
WRONG_IMPORTS: Mapping[tuple[str, str], str] = {}
"""By repository and path."""
FILES = {"Dockerfile": EVIDENCE / "dockerfiles.jsonl", "recipe": EVIDENCE / "recipes.jsonl"}


def linted(entry: Entry, content: bytes) -> list[dict[str, Any]]:
    """Return every finding of a Dockerfile with its judgement."""
    lint_findings = findings([check_dockerfile(content.decode(), entry.path)], NAMES)
    return [
        {
            "line": finding.line,
            "rule": finding.rule,
            "problem": finding.problem,
            **judged(entry, finding.line, finding.rule),
        }
        for finding in lint_findings
    ]


def judged(entry: Entry, line: int, rule: str) -> dict[str, Any]:
    reason = WRONG.get((entry.repository, entry.path, line, rule))
    return {"true": reason is None} | ({"why": reason} if reason else {})


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


def judged_import(entry: Entry) -> dict[str, Any]:
    reason = WRONG_IMPORTS.get((entry.repository, entry.path))
    return {"true": reason is None} | ({"why": reason} if reason else {})


def lines(clones: Path) -> Iterator[dict[str, Any]]:
    manifest = [json.loads(line) for file in FILES.values() for line in file.read_text().splitlines()]
    for entry, content in recorded(clones, manifest):
        if entry.kind == "Dockerfile":
            yield entry._asdict() | {"findings": linted(entry, content)}
        else:
            yield entry._asdict() | imported(content) | judged_import(entry)


def main() -> None:
    records = list(lines(Path(sys.argv[1])))
    for kind, file in FILES.items():
        file.write_text("".join(json.dumps(record) + "\n" for record in records if record["kind"] == kind))
    print(Counter(record["result"] for record in records if record["kind"] == "recipe"))
    print(Counter(finding["rule"] for record in records for finding in record.get("findings", ())))


if __name__ == "__main__":
    main()
