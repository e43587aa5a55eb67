"""What a recipe may say about its weights."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sparkops.config.model import Model

BASE, DONOR = {"id": "org/base", "path": "base"}, {"id": "org/donor", "path": "donor"}
FIRST = {"script": "replace-tensors", "inputs": {"base": "base", "donor": "donor"}, "output": "half", "disk_gb": 3.0}
LAST = {"script": "add-tensors", "inputs": {"base": "half", "donor": "base"}, "output": "q", "disk_gb": 1.0}


def model(**changes: Any) -> Model:
    return Model.model_validate(
        {"id": "org/q", "path": "q", "sources": [BASE, DONOR], "steps": [FIRST, LAST], **changes}
    )


def test_a_model_that_is_made_fetches_its_sources_and_any_other_itself() -> None:
    assert [source.id for source in model().fetched] == ["org/base", "org/donor"]
    assert [source.id for source in Model(id="org/q", path="q").fetched] == ["org/q"]


def test_a_plain_model_says_nothing_of_what_it_lacks() -> None:
    assert Model(id="org/q", path="q").model_dump() == {"id": "org/q", "revision": None, "path": "q", "size_gb": None}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"steps": []}, "both `sources` and `steps`"),
        ({"sources": []}, "both `sources` and `steps`"),
        ({"sources": [BASE]}, "step replace-tensors to read a source or an earlier output, not 'donor'"),
        ({"steps": [LAST, FIRST]}, "step add-tensors to read a source or an earlier output, not 'half'"),
        ({"path": "other"}, "the last step to make the model's own path 'other'"),
        ({"steps": [FIRST, {**LAST, "inputs": {"base": "q"}}]}, "not 'q'"),
        ({"sources": [BASE, {**DONOR, "path": "half"}, DONOR]}, "a directory of its own for each"),
        ({"path": "q.partial", "sources": [], "steps": []}, "does not end in .partial"),
        ({"path": "a//b", "sources": [], "steps": []}, "without empty parts"),
        ({"path": "../q", "sources": [], "steps": []}, "without '..'"),
        ({"steps": [{**FIRST, "inputs": {}}, LAST]}, "at least 1 item"),
        ({"steps": [FIRST, {**LAST, "disk_gb": 0.0}]}, "greater than 0"),
        ({"steps": [FIRST, {**LAST, "script": "../x"}]}, "a name of at most 63"),
    ],
)
def test_what_cannot_be_made_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem.replace("(", r"\(")):
        model(**changes)


@pytest.mark.parametrize(
    ("file", "files"),
    [
        ("q-Q4.gguf", ["q-Q4.gguf"]),
        ("Q4/q-00001-of-00002.gguf", ["Q4/q-00001-of-00002.gguf", "Q4/q-00002-of-00002.gguf"]),
    ],
)
def test_a_gguf_file_is_loaded_with_all_its_parts(file: str, files: list[str]) -> None:
    model = Model.model_validate({"id": "org/q", "path": "q", "file": file})

    assert (model.loaded, model.files) == (f"q/{file}", files)


@pytest.mark.parametrize("file", ["q.safetensors", "q-00002-of-00002.gguf", "../q.gguf"])
def test_another_file_is_refused(file: str) -> None:
    with pytest.raises(ValidationError):
        Model.model_validate({"id": "org/q", "path": "q", "file": file})
