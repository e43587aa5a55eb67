"""Read how a server is started without a recipe: by a shell script, a `docker run` line or a compose file. Pure.

The start becomes the keys of a recipe. Only one with a single meaning is read: not one inside a condition, with a list
of the shell, or with the output of another program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from posixpath import basename
from typing import Any

from sparkops.command import quote
from sparkops.config.fields import Location
from sparkops.config.source import Source
from sparkops.errors import ConfigError
from sparkops.operator.convert import command_lines
from sparkops.operator.convert.conversion import Omission
from sparkops.operator.convert.recipe_keys import SHELL

NEXT = (
    "Write a file with the keys `model: OWNER/NAME`, `container: IMAGE` and `command: vllm serve OWNER/NAME ...`, then "
    "import it (docs/migrate.md)"
)
ENGINES = ("vllm", "sglang")
DOCKER = frozenset({"docker", "podman", "nerdctl"})
LINE = re.compile(
    r"^(?![ \t]*#)[^\n]*?(?:\b(?:vllm|sglang)[ \t]+serve\b|\blaunch_server\b|\bapi_server\b|"
    r"\b(?:docker|podman|nerdctl)[ \t]+(?:container[ \t]+)?run\b)",
    re.MULTILINE,
)
"""A line that starts a server, or a container."""
DOCKERS = re.compile(r"\b(?:docker|podman|nerdctl)[ \t]+(?:container[ \t]+)?run\b")
OTHERS: Mapping[str, str] = {
    r"apiVersion:": "a Kubernetes manifest",
    r"FROM[ \t]": "a Dockerfile",
    r"\[(Unit|Service|Container)\]": "a systemd unit",
    r"(import|from)[ \t]+\w": "a Python program",
}
"""The beginning of a line in files that are not read, and what they are."""
OPENS, GOES_ON, CLOSES = (
    frozenset({"if", "for", "while", "until", "case", "select", "{", "("}),
    frozenset({"then", "else", "elif", "do", "!"}),
    frozenset({"fi", "done", "esac", "}", ")"}),
)
EXPORTS = frozenset({"export", "declare", "readonly", "typeset", "local"})
WRAPPERS = frozenset({"exec", "nohup", "sudo", "time", "setsid", "env"})
QUIET = frozenset(
    {*("set", "echo", "printf", "sleep", "wait", "cd", "exit", "true", "trap", "mkdir", "[", "[[", "test", ":", "ray")}
)
"""Programs without which the server of sparkops starts as well: it joins the ranks of Ray itself."""
ARGUMENTS = frozenset({"$@", "$*", "${@}", "${*}"})
LIST = re.compile(r"\$\{\w+\[[@*]\]")
OUTPUT = re.compile(r"\$\(|`")
ONE_VARIABLE = re.compile(r"\$(?:\w+|\{\w+\})")
HERE_DOCUMENT = re.compile(r"<<-?[ \t]*[\"']?[A-Za-z_]")
SWITCHES = re.compile(r"-[ditPq]+")
NO_VALUE = frozenset(
    """
    detach disable-content-trust init interactive no-healthcheck no-hosts oom-kill-disable privileged publish-all quiet
    read-only replace rm sig-proxy tty
    """.split()  # noqa: SIM905 - reads better as text
)
VALUED = frozenset(
    """
    add-host annotation attach blkio-weight cap-add cap-drop cgroup-parent cgroupns cidfile cpu-period cpu-quota
    cpu-shares cpus cpuset-cpus cpuset-mems device device-cgroup-rule dns dns-option dns-search domainname entrypoint
    env env-file expose gpus group-add health-cmd health-interval health-retries health-start-period health-timeout
    hostname ip ipc label label-file log-driver log-opt mac-address memory memory-reservation memory-swap
    memory-swappiness mount name net network network-alias oom-score-adj pid pids-limit platform publish pull restart
    runtime security-opt shm-size stop-signal stop-timeout storage-opt sysctl tmpfs ulimit user userns uts volume
    volume-driver volumes-from workdir
    """.split()  # noqa: SIM905 - reads better as text
)
"""Options of `docker run` without and with a value (docker/cli 29, cli/command/container/opts.go, and podman's)."""
SHORT: Mapping[str, str] = {
    **{"e": "env", "v": "volume", "p": "publish", "u": "user", "w": "workdir", "h": "hostname", "m": "memory"},
    **{"l": "label", "a": "attach", "c": "cpu-shares"},
}
PORTS = {"vllm": "8000", "sglang": "30000"}
"""The port of each server without --port."""
CONTAINER = "sparkops sets the rights, mounts and network of its containers"
OF_SHELL = "its value is that of the original's shell"
NO_FILE = "a file of variables, which is not read: write them below `env` of the new recipe"
TWO = "several servers: each is a recipe of its own"
NO_START = "no start of a server: expected `vllm serve MODEL`, or `docker run IMAGE` with an image of vLLM"
INSIDE = "the server starts inside a condition, a loop or a function, which import does not follow"
KEYS = ("image", "command", "entrypoint", "environment", "ports", "env_file")
"""Keys of a service of compose that are read; all others are of its container."""


@dataclass(frozen=True)
class Start:
    """One start of a server: its words, image and variables, and what is not imported: key, reason, is a loss."""

    argv: tuple[str, ...]
    engine: str
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    left: tuple[tuple[str, str, bool], ...] = ()

    def published(self, ports: Sequence[str]) -> Start:
        """Return the start with the port that clients use, where a container publishes its own as another."""
        flags = dict(command_lines.flags(self.argv))
        own = str(flags.get("port", PORTS[self.engine]))
        pairs = (port.partition("/")[0].split(":") for port in ports)
        other = [pair[-2] for pair in pairs if len(pair) > 1 and pair[-1] == own and pair[-2] not in ("", own)]
        return replace(self, argv=(*self.argv, "--port", other[0])) if other else self


def is_start(text: str) -> bool:
    """Return whether a text has a line that starts a server or a container."""
    return len(text) <= command_lines.MOST_CHARACTERS and LINE.search(text) is not None


def named(text: str) -> str:
    """Return what a file is that import does not read, such as a Dockerfile; empty if unknown."""
    start = text[: command_lines.MOST_CHARACTERS]
    return next((what for begins, what in OTHERS.items() if re.search(rf"^(?:{begins})", start, re.MULTILINE)), "")


def unread(source: Source, problem: str, line: int = 1) -> ConfigError:
    """Return the error for a file that is not read, with the three keys to write by hand."""
    error = ConfigError(source.file, line, "", problem)
    error.next_step = NEXT
    return error


def of_script(source: Source, text: str) -> tuple[Source, list[Omission]]:
    """Return the start in a script as a recipe, and what it does besides. Raises ConfigError."""
    begins = LINE.search(text)
    line = text.count("\n", 0, begins.end()) + 1 if begins else 1
    try:
        return _recipe(source, script(text), line)
    except ValueError as error:
        raise unread(source, f"a shell script: {error}", line) from None


def of_compose(source: Source, choice: str) -> tuple[Source, list[Omission]]:
    """Return the service of a compose file that starts a server as a recipe. Raises ConfigError.

    `choice` is its name where several do.
    """
    services = _mapping(_mapping(source.data).get("services"))
    started = dict[str, Start]()
    for name, service in services.items():
        try:
            if start := _service(_merged(service)):
                started[name] = start
        except ValueError as error:
            where: Location = ("services", name)
            raise unread(source, f"a compose file: {name}: {error}", source.lines.get(where, 1)) from None
    if choice and choice not in started:
        names = ", ".join(started) or "none"
        raise unread(source, f"a compose file: no service {choice} starts a server, expected one of: {names}")
    if not started:
        raise unread(source, f"a compose file: {NO_START}")
    if len(started) > 1 and not choice:
        several = unread(source, f"a compose file: several services start a server: {', '.join(started)}")
        several.next_step = f"sparkops import {source.file} --variant {next(iter(started))}"
        raise several
    name = choice or next(iter(started))
    places: tuple[Location, ...] = (("services", name, "command"), ("services", name))
    return _recipe(source, started[name], next((source.lines[where] for where in places if where in source.lines), 1))


def script(text: str) -> Start:
    """Return the only start of a server in a script. Raises ValueError for one that is not read, or larger than 64 KiB.

    `docker run` counts as the start of what its container runs.
    """
    if len(text) > command_lines.MOST_CHARACTERS:
        raise ValueError(f"larger than {command_lines.MOST_CHARACTERS} characters")
    if HERE_DOCUMENT.search(text):
        raise ValueError("a here-document, which import does not read")
    shell = _Shell()
    for before, command in commands(command_lines.words(text)):
        shell.run(before, command)
    if len(shell.starts) > 1:
        raise ValueError(TWO)
    if not shell.starts:
        raise ValueError(NO_START)
    start = shell.starts[0]
    programs = dict.fromkeys(shell.others)
    if programs:
        shown = ", ".join([*programs][:5])
        start = replace(start, left=(*start.left, ("shell", f"{shown}: {SHELL}", True)))
    return start


@dataclass
class _Shell:
    """What a script has set so far, and the starts of servers in it."""

    values: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    depth: int = 0
    starts: list[Start] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def run(self, before: str, command: list[str]) -> None:
        """Read one command, after the operator `before`. Raises ValueError."""
        tests = False
        while command and (command[0] in OPENS | GOES_ON | CLOSES | {"function"} or command[0].endswith("()")):
            word = command.pop(0)
            if word == "function":
                del command[:1]
            tests = tests or word in ("if", "elif", "while", "until", "for", "case", "select")
            self.depth += (word in OPENS) - (word in CLOSES)
        depends = tests or self.depth > 0 or before in ("&&", "||")
        exports = command[:1] != [] and command[0] in EXPORTS
        words = [word for word in command[exports:] if not (exports and word.startswith("-"))]
        assigned = [match for word in words if (match := command_lines.ASSIGNMENT.fullmatch(word))]
        if exports or (words and len(assigned) == len(words)):
            self._assign(assigned, known=not depends)
            if exports:
                self.exported |= {word.partition("=")[0] for word in words}
            return
        if words[:1] == ["unset"]:
            for name in words[1:]:
                self.values.pop(name, None)
            return
        own = dict[str, str]()
        while words and (words[0] in WRAPPERS or command_lines.ASSIGNMENT.fullmatch(words[0])):
            if match := command_lines.ASSIGNMENT.fullmatch(words.pop(0)):
                if OUTPUT.search(match[2]):  # NAME=$(program argument)
                    self._assign([match], known=False)
                    return
                own[match[1]] = command_lines.expanded(match[2], self.values)
        if not words:
            return
        env = {name: self.values[name] for name in self.exported if name in self.values} | own
        if start := _started(words, self.values, env):
            if self.depth > 0 or tests or before == "||":
                raise ValueError(INSIDE)
            self.starts.append(start)
        elif basename(words[0]) not in QUIET | DOCKER and not words[0].startswith("-"):
            self.others.append(basename(words[0]))

    def _assign(self, assigned: Sequence[re.Match[str]], *, known: bool) -> None:
        """Set variables; one whose value depends on the run becomes unknown."""
        for match in assigned:
            if known and not OUTPUT.search(match[2]) and not match[2].startswith("("):
                self.values[match[1]] = command_lines.expanded(match[2], self.values)
            else:
                self.values.pop(match[1], None)


def commands(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the operator before each command of a script, and its words. Redirections are left out."""
    before, command = "", list[str]()
    skip = False
    for word in words:
        if skip:
            skip = False
        elif not command_lines.OPERATOR.fullmatch(word):
            command.append(word)
        elif "<" in word or ">" in word:
            skip = word[-1] in "<>"
        else:
            if command:
                yield before, command
            before, command = word, []
    if command:
        yield before, command


def _started(words: Sequence[str], values: Mapping[str, str], env: Mapping[str, str]) -> Start | None:
    """Return the start of a command; None if it starts no server. Raises ValueError for one that is not read."""
    options = 2 + (list(words[1:2]) == ["container"])
    container = basename(words[0]) in DOCKER and list(words[options - 1 : options]) == ["run"]
    if not container and not any(command_lines.serve(words, engine)[1] for engine in ENGINES):
        return None
    expanded = list[str]()
    left = list[tuple[str, str, bool]]()
    called = "the arguments that the script is called with"
    left += [(word, called, False) for word in words if word in ARGUMENTS]
    words = [word for word in words if word not in ARGUMENTS]
    for word, text in zip(words, command_lines.all_expanded(words, values), strict=True):
        for pattern, what in ((LIST, "a list of the shell"), (OUTPUT, "the output of another program")):
            if pattern.search(word):
                raise ValueError(f"{word} is {what}, which import does not read")
        split = ONE_VARIABLE.fullmatch(word) and text.startswith("-")  # flags in one variable, without quotes
        expanded += text.split() if split else [text]
    if container:
        start = _container(expanded[options:], values)
        return replace(start, left=(*start.left, *left))
    engine = next(engine for engine in ENGINES if command_lines.serve(expanded, engine)[1])
    return Start(tuple(expanded), engine, env=env, left=tuple(left))


def _container(words: Sequence[str], values: Mapping[str, str]) -> Start:
    """Return the start of what `docker run` runs, from its words after `run`. Raises ValueError."""
    given: dict[str, list[str]] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if SWITCHES.fullmatch(word):
            continue
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        else:
            name, equals, value = SHORT.get(word[1:2], word), word[2:], word[2:].removeprefix("=")
        if name in NO_VALUE:
            given.setdefault(name, [])
            continue
        if name not in VALUED or not (equals or rest):
            raise ValueError(f"`docker run` with {word}, an option that import does not know")
        given.setdefault(name, []).append(value if equals else rest.pop(0))
    if not rest:
        raise ValueError("`docker run` without an image")
    env, left = dict[str, str](), list[tuple[str, str, bool]]()
    for entry in given.pop("env", []):
        name, equals, value = entry.partition("=")
        if equals or name in values:
            env[name] = value if equals else values[name]
        else:
            left.append((f"env.{name}", OF_SHELL, True))
    left += [(f"--env-file {file}", NO_FILE, True) for file in given.pop("env-file", [])]
    entrypoint, ports = given.pop("entrypoint", []), given.pop("publish", [])
    if given:
        left.append((" ".join(f"--{name}" for name in given), CONTAINER, False))
    image, *arguments = rest
    start = _of_image(image, entrypoint[-1:], arguments)
    if start is None:
        raise ValueError(f"unknown what {image} starts: expected `vllm serve MODEL` after it, or an image of vLLM")
    return replace(start, env=env, left=tuple(left)).published(ports)


def _of_image(image: str, entrypoint: Sequence[str], arguments: Sequence[str]) -> Start | None:
    """Return what a container of an image starts; None if that is unknown. Images of vLLM start `vllm serve`."""
    argv = (*entrypoint, *arguments)
    for engine in ENGINES:
        if command_lines.serve(argv, engine)[1]:
            return Start(argv, engine, image)
    repository = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    names_model = bool(arguments) and (arguments[0].startswith("--") or re.fullmatch(r"[\w.-]+/[\w.-]+", arguments[0]))
    if "vllm" in repository and names_model and not entrypoint:
        return Start(("vllm", "serve", *arguments), "vllm", image)
    return None


def _service(service: Mapping[str, Any]) -> Start | None:
    """Return the start of a service of compose; None if it starts no server. Raises ValueError."""
    image = _interpolated(str(service.get("image") or ""))
    start = _of_image(image, _words(service.get("entrypoint")), _words(service.get("command")))
    if start is None:
        return None
    if "extends" in service:
        raise ValueError("`extends`, which import does not follow")
    left = list[tuple[str, str, bool]]()
    given = service.get("environment") or {}
    pairs = [str(entry).partition("=")[::2] for entry in given] if isinstance(given, list) else _merged(given).items()
    bare = {str(entry) for entry in given if "=" not in str(entry)} if isinstance(given, list) else set()
    env = dict[str, str]()
    for name, value in pairs:
        if value is None or name in bare:
            left.append((f"env.{name}", OF_SHELL, True))
        else:
            env[name] = _interpolated(str(value).lower() if isinstance(value, bool) else str(value))
    if service.get("env_file"):
        left.append(("env_file", NO_FILE, True))
    if others := [key for key in service if key not in KEYS and not key.startswith("x-")]:
        left.append((", ".join(others), CONTAINER, False))
    return replace(start, env=env, left=tuple(left)).published([*_ports(service.get("ports"))])


def _ports(given: object) -> Iterator[str]:
    """Yield the published ports of a service as HOST:CONTAINER."""
    for port in given if isinstance(given, list) else ():
        yield f"{port.get('published', '')}:{port.get('target', '')}" if isinstance(port, dict) else str(port)


def _words(value: object) -> list[str]:
    """Return the words of a command or entrypoint of compose, a text or a list.

    Raises ValueError for an open quote, and for more than 64 KiB, before anything reads them.
    """
    given = [str(word) for word in value] if isinstance(value, list) else [str(value or "")]
    if sum(map(len, given)) > command_lines.MOST_CHARACTERS:
        raise ValueError(f"larger than {command_lines.MOST_CHARACTERS} characters")
    words = given if isinstance(value, list) else command_lines.words(given[0])
    return [_interpolated(word) for word in words]


def _interpolated(text: str) -> str:
    """Return a text of compose with the defaults of its variables; $$ is a dollar sign."""
    return "$".join(command_lines.expanded(part, {}) for part in text.split("$$"))


def _merged(value: object) -> dict[str, Any]:
    """Return a mapping of YAML with what its key << merges, one mapping or several."""
    own = _mapping(value)
    merged = own.get("<<")
    others = merged if isinstance(merged, list) else [merged]
    base = {key: item for other in reversed(others) for key, item in _mapping(other).items()}
    return {**base, **{key: item for key, item in own.items() if key != "<<"}}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _recipe(source: Source, start: Start, line: int) -> tuple[Source, list[Omission]]:
    """Return a start as the keys of a recipe, all on the line of its command, and what is not imported."""
    data: dict[str, Any] = {"command": quote(*start.argv), "env": dict(start.env)}
    data |= {"container": start.image} if start.image else {}
    data |= {"runtime": start.engine} if start.engine != "vllm" else {}
    lines: dict[Location, int] = {(key,): line for key in data} | {("env", name): line for name in start.env}
    omissions = [Omission(line, key, reason, "loss" if loss else "note") for key, reason, loss in start.left]
    return Source(source.file, data, lines), omissions
