"""The text of a YAML file as nodes with their lines."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import Composer
from yaml.resolver import Resolver

MAX_DEPTH = 50
MAX_NODES = 40_000  # keys and values before aliases are followed


class TooMuch(yaml.MarkedYAMLError):
    """A value inside more than MAX_DEPTH others, or one after MAX_NODES."""


_Fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may be built without libyaml


class _Composer(Composer, Resolver):
    """PyYAML's recursive composer with limits, so that 1 MB of text exhausts neither the stack nor the CPU."""

    depth, nodes = 0, 0

    def __init__(self, events: Any) -> None:
        Composer.__init__(self)
        Resolver.__init__(self)
        self.check_event, self.peek_event, self.get_event = events.check_event, events.peek_event, events.get_event

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.depth > MAX_DEPTH:
            raise self._too_much(f"nested too deep, expected at most {MAX_DEPTH} levels")
        if self.nodes >= MAX_NODES:
            raise self._too_much(f"larger than {MAX_NODES} keys and values")
        self.nodes += 1
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def _too_much(self, problem: str) -> TooMuch:
        return TooMuch(problem=problem, problem_mark=self.peek_event().start_mark)


def compose(text: str | bytes) -> yaml.Node | None:
    """Return the first document of a text, None for none. Raises yaml.YAMLError and ValueError: not YAML; TooMuch.

    libyaml is six times as fast as Python. Text that it refuses is read again in Python, whose errors name the token.
    """
    try:
        return _Composer(_Fast(text)).get_single_node()
    except TooMuch:
        raise
    except (yaml.YAMLError, ValueError):
        return _Composer(yaml.SafeLoader(text)).get_single_node()
