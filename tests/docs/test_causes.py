"""docs/causes.md has what a guard knows."""

from __future__ import annotations

import pytest

from tests.docs import causes
from tests.places import ROOT

pytestmark = pytest.mark.unit


def test_the_page_is_that_of_the_catalogue() -> None:
    assert (ROOT / "docs/causes.md").read_text() == causes.page(), "python -m tests.docs.causes > docs/causes.md"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"model type `([\w.-]{1,64})`", "model type `...`"),
        (r"[Pp]ort (\d{1,5}) is (?:already )?in use", "port ... is in use"),
        (r"a|b c", "a"),
    ],
)
def test_a_pattern_is_shown_as_its_message(pattern: str, message: str) -> None:
    assert causes.readable(pattern) == message
