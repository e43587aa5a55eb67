"""Every regular expression of sparkops and its templates, as the source has it, and which of them may take too long.

Python's engine tries each way to match a text. An expression whose parts can share a text in many ways takes quadratic
time or more, and no other thread runs meanwhile. `slow` finds the two kinds in the automaton of an expression, whose
states are its sets of characters (Glushkov): a state with two ways back to itself on one text, exponential, and two
states that loop on a text which also leads from the first to the second one, quadratic (Weber and Seidl, On the degree
of ambiguity of finite automata, 1991). The start of a search is such a first state: it skips any text.
"""

from __future__ import annotations

import ast
import re
import re._constants as sre  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from sparkops import redact
from sparkops.config import opt_in, shipped
from sparkops.engines import ENGINES
from sparkops.engines.causes import Cause
from sparkops.operator.build.render import sandbox
from sparkops.serving.startup import causes

ROOT = shipped.PACKAGE.parent
AT_ONE_PLACE = frozenset({"match", "fullmatch"})
METHODS = frozenset({"search", "findall", "finditer", "sub", "split", *AT_ONE_PLACE})
WHOLE = frozenset({"matching", "Matching"})
"""Functions whose first argument is an expression for a whole value of a file."""
FLAGS = {"MULTILINE": re.MULTILINE, "M": re.MULTILINE, "DOTALL": re.DOTALL, "IGNORECASE": re.IGNORECASE}
LETTERS = frozenset(range(0x180)) | {0x2019, 0x4E00, 0x1F600}
"""The characters in which sets are compared: those of ASCII and Latin, and one of some other kinds."""
BOUND = 512
"""The most repetitions that count as a constant."""


@dataclass(frozen=True)
class Expression:
    """A regular expression, where it stands, and the methods that it is used with; none: not known."""

    place: str
    text: str | bytes
    flags: int = 0
    methods: frozenset[str] = frozenset()

    @property
    def searched(self) -> bool:
        """Whether a match may begin anywhere."""
        return not self.methods or not self.methods <= AT_ONE_PLACE

    @property
    def whole(self) -> bool:
        """Whether a match may be refused for what follows it."""
        return "fullmatch" in self.methods


def written() -> Iterator[Expression]:
    """Yield each expression that the source has, with `x` in place of a value that only its caller knows."""
    for folder in ("sparkops", "templates"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield from _of(str(file.relative_to(ROOT)), file.read_text())


def tables() -> Iterator[Expression]:
    """Yield the expressions that are made or kept in tables: of engines, of secrets, of values in templates."""
    for name, engine in ENGINES.items():
        for cause in engine.log.causes:
            yield from _of_cause(f"a cause of {name}", cause)
        for pattern in vars(engine.log).values():
            if isinstance(pattern, re.Pattern):
                yield Expression(f"the log of {name}", pattern.pattern, pattern.flags & ~re.UNICODE)
        for known in (*engine.flags.key_effects, *engine.flags.variable_effects):
            yield Expression(f"a key or variable of {name}", known, methods=frozenset({"fullmatch"}))
    for layer, known_causes in {**causes.LAYERS, "Docker": causes.DOCKER}.items():
        for cause in known_causes:
            yield from _of_cause(f"a cause of {layer}", cause)
    for name, (characters_of, _) in sandbox.FILTERS.items():
        yield Expression(f"the filter {name}", characters_of, methods=frozenset({"fullmatch"}))
    yield Expression("sparkops/redact.py:KEY", redact.KEY.pattern)
    for known in opt_in.VARIABLES:
        yield Expression("a variable of serve.env", known, methods=frozenset({"fullmatch"}))


def _of_cause(place: str, cause: Cause) -> Iterator[Expression]:
    for pattern in filter(None, (cause.pattern, cause.unless, cause.beside)):
        yield Expression(place, pattern)


def _of(path: str, source: str) -> Iterator[Expression]:
    tree, known, named = ast.parse(source), dict[str, str | bytes](), dict[int, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named[id(node.value)] = node.targets[0].id
            if (text := _text(node.value, known)) is not None:
                known.setdefault(node.targets[0].id, text)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args or (text := _text(node.args[0], known)) is None:
            continue
        function = ast.unparse(node.func)
        method = function.removeprefix("re.")
        if function in WHOLE:
            yield Expression(f"{path}:{node.lineno}", text, methods=frozenset({"fullmatch"}))
        elif function.startswith("re.") and method in {"compile", *METHODS}:
            given = " ".join(map(ast.unparse, (*node.args[1:], *(word.value for word in node.keywords))))
            flags = sum({bit for flag, bit in FLAGS.items() if re.search(rf"\bre\.{flag}\b", given)})
            constant = named.get(id(node), "") if method == "compile" else ""
            used = re.findall(rf"\b{constant}\.(\w+)\b", source) if constant else [method]
            yield Expression(f"{path}:{node.lineno}", text, flags, METHODS.intersection(used))


def _text(node: ast.expr, known: Mapping[str, str | bytes]) -> str | bytes | None:
    match node:
        case ast.Constant(value=str() | bytes() as text):
            return text
        case ast.Name():
            return known.get(node.id)
        case ast.JoinedStr():
            return "".join(str(_text(part, known) or "x") for part in node.values)
        case ast.FormattedValue():
            return _text(node.value, known)
        case ast.BinOp(op=ast.Add()):
            parts = [_text(part, known) for part in (node.left, node.right)]
            texts = [part for part in parts if isinstance(part, str)]
            return "x".join(texts) if len(texts) < len(parts) and texts else "".join(texts) or None
        case _:
            return None


@dataclass(frozen=True)
class Part:
    """A part of an expression: the states that it begins and ends with, and whether it may be empty.

    `sure`: the states after which no more than empty text without a condition follows. `tests`: it has a condition.
    """

    empty: bool = True
    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    sure: frozenset[int] = frozenset()
    tests: bool = False


@dataclass
class Automaton:
    """The states of an expression by number, and their transitions. `kept`: states that give nothing back."""

    sets: list[frozenset[int]] = field(default_factory=list)
    follow: dict[int, set[int]] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    behind: dict[int, frozenset[int]] = field(default_factory=dict)
    """The characters that must not precede a state where a match begins."""
    widths: Any = None
    twice: bool = False
    """Whether a loop repeats what is a loop already."""
    anchors: dict[int, bool] = field(default_factory=dict)
    """The states that begin at the start of the text, or (True) of any line."""
    inner: list[Any] = field(default_factory=list)
    """The expressions in its lookarounds."""

    def state(self, characters: frozenset[int]) -> Part:
        self.sets.append(characters)
        one = len(self.sets) - 1
        self.follow[one] = set()
        return Part(False, (one,), (one,), frozenset((one,)))

    def joined(self, left: Part, right: Part) -> Part:
        for state in left.last:
            self.follow[state].update(right.first)
        return Part(
            left.empty and right.empty,
            left.first + (right.first if left.empty else ()),
            right.last + (left.last if right.empty else ()),
            right.sure | (left.sure if right.empty and not right.tests else frozenset()),
            left.tests or right.tests,
        )

    def sequence(self, nodes: Any, flags: int) -> Part:
        whole = Part()
        if nodes and nodes[0][0] is sre.ASSERT_NOT and nodes[0][1][0] < 0 and len(nodes[0][1][1]) == 1:
            (kind, value), before = nodes[0][1][1][0], len(self.sets)
            guard = characters(kind, value, flags)
            whole = self.sequence(nodes[1:], flags)
            self.behind |= {state: guard for state in whole.first if state >= before}
            return replace(whole, tests=True)
        for kind, value in nodes:
            whole = self.joined(whole, self.part(kind, value, flags))
        if nodes and nodes[0][0] is sre.AT and nodes[0][1] in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            self.anchors |= dict.fromkeys(whole.first, bool(flags & re.MULTILINE))
        return whole

    def part(self, kind: Any, value: Any, flags: int) -> Part:
        if kind in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            return self.state(characters(kind, value, flags))
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            return self.repeated(kind, value[0], value[1], value[2], flags)
        if kind is sre.SUBPATTERN:
            return self.sequence(value[3], (flags | value[1]) & ~value[2])
        if kind is sre.ATOMIC_GROUP:
            before = len(self.sets)
            inside = self.sequence(value, flags)
            self.kept.update(range(before, len(self.sets)))
            return inside
        if kind in (sre.BRANCH, sre.GROUPREF_EXISTS):
            branches = value[1] if kind is sre.BRANCH else [value[1], value[2] or ()]
            parts = [self.sequence(branch, flags) for branch in branches]
            return Part(
                any(part.empty for part in parts),
                tuple(state for part in parts for state in part.first),
                tuple(state for part in parts for state in part.last),
                frozenset().union(*(part.sure for part in parts)),
                any(part.tests for part in parts),
            )
        if kind is sre.GROUPREF:
            one = self.widths[value][1] <= BOUND
            return (
                self.state(LETTERS) if one else self.repeated(sre.MAX_REPEAT, 0, int(sre.MAXREPEAT), [ANY], re.DOTALL)
            )
        if kind in (sre.ASSERT, sre.ASSERT_NOT):
            self.inner.append(value[1])
        return Part(tests=True)  # lookarounds, anchors

    def repeated(self, kind: Any, least: int, most: int, nodes: Any, flags: int) -> Part:
        before = len(self.sets)
        body = self.sequence(nodes, flags)
        if kind is sre.POSSESSIVE_REPEAT:
            self.kept.update(range(before, len(self.sets)))
        if most > BOUND:
            for state in body.last:
                self.twice = self.twice or bool(self.follow[state].intersection(body.first) - self.kept)
                self.follow[state].update(body.first)
        elif most > 1:  # once more, as the start of a repetition may be the end of the one before
            again = self.sequence(nodes, flags)
            body = self.joined(body, replace(again, empty=True))
        return replace(body, empty=body.empty or least == 0)


@cache
def category(name: Any) -> frozenset[int]:
    letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[str(name).rpartition("_")[2]]
    letter = letter.upper() if "NOT" in str(name) else letter
    return frozenset(code for code in LETTERS if re.match(rf"\{letter}", chr(code)))


def characters(kind: Any, value: Any, flags: int) -> frozenset[int]:
    """Return the characters of one state."""
    if kind is sre.ANY:
        return LETTERS if flags & re.DOTALL else LETTERS - {10}
    inside = frozenset[int]()
    for item, given in [(sre.LITERAL, value)] if kind is not sre.IN else value:
        if item is sre.LITERAL:
            inside |= {given}
        elif item is sre.RANGE:
            inside |= {code for code in LETTERS if given[0] <= code <= given[1]}
        elif item is sre.CATEGORY:
            inside |= category(given)
    if flags & re.IGNORECASE:
        inside |= {ord(case) for code in inside for case in (chr(code).lower(), chr(code).upper()) if len(case) == 1}
    negated = kind is sre.NOT_LITERAL or (kind is sre.IN and value[0][0] is sre.NEGATE)
    return LETTERS - inside if negated else inside


ANY = (sre.ANY, None)
BEGIN, SKIP = -2, -1
"""The states of a search: where a match may begin, and within a run of characters that must not precede one."""


def slow(expression: Expression) -> str:
    """Return why an expression may take more than linear time; empty if it does not."""
    tree = parser.parse(expression.text, expression.flags)
    return _slow(tree, tree.state.flags, searched=expression.searched, whole=expression.whole)


def _slow(tree: Any, flags: int, *, searched: bool, whole: bool) -> str:
    automaton = Automaton(widths=tree.state.groupwidths)
    part = automaton.sequence(tree, flags)
    if automaton.twice:
        return "a loop in a loop: exponential"
    for inner in automaton.inner:
        if reason := _slow(inner, flags, searched=False, whole=False):
            return f"in a lookaround: {reason}"
    sure = frozenset() if whole else part.sure
    follow, sets = automaton.follow, automaton.sets
    loops = _loops(follow)
    # A match that has passed a state where it may end cannot fail.
    failing = _loops({state: after - sure for state, after in follow.items() if state not in sure})
    for state in set(loops) - automaton.kept:
        if _two_ways_back(state, follow, sets):
            return f"two ways through {_shown(sets[state])}: exponential"
    for one in set(loops) - automaton.kept:
        for other in failing:
            if one != other and _shares(one, other, follow, sets):
                return f"{_shown(sets[one])} and {_shown(sets[other])} share a text: quadratic"
    for start in part.first if searched else ():
        behind = automaton.behind.get(start, frozenset())
        every = {**follow, BEGIN: {BEGIN, SKIP, start}, SKIP: {BEGIN, SKIP}}
        for other in failing:
            ahead = start not in automaton.anchors or (automaton.anchors[start] and 10 in sets[other])
            if ahead and _shares(BEGIN, other, every, [*sets, LETTERS - behind, behind]):
                return f"each start of a search reads {_shown(sets[other])} again: quadratic"
    return ""


def _loops(follow: Mapping[int, set[int]]) -> list[int]:
    return [state for state in follow if state in _reached(follow, follow[state])]


def _reached(follow: Mapping[int, set[int]], begin: set[int]) -> set[int]:
    got, todo = set(begin), [*begin]
    while todo:
        for state in follow[todo.pop()] - got:
            got.add(state)
            todo.append(state)
    return got


def _two_ways_back(begin: int, follow: Mapping[int, set[int]], sets: list[frozenset[int]]) -> bool:
    """Return whether one text leads from a state to itself in two ways."""
    pairs = {(begin, begin): set[tuple[int, int]]()}
    todo = [(begin, begin)]
    while todo:
        left, right = here = todo.pop()
        for one in follow[left]:
            for other in follow[right]:
                if sets[one] & sets[other]:
                    if (one, other) not in pairs:
                        pairs[one, other] = set()
                        todo.append((one, other))
                    pairs[one, other].add(here)
    back, todo = {(begin, begin)}, [(begin, begin)]
    while todo:
        for pair in pairs[todo.pop()] - back:
            back.add(pair)
            todo.append(pair)
    return any(one != other for one, other in back)


def _shares(one: int, other: int, follow: Mapping[int, set[int]], sets: list[frozenset[int]]) -> bool:
    """Return whether a text leads from `one` to itself and to `other`, and from `other` to itself."""
    begin, end = (one, one, other), (one, other, other)
    got, todo = {begin}, [begin]
    while todo:
        a, b, c = todo.pop()
        for x in follow[a]:
            for y in follow[b]:
                if not (common := sets[x] & sets[y]):
                    continue
                for z in follow[c]:
                    if (x, y, z) not in got and common & sets[z]:
                        if (x, y, z) == end:
                            return True
                        got.add((x, y, z))
                        todo.append((x, y, z))
    return False


def _shown(characters: frozenset[int]) -> str:
    printed = "".join(chr(code) for code in sorted(characters) if 32 < code < 127)
    return f"[{printed if len(printed) < 40 else f'{printed[:16]}...'}]"
