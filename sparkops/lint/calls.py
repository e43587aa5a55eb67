"""List the program calls of a shell script, with arguments, environment and input if the text has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, takewhile
from posixpath import basename, join, normpath

from sparkops.lint.shell import CONDITION, ELSE, HEREDOCS, Redirect, Simple, condition_holds, pipelines
from sparkops.lint.text import Text, Values, Word, expand

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
PYTHON = re.compile(r"python[0-9.]*")
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
WRAPPERS: Mapping[str, str] = {
    **dict.fromkeys(("command", "exec", "nohup", "setarch", "time"), ""),
    "env": "uC",
    "ionice": "cnp",
    "nice": "n",
    "stdbuf": "ioe",
    "sudo": "ugCDhpU",
    "timeout": "ks",
    "xargs": "adEILnPs",
}
"""Programs that start another program, with the letters of their options that take a value."""
RUNNERS: Mapping[str, str] = dict.fromkeys(("conda", "mamba", "micromamba"), "np")
"""Programs whose verb `run` starts another program, with the letters of their options that take a value."""
WRAPPED = re.compile(r"-.*|[0-9.]+[smhd]?")
"""Words between a wrapper and its command: options, a niceness, a duration."""
MAX_DEPTH = 8


@dataclass(frozen=True)
class ExpandedRedirect:
    """A redirection with its variables expanded: the file of an output, or the text of a heredoc."""

    operator: str
    target: str
    body: str


@dataclass(frozen=True)
class Call:
    """One program, without wrappers such as sudo; `python -m pip` is pip.

    `before` are the earlier calls of its pipeline, `inside` those in its own arguments.
    """

    argv: tuple[str, ...]
    line: int
    environment: Values
    directory: str = "/"
    redirects: tuple[ExpandedRedirect, ...] = ()
    before: tuple[Call, ...] = ()
    inside: tuple[Call, ...] = ()

    @cached_property
    def program(self) -> str:
        """Its name without a directory."""
        return basename(self.argv[0])


def calls(script: Text, environment: Values, directory: str = "/") -> Iterator[Call]:
    """Yield every call of a script that starts in `directory`, in source order, also in substitutions and in `sh -c`.

    Skip branches of an `if` that never run on a Spark with the values of the file.
    """
    return _Shell(dict(environment), set(environment), directory).run(script)


@dataclass
class _Shell:
    values: dict[str, str | None]
    exported: set[str]
    directory: str
    previous: str = "/"
    depth: int = 0
    outside: dict[int, tuple[dict[str, str | None], set[str], str]] = field(default_factory=dict)
    """For each open `(`, the state to return to after its `)`."""
    branches: dict[int, tuple[int, str]] = field(default_factory=dict)
    """For each `if`, its part that was read last, and the directory before it."""

    def run(self, script: Text) -> Iterator[Call]:
        results: dict[int, bool | None] = {}
        for pipeline in pipelines(script):
            arms = pipeline[0].arms
            if any(results.get(number) is (arm == ELSE) for number, arm in arms if arm != CONDITION):
                continue
            if arms and arms[-1][1] == CONDITION:
                number, result = arms[-1][0], condition_holds(pipeline, self.values)
                results[number] = result if results.get(number, result) is result else None
            undecided = any(results.get(number) is None for number, arm in arms if arm != CONDITION)
            before: list[Call] = []
            for simple in pipeline:
                self._enter(simple)
                for call in self._simple(simple, tuple(before), maybe=undecided or simple.in_case):
                    yield call
                    before.append(call)

    def _enter(self, simple: Simple) -> None:
        """Return to the state before each `(` that has ended, and to the directory before an `if` in its `else`."""
        for number in reversed([number for number in self.outside if number not in simple.subshells]):
            self.values, self.exported, self.directory = self.outside.pop(number)
        for number in simple.subshells:
            self.outside.setdefault(number, (dict(self.values), set(self.exported), self.directory))
        for number, arm in simple.arms:
            last, directory = self.branches.setdefault(number, (arm, self.directory))
            if arm == ELSE != last:
                self.directory = directory
            self.branches[number] = (arm, directory)

    def _nested(self, script: Text, environment: Values) -> Iterator[Call]:
        if self.depth < MAX_DEPTH:
            values, exported = {**self.values, **environment}, self.exported | set(environment)
            yield from _Shell(values, exported, self.directory, depth=self.depth + 1).run(script)

    def _simple(self, simple: Simple, before: tuple[Call, ...], *, maybe: bool) -> Iterator[Call]:
        """Yield the calls of a command. `maybe`: it may not run, so that another value of a variable may stay."""
        every_word = (*simple.words, *(redirect.target for redirect in simple.redirects))
        inside = tuple(call for word in every_word for script in word.scripts for call in self._nested(script, {}))
        yield from inside
        assigned, words = self._assignments(simple.words)
        argv = tuple(field for word in words for field in word.fields(self.values))
        if not argv:
            other = {name for name in assigned if maybe and self.values.get(name, assigned[name]) != assigned[name]}
            self.values |= assigned | dict.fromkeys(other)
        elif not self._changes_shell(argv):
            environment = {name: self.values.get(name) for name in self.exported} | assigned
            redirects = tuple(map(self._expanded, simple.redirects))
            call = _unwrapped(Call(argv, words[0].line, environment, self.directory, redirects, before, inside))
            yield call
            yield from self._executed(call) if call.program == "find" else self._shell_script(call, simple)

    def _assignments(self, words: tuple[Word, ...]) -> tuple[dict[str, str | None], tuple[Word, ...]]:
        assigned: dict[str, str | None] = {}
        for number, word in enumerate(words):
            first = word.parts[0]
            match = None if first.quote or "=" not in first.text else ASSIGNMENT.fullmatch(word.text(self.values))
            if not match:
                return assigned, words[number:]
            assigned[match[1]] = match[2]
        return assigned, ()

    def _changes_shell(self, argv: tuple[str, ...]) -> bool:
        """Return whether a command changes the shell itself, and apply the change for later commands."""
        match argv:
            case ("export" | "declare" | "readonly" | "local" | "typeset", *rest):
                for match in map(ASSIGNMENT.fullmatch, rest):
                    self.values |= {match[1]: match[2]} if match else {}
                if argv[0] == "export":
                    self.exported |= {assignment.partition("=")[0] for assignment in rest}
            case ("unset", *rest):
                for name in rest:
                    self.values.pop(name, None)
            case ("set", *rest) if "--" in rest:
                self.values["@"] = " ".join(rest[rest.index("--") + 1 :])
            case ("cd" | "pushd" | "popd", *rest):
                target = next((word for word in rest if word == "-" or not word.startswith("-")), "~")
                back = target == "-" or argv[0] == "popd"
                there = self.previous if back else normpath(join("/", self.directory, target))
                self.previous, self.directory = self.directory, there
            case ("for", name, "in", *rest):
                self.values[name] = " ".join(rest)
            case _:
                return False
        return True

    def _expanded(self, redirect: Redirect) -> ExpandedRedirect:
        body = redirect.body.text
        target = redirect.target.text(self.values)
        return ExpandedRedirect(redirect.operator, target, body if redirect.quoted else expand(body, self.values))

    def _shell_script(self, call: Call, simple: Simple) -> Iterator[Call]:
        """Yield the calls in the script of a shell: from `-c`, or from a heredoc."""
        if call.program not in SHELLS:
            return
        for option, script in zip(call.argv[1:], call.argv[2:], strict=False):
            if re.fullmatch(r"-[a-z]*c", option):
                yield from self._nested(Text.of_line(script, call.line), call.environment)
                return
        for redirect in simple.redirects:
            if redirect.operator in HEREDOCS:
                yield from self._nested(redirect.body, call.environment)

    def _executed(self, call: Call) -> Iterator[Call]:
        """Yield the call that `find -exec` makes, with the searched name in place of the file."""
        for number, word in enumerate(call.argv):
            if word in ("-exec", "-execdir"):
                given = takewhile(lambda word: word not in (";", "+"), call.argv[number + 1 :])
                name = next((value for option, value in pairwise(call.argv) if option == "-name"), "{}")
                if argv := tuple(name if word == "{}" else word for word in given):
                    yield _unwrapped(replace(call, argv=argv, redirects=()))


def _runner(argv: list[str]) -> str | None:
    return RUNNERS.get(basename(argv[0])) if argv[1:2] == ["run"] else None


def _unwrapped(call: Call) -> Call:
    argv, environment = list(call.argv), dict(call.environment)
    while argv and (valued := WRAPPERS.get(basename(argv[0]), _runner(argv))) is not None:
        program = basename(argv.pop(0))
        if program in RUNNERS:
            argv.pop(0)
        elif program == "xargs":
            argv += [word for earlier in call.before for word in earlier.argv[1:] if ".whl" in word]
        while argv and (WRAPPED.fullmatch(argv[0]) or ASSIGNMENT.fullmatch(argv[0])):
            word = argv.pop(0)
            takes = (len(word) == 2 and word[1] in valued) or (program in RUNNERS and word in ("--name", "--prefix"))
            value = argv.pop(0) if argv and takes else ""
            if match := ASSIGNMENT.fullmatch(word):
                environment[match[1]] = match[2]
            elif program == "env" and word == "-u":
                environment.pop(value, None)
    if len(argv) > 2 and PYTHON.fullmatch(basename(argv[0])) and "-m" in argv[1:-1]:
        argv = argv[argv.index("-m") + 1 :]
    return replace(call, argv=tuple(argv) or call.argv, environment=environment)
