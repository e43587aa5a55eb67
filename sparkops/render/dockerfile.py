"""Fill the template of a Dockerfile, and check each stage of the result before Docker builds it.

A stage that starts from an image inherits nothing from the stages before it, so that each one needs the timeouts of its
installers and the torch of its recipe. No stage may hold a secret: everyone who can pull the image can read it. The
rest of a Dockerfile is the business of hadolint, and the gate inspects the image.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sparkops.config.image import Image
from sparkops.errors import ConfigError
from sparkops.redact import kind_of_key, names_secret
from sparkops.render.sandbox import ROOT, fill, origins
from sparkops.render.stages import ASSIGNMENT, PRINTS, Command, Instruction, Stage, settings, steps

MOST = 64 * 1024
"""Characters of a Dockerfile."""


class Problem(NamedTuple):
    """A line of a Dockerfile, what is wrong there and what was expected."""

    line: int
    text: str


def dockerfile(name: str, templates: Mapping[str, str], recipe_image: Image | None = None, /, **values: object) -> str:
    """Return the text of a template. `recipe_image` is None for an image of sparkops itself.

    Raises ConfigError with a line for each problem: file and line of the template, what is wrong, what was expected.
    """
    text = fill(name, templates, **values)
    if wrong := [*problems(text, recipe_image)]:
        lines, file = text.split("\n"), Path(ROOT + name)
        written = [1, *origins(name, templates, **values)]
        places = (sum(map(bool, map(str.strip, lines[: problem.line]))) for problem in wrong)
        errors = [ConfigError(file, written[place], "", one.text) for place, one in zip(places, wrong, strict=True)]
        raise ConfigError.joined(errors)
    return text


def problems(text: str, image: Image | None = None) -> Iterator[Problem]:
    """Yield what is wrong in each stage of a Dockerfile, by line."""
    if len(text) > MOST:
        yield Problem(1, f"the Dockerfile has {len(text)} characters, expected at most {MOST}")
        return
    rules = _Rules(image, overrides="UV_OVERRIDE" in text or "--override" in text)
    for one, stage, commands in steps(text):
        yield from _secrets(one)
        for command in commands:
            yield from (Problem(one.line, problem) for problem in rules.check(stage, command))


TIMEOUTS = {"uv": ("UV_HTTP_TIMEOUT", 30), "pip": ("PIP_DEFAULT_TIMEOUT", 15)}
"""The variable of an installer and its default: seconds without a byte. Wheels for CUDA have hundreds of megabytes."""
HOLDS = {"uv": ("UV_OVERRIDE", "--override", "--overrides"), "pip": ("PIP_CONSTRAINT", "--constraint", "-c")}
"""The variable and the options of an installer that name a file with versions."""
REQUIREMENTS = ("--requirement", "--requirements", "-r")
VERBS = {
    "uv": frozenset({"add", "build", "lock", "pip", "python", "run", "sync", "tool"}),
    "pip": frozenset({"download", "install", "wheel"}),
}
LOCAL = frozenset({"check", "freeze", "list", "show", "tree", "uninstall"})
"""Verbs of `uv pip` that download nothing."""
INSTALLS = frozenset({"add", "install", "sync"})
TOOLS = frozenset({"build", "cmake", "ninja", "packaging", "pip", "setuptools", "setuptools-scm", "uv", "wheel"})
"""Packages that need no torch."""
NOT_CALLS = PRINTS | {"apk", "apt", "apt-get", "dnf", "git"}
"""Programs whose arguments call no installer."""
PIP = re.compile(r"pip[0-9.]*")
NAME = re.compile(r"[\w.-]*")
TORCH = re.compile(r"(?<![\w.-])torch(?:\[[\w,-]{0,64}\])? {0,4}== {0,4}([^\s;,'\"]+)")
INDEX = re.compile(r"--torch-backend[= ](\w+)|/whl/(cu[0-9]+|cpu)\b")


class Call(NamedTuple):
    """A call of an installer: its verb, and the words behind it."""

    tool: str
    verb: str
    arguments: tuple[str, ...]
    values: Mapping[str, str]

    def options(self, names: Iterable[str]) -> list[str]:
        """Return the values of these options."""
        joined = [word.partition("=") for word in self.arguments]
        pairs = zip(self.arguments, self.arguments[1:], strict=False)
        following = (value for option, value in pairs if option in names)
        return [*(value for option, sign, value in joined if sign and option in names), *following]

    def only_tools(self, stage: Stage) -> bool:
        """Return whether it installs only TOOLS, also from a file that the Dockerfile has."""
        files = self.options(REQUIREMENTS)
        plain = [word for word in self.arguments if not word.startswith("-") and word not in files]
        listed = [line for file in files for line in (stage.file(file) or "?").splitlines()]
        names = {match[0].lower().replace("_", "-") for match in map(NAME.match, (*plain, *listed)) if match}
        return bool(names) and names <= TOOLS

    @classmethod
    def of(cls, command: Command) -> Call | None:
        """Return the call that a command makes, also behind sudo, env or `python -m`; None if it makes none."""
        words = () if command.program in NOT_CALLS else command.words
        for at, word in enumerate(words):
            program = word.rpartition("/")[2]
            tool = "pip" if PIP.fullmatch(program) else program
            if tool == "uvx":
                return cls("uv", "run", words[at + 1 :], command.values)
            verbs = VERBS.get(tool, frozenset())
            named = next((place for place, verb in enumerate(words[at + 1 : at + 6], at + 1) if verb in verbs), None)
            if named is not None:
                named += words[named] == "pip" and len(words) > named + 1
                return cls(tool, words[named], words[named + 1 :], command.values)
        return None


@dataclass
class _Rules:
    """The rules for calls of an installer. `overrides`: whether a stage has an override, which all need then."""

    image: Image | None
    overrides: bool
    reported: set[tuple[str, str]] = field(default_factory=set)

    def check(self, stage: Stage, command: Command) -> Iterator[str]:
        """Yield the problems of a command, each kind once in a stage."""
        call = Call.of(command)
        if call is None or call.verb in LOCAL or (call.tool == "pip" and call.only_tools(stage)):
            return
        for kind, problem in (("timeout", _timeout(call)), ("torch", self._torch(stage, call))):
            if problem and (stage.name, kind) not in self.reported:
                self.reported.add((stage.name, kind))
                yield f"stage {stage.name}: {problem}"

    def _torch(self, stage: Stage, call: Call) -> str:
        """Return why a call may install another torch than that of the recipe; empty if it cannot."""
        torch = self.image.torch if self.image else None
        if torch is None or call.verb not in INSTALLS or "--no-deps" in call.arguments or call.only_tools(stage):
            return ""
        variable, *options = HOLDS[call.tool]
        files = [*call.options(options), *call.values.get(variable, "").split()]
        for file in files:
            if not stage.may_write(file):
                return f"{file} is not written, expected {torch.pin} in it"
        if not files and self.overrides and call.tool == "uv":
            return f"uv runs without {variable}, expected a file with {torch.pin} as in the other stages"
        listed = [stage.file(file) or "" for file in call.options(REQUIREMENTS)]
        texts = [stage.file(file) for file in files] or [" ".join(call.arguments), *listed]
        pins = [pin for text in texts for pin in TORCH.findall(text or torch.pin)]
        if not pins:
            place = f"in {files[0]}" if files else f"among the requirements, or in the file of {variable}"
            return f"{call.tool} installs without a version of torch, expected {torch.pin} {place}"
        for version, _, build in (pin.partition("+") for pin in pins):
            if version != torch.version or build not in ("", torch.backend):
                return f"torch=={version}{build and f'+{build}'} is pinned, expected {torch.pin} as in the recipe"
        indexes = [] if self.image and self.image.use else _indexes(call)
        if wrong := [index for index in indexes if index != torch.backend]:
            return f"torch comes from the index {wrong[0]}, expected --torch-backend={torch.backend}"
        if not indexes and not any("+" in pin for pin in pins) and not (self.image and self.image.use):
            return f"torch comes from any index, expected --torch-backend={torch.backend}"
        return ""


def _timeout(call: Call) -> str:
    """Return why a download may end too early; empty if it cannot."""
    variable, default = TIMEOUTS[call.tool]
    value = call.values.get(variable, "")
    if value.isdecimal() and int(value) > default:
        return ""
    got = f"with {variable}={value}" if value else f"without {variable}"
    return f"{call.tool} runs {got}, expected ENV {variable}=600 in this stage, more than {default} seconds"


def _indexes(call: Call) -> list[str]:
    """Return the builds of torch whose indexes a call names, such as cu130."""
    urls = (value for name, value in call.values.items() if name.startswith(("UV_", "PIP_")))
    named = [one or other for one, other in INDEX.findall(" ".join((*call.arguments, *urls)))]
    return [*named, *filter(None, [call.values.get("UV_TORCH_BACKEND") if call.tool == "uv" else ""])]


HARMLESS = re.compile(r"[0-9.]*|true|false|/\S*|<\S*>", re.IGNORECASE)
"""Values that are no secret: numbers, switches, paths, placeholders."""
KEY_FILES = frozenset(
    {".aws", ".dockercfg", ".git-credentials", ".netrc", ".npmrc", ".pypirc", ".ssh", "credentials", "credentials.json"}
    | {"id_dsa", "id_ecdsa", "id_ed25519", "id_rsa", "kubeconfig"}
)
KEY_SUFFIXES = (".jks", ".kdbx", ".key", ".p12", ".pfx")
EXAMPLES = (".dist", ".example", ".sample", ".template")
UNQUOTED = str.maketrans({"'": "", '"': "", ";": " "})
MOUNT = "expected RUN --mount=type=secret"


def _secrets(one: Instruction) -> Iterator[Problem]:
    """Yield each variable, text and file of an instruction that is a secret."""
    assigned = settings(one) if one.keyword in ("ARG", "ENV") else ()
    if one.keyword == "RUN":
        plain = (text.translate(UNQUOTED).split() for text in one.texts)
        matches = (match for words in plain for match in map(ASSIGNMENT.fullmatch, words) if match)
        assigned = ((match[1], match[2]) for match in matches if not {"$", "`"} & set(match[2]))
    for name, value in assigned:
        if names_secret(name) and (value is None or not HARMLESS.fullmatch(value)):
            yield Problem(one.line, f"{one.keyword} {name}: the history of the image shows this secret, {MOUNT}")
    for kind in filter(None, map(kind_of_key, one.texts)):
        yield Problem(one.line, f"{one.keyword} contains {kind}, which the image shows, {MOUNT}")
    if one.keyword in ("ADD", "COPY") and not any(flag.startswith("--from=") for flag in one.flags):
        for source in one.words[:-1]:
            if _holds_keys(source.rstrip("/").rpartition("/")[2].lower()):
                yield Problem(one.line, f"{one.keyword} {source}: a file with keys comes into the image, {MOUNT}")


def _holds_keys(name: str) -> bool:
    environment = name == ".env" or (name.startswith(".env.") and not name.endswith(EXAMPLES))
    return environment or name in KEY_FILES or name.endswith(KEY_SUFFIXES)
