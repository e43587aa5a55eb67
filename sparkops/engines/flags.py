"""What the flags and variables of an engine may do: which are harmless, and the effect of some of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

IMPORTS = "imports Python code named in its value"
REMOTE = "runs Python code of the model repository"
READS_FLAGS = "reads further flags from a file"
READS, WRITES = "reads a file or directory named in its value", "writes to the path in its value"


@dataclass(frozen=True)
class FlagFacts:
    """The flags of an engine by what they may do. A flag that is not `harmless` needs `serve.allow`.

    The value of a harmless one is a number, a truth value, one of a list, or text that is only compared or printed.
    """

    harmless: frozenset[str]
    effects: Mapping[str, str] = field(default_factory=dict)
    """The effect of some that are not."""
    secrets: frozenset[str] = frozenset({"api-key", "hf-token"})
    """Flags whose value is a secret: a recipe cannot give them."""
    keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Harmless keys inside JSON values of some flags; inside other flags every key is harmless but `key_effects`."""
    key_effects: Mapping[str, str] = field(default_factory=dict)
    """The effect of keys at any depth, by regular expression."""
    imports: Callable[[str, str], bool] = lambda _name, _text: False
    """Return whether the engine may import the text at a place such as FLAG.KEY."""
    variables: frozenset[str] = frozenset()
    """Harmless variables of its own."""
    variable_prefix: str = ""
    """Prefix of variables that are all harmless; empty for none."""
    variable_effects: Mapping[str, str] = field(default_factory=dict)
    """The effect of some variables that are not, by regular expression."""
