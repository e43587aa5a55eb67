"""The catalogue of causes: one object and one log a cause, and no cause for a start that succeeds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config.recipe import Recipe
from sparkops.engines import ENGINES
from sparkops.engines.causes import Cause
from sparkops.operator.cli.verbs import GROUPS
from sparkops.serving.startup import causes, root
from sparkops.serving.startup.explain import Explanation, explain, of_docker
from tests.serving.startup import judging, starts
from tests.serving.startup.starts import STARTS, Start

CAPTURED = STARTS.parent
SHORT = {
    f"{file.stem}-{number}": entry
    for file in sorted((STARTS / "short").glob("*.yaml"))
    for number, entry in enumerate(yaml.safe_load(file.read_text()))
}
GOOD = [start for start in starts.load() if start.truth["kind"] == "good"]
FAILED = [start for start in starts.load() if start.truth["kind"] == "failed"]


def catalogue() -> Iterator[Cause]:
    """Yield every cause."""
    for engine in ENGINES.values():
        yield from engine.log.causes
    for known in (*causes.LAYERS.values(), causes.DOCKER):
        yield from known


def explained(entry: dict[str, Any]) -> Explanation:
    stalled = bool(entry.get("quiet") or entry.get("ends", "exit") != "exit")
    return explain(entry["lines"].splitlines(), causes.of(entry["engine"]), stalled=stalled)


@pytest.mark.local
@pytest.mark.parametrize("name", SHORT)
def test_a_log_of_few_lines_has_its_root_and_its_cause(name: str) -> None:
    entry = SHORT[name]
    if entry["engine"] == judging.DOCKER:
        known = of_docker(entry["lines"])
        assert known
        assert entry["cause"] in known.cause
        return
    found = explained(entry)

    assert found.advice, found.root
    assert entry["cause"] in found.advice.cause
    assert entry["root"] in entry["lines"].splitlines()[found.number or 0]


@pytest.mark.local
@pytest.mark.parametrize("start", GOOD, ids=lambda start: start.name)
def test_nothing_in_the_log_of_a_good_start_is_a_cause(start: Start) -> None:
    assert [found.advice for found in judging.explained(start) if found.advice] == []
    log = ENGINES[start.truth["engine"]].log
    fatal = [line for file in start.files for line in file.read_text().splitlines() if log.read(line).fatal]
    assert fatal == []


def _texts() -> Iterator[str]:
    yield from (entry["lines"] for entry in SHORT.values())
    yield from (file.read_text() for start in FAILED for file in start.files)


def _bare(line: str) -> str:
    return root.entries([line])[0].text


@pytest.mark.local
def test_each_cause_is_shown_by_a_log() -> None:
    """Adding a cause is one object and one log. Where another line of the log says more, that one is the root."""
    shown = {id(explained(entry).known) for entry in SHORT.values() if entry["engine"] != judging.DOCKER}
    shown |= {id(found.known) for start in FAILED for found in judging.known(start)}
    for file in CAPTURED.glob("*.log"):
        lines = file.read_text(errors="replace").splitlines()
        engine = next((name for name in ("vllm", "sglang", "llama-cpp") if file.name.startswith(name)), None)
        shown |= {id(explain(lines, causes.of(engine)).known)} if engine else set()
    printed = [entry["lines"] for entry in SHORT.values() if entry["engine"] == judging.DOCKER]
    printed += [start.files[0].read_text() for start in FAILED if start.truth["engine"] == judging.DOCKER]
    printed += [file.read_text() for file in CAPTURED.glob("docker-*.txt")]
    docker = {advice.cause for text in printed if (advice := of_docker(text))}

    unseen = [cause for cause in catalogue() if id(cause) not in shown]
    texts = {line for text in (*printed, *_texts()) for line in text.splitlines()} if unseen else set()
    nowhere = [cause for cause in unseen if not any(re.search(cause.pattern, _bare(line)) for line in texts)]
    assert [cause.pattern for cause in nowhere] == []
    assert docker


@pytest.mark.local
def test_failed_starts_are_explained() -> None:
    """The shares of docs/evidence/starts.md, which may only grow."""
    judged = [judging.judge(start) for start in FAILED]

    assert sum(one.root_right for one in judged) >= 0.97 * len(judged)
    assert sum(one.cause_right for one in judged) >= 0.94 * len(judged)


@pytest.mark.unit
def test_each_cause_has_its_words_and_its_source() -> None:
    for cause in catalogue():
        assert cause.source, cause.pattern
        assert cause.explain or (cause.cause and cause.step), cause.pattern
        assert not cause.cause.endswith("."), cause.cause


def keys(of: Any, schema: Any, before: str = "") -> Iterator[str]:
    """Yield the keys of a part of a recipe's schema, with those that they are in."""
    part = schema["$defs"][of["$ref"].rpartition("/")[2]] if "$ref" in of else of
    for inner in (*part.get("anyOf", ()), *part.get("allOf", ())):
        yield from keys(inner, schema, before)
    for name, value in part.get("properties", {}).items():
        yield f"{before}{name}"
        yield from keys(value, schema, f"{before}{name}.")


@pytest.mark.unit
def test_a_step_names_keys_and_verbs_that_exist() -> None:
    schema = Recipe.model_json_schema()
    known, verbs = {*keys(schema, schema)}, {name for group in GROUPS.values() for name in group}
    for cause in catalogue():
        for key in re.findall(r"\b(?:image|model|serve|memory|probe|swap)\.[a-z_]+\b(?!\.)", cause.step):
            assert key in known, cause.step
        for verb in re.findall(r"`sparkops ([a-z]+)", cause.step):
            assert verb in verbs, cause.step


@pytest.mark.unit
def test_the_truth_names_lines_of_its_log() -> None:
    for start in FAILED:
        assert start.files, start.name
        assert start.truth["cause"], start.name
        assert start.truth["step"], start.name
        if start.truth["engine"] != judging.DOCKER:
            assert any(start.is_root(line) for line in start.root_file.read_text().splitlines()), start.name


def test_the_files_of_each_log_are_known() -> None:
    known = {file for start in starts.load() for file in start.files}
    others = {*STARTS.glob("*.log"), *STARTS.glob("*.txt")} - known

    assert sorted(Path(file).name for file in others if not file.name.endswith(".kernel.txt")) == []
