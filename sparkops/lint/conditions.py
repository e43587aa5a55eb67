"""Conditions of shell scripts whose result is known from the file, on the machine that it is for."""

from __future__ import annotations

from collections.abc import Sequence

from sparkops.lint.shell import Simple
from sparkops.lint.words import Values

MACHINE = {
    "$(uname -m)": "aarch64",
    "`uname -m`": "aarch64",
    "$(arch)": "aarch64",
    "$(dpkg --print-architecture)": "arm64",
}
"""What these commands print on a Spark."""
PREDEFINED = {"TARGETARCH": "arm64", "TARGETOS": "linux", "TARGETPLATFORM": "linux/arm64", "TARGETVARIANT": ""}
"""Arguments that BuildKit sets for a Spark wherever ARG declares them."""


def truth(pipeline: Sequence[Simple], values: Values) -> bool | None:
    """Return whether a condition holds; None where that is not known."""
    if len(pipeline) != 1:
        return None
    words = [word.text(values) for word in pipeline[0].words]
    for printed, value in MACHINE.items():
        words = [word.replace(printed, value) for word in words]
    result = None if any("$" in word or "`" in word for word in words) else _result(words)
    return result if result is None else result != pipeline[0].negated


def _result(words: list[str]) -> bool | None:
    match words:
        case ["true"] | [":"]:
            return True
        case ["false"]:
            return False
        case ["[" | "[[" | "test", *test]:
            return _tested(test[:-1] if test[-1:] in (["]"], ["]]"]) else test)
        case _:
            return None


def _tested(test: list[str]) -> bool | None:
    match test:
        case [left, "=" | "==", right] if "*" not in right:
            return left == right
        case [left, "!=", right] if "*" not in right:
            return left != right
        case ["-n", text]:
            return bool(text)
        case ["-z", text]:
            return not text
        case _:
            return None
