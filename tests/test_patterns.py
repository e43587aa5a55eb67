"""No regular expression that meets foreign text takes more than linear time: while one runs, no other thread does."""

from __future__ import annotations

import re

import pytest

from tests.patterns import Expression, slow, tables, written

EXEMPT = {
    "templates/stand-in/": "the engine of tests and of the demo, which reads their own prompts",
    "templates/gateway/program/disk.py": "the certificate that the operator gave the gateway",
    "sparkops/operator/build/guard/image.py": "the source of sparkops itself, of which it makes the image of the guard",
    "sparkops/redact.py": "CREDENTIALS reads up to the last @ of a word, so that it never reads a rest in vain",
}
"""Places of expressions that may take longer, and why."""
WRITTEN = [*written(), *tables()]


def exempt(place: str) -> str:
    return next((start for start in EXEMPT if place.startswith(start)), "")


def test_no_expression_for_foreign_text_takes_more_than_linear_time() -> None:
    """Bound what repeats ({0,256} for *), or begin after a lookbehind for what it repeats: tests/patterns.py."""
    found = {one.place: f"{one.text!r}: {reason}" for one in WRITTEN if (reason := slow(one)) and not exempt(one.place)}

    assert found == {}
    assert len({one.text for one in WRITTEN}) > 300


def test_each_exemption_is_needed() -> None:
    needed = {exempt(one.place) for one in WRITTEN if exempt(one.place) and slow(one)}

    assert needed == {*EXEMPT}


def test_of_the_module_of_secrets_one_expression_is_exempt() -> None:
    assert ["(?<=://)" in str(one.text) for one in WRITTEN if "redact.py" in one.place and slow(one)] == [True]


SEARCH, MATCH, FULL = ((name,) for name in ("search", "match", "fullmatch"))


@pytest.mark.parametrize(
    ("text", "methods"),
    [
        ("(a+)+", SEARCH),
        ("(a*)*b", MATCH),
        (r"(\w[\w-]*)+x", MATCH),
        ("(a|aa)*b", MATCH),
        ("a*a*b", MATCH),
        (".*X.*Y", MATCH),
        (r"\s*(\S.*?)\s*", FULL),
        (r"\d+%", SEARCH),
        ("Loading pt[^%]*: 1", SEARCH),
        (r"(?<!\w)[\w.]+=", SEARCH),
        ('"a":(x|\\[[^]]*\\])', SEARCH),
        (r"(?m)^\s*tcp", SEARCH),
        ("(?=(a+)+b)", MATCH),
        ("a{0,9999}b", SEARCH),
        ("x(?:.*y)?", SEARCH),
        ("^a|b.*c", SEARCH),
    ],
)
def test_what_takes_longer_is_found(text: str, methods: tuple[str, ...]) -> None:
    assert slow(Expression("", text, methods=frozenset(methods)))


@pytest.mark.parametrize(
    ("text", "methods"),
    [
        ("a*a*", MATCH),
        ("arguments: (.+)", SEARCH),
        (r"\d+%", MATCH),
        (r"(?<![\w.])[\w.]+=", SEARCH),
        (r"[a-z]+(?:\.[a-z]+)*=", MATCH),
        ("[^:]+:[^:]+:x", MATCH),
        ("(?m)^a[^\n]*b", SEARCH),
        (r'"(?:[^"\\]|\\.)*"?', SEARCH),
        (r"(?:[^\"]++|q)*+x", MATCH),
        (r"(.)\1*", SEARCH),
        ("a{0,256}b", SEARCH),
        ("^a.*b|c", SEARCH),
    ],
)
def test_what_takes_linear_time_is_not(text: str, methods: tuple[str, ...]) -> None:
    assert slow(Expression("", text, methods=frozenset(methods))) == ""
    re.compile(text)
