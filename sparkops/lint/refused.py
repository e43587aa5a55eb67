"""What BuildKit refuses although every word of it can be read: counts of arguments, flags, and places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

FLAGS: Mapping[str, frozenset[str]] = {
    "ADD": frozenset({"chmod", "checksum", "chown", "exclude", "keep-git-dir", "link", "unpack"}),
    "COPY": frozenset({"chmod", "chown", "exclude", "from", "link", "parents"}),
    "FROM": frozenset({"platform"}),
    "HEALTHCHECK": frozenset({"interval", "retries", "start-interval", "start-period", "timeout"}),
    "RUN": frozenset({"device", "mount", "network", "security"}),
}
"""From docs.docker.com/reference/dockerfile for docker/dockerfile 1.20; the other refusals are those of Docker 26.1."""
BARE_FLAGS = frozenset({"keep-git-dir", "link", "parents", "unpack"})
"""Flags that may stand without a value."""
REPEATED_FLAGS = frozenset({"device", "exclude", "mount"})
MOUNT_TYPES = frozenset({"bind", "cache", "secret", "ssh", "tmpfs"})
MOUNT_KEYS = frozenset(
    {"destination", "dst", "env", "from", "gid", "id", "mode", "readonly", "readwrite", "required", "ro", "rw"}
    | {"sharing", "size", "source", "src", "target", "type", "uid"}
)
NETWORKS = frozenset({"default", "host", "none"})
DURATION = re.compile(r"0|([0-9.]+(ns|us|µs|ms|s|m|h))+")
PORT = re.compile(r"(?P<first>[0-9]+)(-(?P<last>[0-9]+))?(/(tcp|udp|sctp))?", re.IGNORECASE)
PLATFORM_ARGUMENTS = re.compile(r"(BUILD|TARGET)(PLATFORM|OS|ARCH|VARIANT)")
WHOLE_VARIABLE = re.compile(r"(?:.*:)?\$\{?(\w+)\}?")
"""An image, or its tag, that is one variable: without a value BuildKit has no name."""
EXPANDED = frozenset({"ADD", "ARG", "COPY", "ENV", "EXPOSE", "LABEL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"})
SUBSTITUTION = re.compile(r"\$\{[A-Za-z_]\w*(?:$|:(?![-+?])|[^\w}:+?#%/-])")
NEEDS_ARGUMENT = frozenset({"ARG", "ENV", "EXPOSE", "LABEL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"})
NOT_TRIGGERED = frozenset({"FROM", "MAINTAINER", "ONBUILD"})


@dataclass(frozen=True)
class Read:
    """An instruction as far as BuildKit checks its form."""

    keyword: str
    flags: tuple[tuple[str, str], ...]
    words: tuple[str, ...]
    """Its words behind the flags; those of a JSON list where it is one."""
    line: int
    onbuild: bool
    json: bool
    text: str
    """Its text behind the flags; empty where a word may hold another escape than a backslash."""


@dataclass
class _Stages:
    """The names of the stages so far, and of each ARG before the first."""

    names: list[str]
    arguments: set[str]


def problems(instructions: Iterable[Read]) -> Iterator[tuple[int, str]]:
    """Yield line and reason of each instruction that BuildKit refuses."""
    stages = _Stages([], set())
    for instruction in instructions:
        if problem := _problem(instruction, stages):
            yield instruction.line, problem
        if instruction.keyword == "FROM" and not instruction.onbuild:
            stages.names.append(instruction.words[2].lower() if len(instruction.words) == 3 else "")
        elif instruction.keyword == "ARG" and not stages.names:
            stages.arguments |= {word.partition("=")[0] for word in instruction.words}


def _problem(instruction: Read, stages: _Stages) -> str:
    if not stages.names and instruction.keyword not in ("ARG", "FROM"):
        return f"{instruction.keyword} stands before the first FROM, expected only ARG there"
    if instruction.onbuild and instruction.keyword in NOT_TRIGGERED:
        return f"ONBUILD {instruction.keyword} is not possible"
    image = _image(instruction, stages) if instruction.keyword == "FROM" else _source(instruction, stages)
    return _flags(instruction) or _missing(instruction) or _arguments(instruction) or _expansion(instruction) or image


def _flags(instruction: Read) -> str:
    known, names = FLAGS.get(instruction.keyword, frozenset()), [name for name, _ in instruction.flags]
    for name, value in instruction.flags:
        if name not in known:
            return f"{instruction.keyword} has no flag --{name}, expected one of: {', '.join(sorted(known))}"
        if not value and name not in BARE_FLAGS:
            return f"--{name} has no value, expected --{name}=VALUE"
        if names.count(name) > 1 and name not in REPEATED_FLAGS:
            return f"--{name} stands twice, expected it once"
        if "$" not in value and (problem := _value(name, value)):
            return problem
    return ""


def _value(name: str, value: str) -> str:
    """Return what is wrong with the value of a flag."""
    match name:
        case "mount":
            return _mount(value)
        case "network" if value not in NETWORKS:
            return f"--network={value} is not possible, expected one of: {', '.join(sorted(NETWORKS))}"
        case "interval" | "timeout" | "start-period" | "start-interval" if not DURATION.fullmatch(value):
            return f"--{name}={value} is no time, expected one such as 30s"
        case "retries" if not value.isdecimal():
            return f"--retries={value} is no count, expected a whole number"
    return ""


def _mount(value: str) -> str:
    given = dict(part.strip('"').partition("=")[::2] for part in value.split(","))
    if unknown := next((key for key in given if key.lower() not in MOUNT_KEYS), ""):
        return f"a mount has no key {unknown}, expected one of: {', '.join(sorted(MOUNT_KEYS))}"
    if (kind := given.get("type", "bind")) not in MOUNT_TYPES:
        return f"a mount of type {kind} is not possible, expected one of: {', '.join(sorted(MOUNT_TYPES))}"
    if kind in ("cache", "tmpfs") and not {"target", "dst", "destination"} & set(given):
        return f"a mount of type {kind} has no target, expected target=PATH"
    return ""


def _image(instruction: Read, stages: _Stages) -> str:
    """Return why FROM names no image."""
    image = instruction.words[0] if instruction.words else ""
    if (match := WHOLE_VARIABLE.fullmatch(image)) and not PLATFORM_ARGUMENTS.fullmatch(match[1]):
        if match[1] not in stages.arguments:
            return f"{image} has no value: no ARG {match[1]} stands before the first FROM"
        return ""
    if "$" in image or image.lower() in stages.names:
        return ""
    first, slash, rest = image.partition("@")[0].partition("/")
    path = (rest if slash else first).partition(":")[0]
    if image.endswith(":") or path != path.lower():
        return f"{image} is no name of an image, expected lower case and a tag behind the colon"
    return ""


def _source(instruction: Read, stages: _Stages) -> str:
    """Return why --from names no stage."""
    named = next((value.lower() for name, value in instruction.flags if name == "from"), "")
    if named.isdecimal() and int(named) >= len(stages.names) - 1 and not instruction.onbuild:
        return f"--from={named} names no earlier stage, expected a number below {len(stages.names) - 1}"
    if named and named == stages.names[-1]:
        return f"--from={named} is the stage itself, expected an earlier one"
    return ""


def _expansion(instruction: Read) -> str:
    """Return which quote or substitution of its words never ends."""
    if instruction.keyword not in EXPANDED or instruction.json:
        return ""
    if set("\"'") & set(instruction.text) and (quote := _open_quote(instruction.text)):
        return f"{instruction.keyword} has a quote {quote} that never ends, expected another one"
    if "'" not in instruction.text and (match := SUBSTITUTION.search(instruction.text)):
        return f"{match[0]} cannot be expanded, expected ${{NAME}} or ${{NAME:-DEFAULT}}"
    return ""


def _open_quote(text: str) -> str:
    quote, escaped = "", False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
    return quote


def _missing(instruction: Read) -> str:
    if instruction.keyword in NEEDS_ARGUMENT and not instruction.words:
        return f"{instruction.keyword} has no argument, expected at least one"
    if instruction.keyword in ("ENV", "LABEL") and "=" not in instruction.words[0] and len(instruction.words) == 1:
        return f"{instruction.keyword} {instruction.words[0]} has no value, expected NAME=VALUE"
    if instruction.json and not instruction.words and instruction.keyword in ("SHELL", "VOLUME"):
        return f"{instruction.keyword} has an empty list, expected at least one word"
    return ""


def _arguments(instruction: Read) -> str:
    problem = ""
    match instruction.keyword:
        case "FROM":
            problem = _from(instruction.words)
        case "COPY" | "ADD":
            problem = _copy(instruction)
        case "SHELL" if not instruction.json:
            problem = 'SHELL expects a JSON list, such as ["/bin/bash", "-c"]'
        case "HEALTHCHECK":
            problem = _healthcheck([word.upper() for word in instruction.words])
        case "EXPOSE":
            wrong = (word for word in instruction.words if not set("$:\"'") & set(word) and not _is_port(word))
            problem = next((f"EXPOSE {word} is no port, expected one such as 8000 or 8000/tcp" for word in wrong), "")
        case "STOPSIGNAL" if len(instruction.words) > 1:
            problem = f"STOPSIGNAL has {len(instruction.words)} arguments, expected one"
        case "ARG" | "ENV" | "LABEL":
            problem = _assigned(instruction)
        case _:
            pass
    return problem


def _healthcheck(words: list[str]) -> str:
    match words:
        case ["NONE"] | ["CMD", _, *_]:
            return ""
        case _:
            return "HEALTHCHECK expects CMD COMMAND or NONE"


def _is_port(word: str) -> bool:
    if not (match := PORT.fullmatch(word)):
        return False
    return int(match["first"]) <= int(match["last"] or match["first"]) <= 65535


def _assigned(instruction: Read) -> str:
    """Return which word of ARG, ENV or LABEL assigns nothing."""
    if any(word.startswith("=") for word in instruction.words):
        return f"{instruction.keyword} has a value without a name, expected NAME=VALUE"
    words = instruction.words if instruction.keyword != "ARG" and "=" in instruction.words[0] else ()
    wrong = next((word for word in words if "=" not in word), None)
    return f"{instruction.keyword} {wrong} has no =, expected NAME=VALUE or quotes" if wrong is not None else ""


def _from(words: tuple[str, ...]) -> str:
    named = len(words) == 3 and words[1].upper() == "AS"
    if len(words) != 1 and not named:
        return f"FROM has {len(words)} arguments, expected IMAGE or IMAGE AS NAME"
    if named and not re.fullmatch(r"[a-z][a-z0-9._-]*", words[2].lower()):
        return f"{words[2]} is no name of a stage, expected letters, digits, dots, dashes and underscores"
    return ""


def _copy(instruction: Read) -> str:
    count = len(instruction.words)
    return "" if count > 1 else f"{instruction.keyword} has {count} arguments, expected a source and a destination"
