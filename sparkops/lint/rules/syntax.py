"""Check the syntax that BuildKit accepts: structure, and flags, arguments and place of instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sparkops.lint.dockerfile import Dockerfile, Instruction, StagedBuild
from sparkops.lint.finding import Violation
from sparkops.lint.text import split

FREE_FORM = frozenset({"CMD", "ENTRYPOINT", "MAINTAINER", "RUN"})
"""Instructions with any number of words, which BuildKit does not parse."""
FLAGS: Mapping[str, frozenset[str]] = {
    "ADD": frozenset({"chmod", "checksum", "chown", "exclude", "keep-git-dir", "link", "unpack"}),
    "COPY": frozenset({"chmod", "chown", "exclude", "from", "link", "parents"}),
    "FROM": frozenset({"platform"}),
    "HEALTHCHECK": frozenset({"interval", "retries", "start-interval", "start-period", "timeout"}),
    "RUN": frozenset({"device", "mount", "network", "security"}),
}
"""From docs.docker.com/reference/dockerfile for docker/dockerfile 1.20; the other rules are those of Docker 26.1."""
BARE_FLAGS = frozenset({"keep-git-dir", "link", "parents", "unpack"})
"""Flags that need no value."""
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
"""An image or tag that is one variable, which needs a value."""
EXPANDED = frozenset({"ADD", "ARG", "COPY", "ENV", "EXPOSE", "LABEL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"})
SUBSTITUTION = re.compile(r"\$\{[A-Za-z_]\w*(?:$|:(?![-+?])|[^\w}:+?#%/-])")
NEEDS_ARGUMENT = frozenset({"ARG", "ENV", "EXPOSE", "LABEL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"})
NOT_TRIGGERED = frozenset({"FROM", "MAINTAINER", "ONBUILD"})


def check(build: StagedBuild) -> Iterator[Violation]:
    """Yield the lines that BuildKit rejects: those it cannot parse, or else each wrong instruction."""
    for line, problem in build.dockerfile.problems or _problems(build.dockerfile):
        yield Violation(line, problem, "correct the line: BuildKit rejects it")


def _problems(dockerfile: Dockerfile) -> Iterator[tuple[int, str]]:
    """Yield line and reason of each instruction that BuildKit rejects."""
    stages: list[str] = []
    arguments: set[str] = set()
    for instruction in dockerfile.instructions:
        keyword, words = instruction.keyword, _words(instruction)
        problem = _misplaced(instruction, stages) or _malformed(instruction, words, dockerfile.escape)
        problem = problem or (_image(words, stages, arguments) if keyword == "FROM" else _source(instruction, stages))
        if problem:
            yield instruction.line, problem
        if keyword == "FROM" and not instruction.onbuild:
            stages.append(words[2].lower() if len(words) == 3 else "")
        elif keyword == "ARG" and not stages:
            arguments |= {word.partition("=")[0] for word in words}


def _words(instruction: Instruction) -> tuple[str, ...]:
    """Return the words after the flags; none for an instruction whose words BuildKit does not parse."""
    if instruction.keyword in FREE_FORM:
        return ()
    if instruction.words is not None:
        return instruction.words
    return tuple(word.raw for word in split(instruction.rest, "\\")) or tuple(instruction.rest.text.split())


def _misplaced(instruction: Instruction, stages: list[str]) -> str:
    if not stages and instruction.keyword not in ("ARG", "FROM"):
        return f"{instruction.keyword} before the first FROM, expected only ARG there"
    if instruction.onbuild and instruction.keyword in NOT_TRIGGERED:
        return f"ONBUILD {instruction.keyword} is not allowed, expected an instruction such as RUN"
    return ""


def _malformed(instruction: Instruction, words: tuple[str, ...], escape: str) -> str:
    problem = _flags(instruction) or _missing(instruction, words) or _arguments(instruction, words)
    return problem or (_expansion(instruction) if escape == "\\" else "")


def _flags(instruction: Instruction) -> str:
    allowed, names = FLAGS.get(instruction.keyword, frozenset()), [name for name, _ in instruction.flags]
    for name, value in instruction.flags:
        if name not in allowed:
            return f"{instruction.keyword} has no flag --{name}, expected one of: {', '.join(sorted(allowed))}"
        if not value and name not in BARE_FLAGS:
            return f"--{name} has no value, expected --{name}=VALUE"
        if names.count(name) > 1 and name not in REPEATED_FLAGS:
            return f"duplicate --{name}, expected one"
        if "$" not in value and (problem := _value(name, value)):
            return problem
    return ""


def _value(name: str, value: str) -> str:
    """Return the problem of a flag's value; empty if it is valid."""
    match name:
        case "mount":
            return _mount(value)
        case "network" if value not in NETWORKS:
            return f"invalid --network={value}, expected one of: {', '.join(sorted(NETWORKS))}"
        case "interval" | "timeout" | "start-period" | "start-interval" if not DURATION.fullmatch(value):
            return f"invalid --{name}={value}, expected a duration such as 30s"
        case "retries" if not value.isdecimal():
            return f"invalid --retries={value}, expected a whole number"
    return ""


def _mount(value: str) -> str:
    settings = dict(part.strip('"').partition("=")[::2] for part in value.split(","))
    if unknown := next((key for key in settings if key.lower() not in MOUNT_KEYS), ""):
        return f"unknown mount key {unknown}, expected one of: {', '.join(sorted(MOUNT_KEYS))}"
    if (kind := settings.get("type", "bind")) not in MOUNT_TYPES:
        return f"unknown mount type {kind}, expected one of: {', '.join(sorted(MOUNT_TYPES))}"
    if kind in ("cache", "tmpfs") and not {"target", "dst", "destination"} & set(settings):
        return f"mount of type {kind} without a target, expected target=PATH"
    return ""


def _image(words: tuple[str, ...], stages: list[str], arguments: set[str]) -> str:
    """Return the problem of the image of FROM; empty if it is valid."""
    image = words[0] if words else ""
    if (match := WHOLE_VARIABLE.fullmatch(image)) and not PLATFORM_ARGUMENTS.fullmatch(match[1]):
        if match[1] not in arguments:
            return f"{image} has no value, expected ARG {match[1]} before the first FROM"
        return ""
    if "$" in image or image.lower() in stages:
        return ""
    first, slash, rest = image.partition("@")[0].partition("/")
    path = (rest if slash else first).partition(":")[0]
    if image.endswith(":") or path != path.lower():
        return f"invalid image name {image}, expected lower case and a tag after the colon"
    return ""


def _source(instruction: Instruction, stages: list[str]) -> str:
    """Return the problem of --from; empty if it is valid."""
    source = next((value.lower() for name, value in instruction.flags if name == "from"), "")
    if source.isdecimal() and int(source) >= len(stages) - 1 and not instruction.onbuild:
        return f"--from={source} is not an earlier stage, expected a number below {len(stages) - 1}"
    if source and source == stages[-1]:
        return f"--from={source} is the stage itself, expected an earlier one"
    return ""


def _expansion(instruction: Instruction) -> str:
    """Return the quote or substitution that is not closed; empty without one."""
    if instruction.keyword not in EXPANDED or instruction.words is not None:
        return ""
    text = instruction.rest.text
    if set("\"'") & set(text) and (quote := _open_quote(text)):
        return f"{instruction.keyword} has an unclosed quote {quote}, expected a closing one"
    if "'" not in text and (match := SUBSTITUTION.search(text)):
        return f"invalid {match[0]}, expected ${{NAME}} or ${{NAME:-DEFAULT}}"
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


def _missing(instruction: Instruction, words: tuple[str, ...]) -> str:
    """Return the argument that an instruction lacks; empty without one."""
    if instruction.keyword in NEEDS_ARGUMENT and not words:
        return f"{instruction.keyword} has no argument, expected at least one"
    if instruction.keyword in ("ENV", "LABEL") and "=" not in words[0] and len(words) == 1:
        return f"{instruction.keyword} {words[0]} has no value, expected NAME=VALUE"
    if instruction.words == () and instruction.keyword in ("SHELL", "VOLUME"):
        return f"{instruction.keyword} has an empty list, expected at least one word"
    return ""


def _arguments(instruction: Instruction, words: tuple[str, ...]) -> str:
    """Return the problem of an argument; empty without one."""
    keyword, problem = instruction.keyword, ""
    match keyword:
        case "FROM":
            problem = _from(words)
        case "COPY" | "ADD" if len(words) < 2:
            problem = f"{keyword} has {len(words)} arguments, expected a source and a destination"
        case "SHELL" if instruction.words is None:
            problem = 'SHELL expects a JSON list, such as ["/bin/bash", "-c"]'
        case "HEALTHCHECK" if not _is_healthcheck(words):
            problem = "HEALTHCHECK expects CMD COMMAND or NONE"
        case "EXPOSE":
            invalid = (word for word in words if not set("$:\"'") & set(word) and not _is_port(word))
            problem = next((f"invalid port {word}, expected one such as 8000 or 8000/tcp" for word in invalid), "")
        case "STOPSIGNAL" if len(words) > 1:
            problem = f"STOPSIGNAL has {len(words)} arguments, expected one"
        case "ARG" | "ENV" | "LABEL":
            problem = _assigned(keyword, words)
        case _:
            pass
    return problem


def _is_healthcheck(words: tuple[str, ...]) -> bool:
    first = words[0].upper() if words else ""
    return first == "NONE" if len(words) == 1 else first == "CMD"


def _is_port(word: str) -> bool:
    if not (match := PORT.fullmatch(word)):
        return False
    return int(match["first"]) <= int(match["last"] or match["first"]) <= 65535


def _assigned(keyword: str, words: tuple[str, ...]) -> str:
    """Return the word of ARG, ENV or LABEL that assigns nothing; empty without one."""
    if any(word.startswith("=") for word in words):
        return f"{keyword} has a value without a name, expected NAME=VALUE"
    pairs = words if keyword != "ARG" and "=" in words[0] else ()
    bare = next((word for word in pairs if "=" not in word), None)
    return f"{keyword} {bare} has no =, expected NAME=VALUE or quotes" if bare is not None else ""


def _from(words: tuple[str, ...]) -> str:
    named = len(words) == 3 and words[1].upper() == "AS"
    if len(words) != 1 and not named:
        return f"FROM has {len(words)} arguments, expected IMAGE or IMAGE AS NAME"
    if named and not re.fullmatch(r"[a-z][a-z0-9._-]*", words[2].lower()):
        return f"invalid stage name {words[2]}, expected letters, digits, dots, dashes and underscores"
    return ""
