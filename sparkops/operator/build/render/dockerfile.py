"""Fill the template of a Dockerfile, and check each stage of the result before Docker builds it.

A stage that starts from an image inherits nothing from the stages before it, so each stage of a recipe states the
timeout of uv and the torch of the recipe, whatever it runs: no shell is read for that. No stage may hold a secret:
everyone who can pull the image can read it. The gate inspects what the image has in the end, also by pip; the rest of a
Dockerfile is the business of hadolint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sparkops.command import unquote
from sparkops.config.image import Image
from sparkops.errors import ConfigError
from sparkops.operator.build.render.sandbox import ROOT, fill, origins
from sparkops.redact import kind_of_key, names_secret

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
    """Yield what is wrong in each stage of a Dockerfile, by line: in a recipe's with its `image`, or in one of ours."""
    if len(text) > MOST:
        yield Problem(1, f"the Dockerfile has {len(text)} characters, expected at most {MOST}")
        return
    stages, stage = dict[str, Stage](), Stage()
    for one in instructions(text):
        yield from _secrets(one)
        if one.keyword == "FROM":
            yield from stage.lacks(image, stage.line)
            source, *named = one.words or [""]
            name = (named[1] if len(named) == 2 else str(len(stages))).lower()
            stage = stages[name] = stages.get(source.lower(), Stage()).child(name, one.line)
        stage.read(one)
        yield from (Problem(one.line, problem) for problem in _another(one, image))
        if one.keyword == "RUN" and UV.search(one.text):
            yield from stage.lacks(image, one.line)
    yield from stage.lacks(image, stage.line)


TIMEOUT, DEFAULT_S = "UV_HTTP_TIMEOUT", 30
"""The variable of uv and its default: seconds without a byte. Wheels for CUDA have hundreds of megabytes."""
OVERRIDE = "UV_OVERRIDE"
"""The variable of uv that names a file with versions, which hold for every installation."""
UV = re.compile(r"\buvx?\b")
SHORTER = re.compile(rf"\b{TIMEOUT}=\"?(\d+)")
TORCH = re.compile(r"(?<![\w.-])torch(?:\[[\w,-]{0,64}\])? {0,4}== {0,4}([^\s;,'\"]+)")
INDEX = re.compile(r"(?:--torch-backend[= ]|TORCH_BACKEND=|/whl/(?=cu\d|cpu))(\w+)")
"""A build of torch, such as cu130, where an index of its wheels is named."""


@dataclass
class Stage:
    """A stage up to an instruction: its variables, and the text of all that may write a file."""

    name: str = ""
    line: int = 1
    variables: dict[str, str] = field(default_factory=dict)
    text: str = ""
    reported: bool = False

    def child(self, name: str, line: int) -> Stage:
        """Return a stage that starts from this one, and so inherits everything."""
        return Stage(name, line, dict(self.variables), self.text)

    def read(self, one: Instruction) -> None:
        """Apply an instruction."""
        if one.keyword in ("ARG", "ENV"):
            self.variables |= {name: value for name, value in settings(one) if value is not None}
        elif one.keyword in WITH_HEREDOC:
            self.text += f"\n{one.text}"

    def lacks(self, image: Image | None, line: int) -> Iterator[Problem]:
        """Yield, once for a stage, why uv may end a download early or install another torch than that of the recipe."""
        if self.reported or not self.name or not (image or UV.search(self.text)):
            return
        found = [*filter(None, (self._timeout(), self._torch(image)))]
        self.reported = bool(found)
        yield from (Problem(line, f"stage {self.name}: {problem}") for problem in found)

    def _timeout(self) -> str:
        value = self.variables.get(TIMEOUT, "")
        if value.isdecimal() and int(value) > DEFAULT_S:
            return ""
        return f"{TIMEOUT} is {value or 'not set'}, expected ENV {TIMEOUT}=600, more than {DEFAULT_S} seconds"

    def _torch(self, image: Image | None) -> str:
        if image is None or image.torch is None:
            return ""
        file, pin = self.variables.get(OVERRIDE, ""), image.torch.pin
        text = f"{self.text} {' '.join(f'{name}={value}' for name, value in self.variables.items())}"
        if not file:
            return f"{OVERRIDE} is not set, expected a file with {pin}"
        if f"${OVERRIDE}" not in self.text and file not in self.text:
            return f"{file} is not written, expected {pin} in it"
        if not (pins := TORCH.findall(text)):
            return f"no version of torch, expected {pin} in {file}"
        if not image.use and not any("+" in one for one in pins) and not INDEX.search(text):
            return f"torch comes from any index, expected ARG TORCH_BACKEND={image.torch.backend}"
        return ""


def _another(one: Instruction, image: Image | None) -> Iterator[str]:
    """Yield each timeout that is too short, and each torch and index that is not that of the recipe."""
    for value in SHORTER.findall(one.text) if one.keyword == "RUN" else ():
        if int(value) <= DEFAULT_S:
            yield f"{TIMEOUT} is {value}, expected more than {DEFAULT_S} seconds"
    if image is None or image.torch is None:
        return
    for version, _, build in (pin.partition("+") for pin in TORCH.findall(one.text)):
        if version != image.torch.version or build not in ("", image.torch.backend):
            yield f"torch=={version}{build and f'+{build}'} is pinned, expected {image.torch.pin} as in the recipe"
    for index in () if image.use else INDEX.findall(one.text):
        if index != image.torch.backend:
            yield f"torch comes from the index {index}, expected {image.torch.backend}"


WITH_HEREDOC = frozenset({"ADD", "COPY", "RUN"})
HEREDOC = re.compile(r"<<-?[\"']?(\w+)")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class Instruction(NamedTuple):
    """An instruction with its line, without its flags. `bodies`: the text of each heredoc by name."""

    line: int
    keyword: str
    flags: tuple[str, ...]
    rest: str
    bodies: Mapping[str, str]

    @property
    def words(self) -> list[str]:
        """Its words without quotes."""
        try:
            return unquote(self.rest)
        except ValueError:
            return self.rest.split()

    @property
    def texts(self) -> tuple[str, ...]:
        """Its text, and that of each heredoc."""
        return (self.rest, *self.bodies.values())

    @property
    def text(self) -> str:
        """All of its text."""
        return "\n".join(self.texts)


def instructions(text: str) -> Iterator[Instruction]:
    """Yield each instruction, its continued lines as one, without the comments and blank lines in it."""
    lines = iter(enumerate(text.split("\n"), 1))
    for begin, first in lines:
        if not first.strip() or first.lstrip().startswith("#"):
            continue
        parts = [first]
        while parts[-1].rstrip().endswith("\\"):
            parts[-1] = parts[-1].rstrip()[:-1]
            parts.append(next((line for _, line in lines if line.strip() and line.lstrip()[0] != "#"), ""))
        keyword, *after = " ".join(parts).split(maxsplit=1)
        flags, rest = list[str](), "".join(after)
        while rest.startswith("--"):
            flag, *after = rest.split(maxsplit=1)
            flags, rest = [*flags, flag], "".join(after)
        names = HEREDOC.findall(rest) if keyword.upper() in WITH_HEREDOC else ()
        bodies = {name: "\n".join(_body(lines, name)) for name in names}
        yield Instruction(begin, keyword.upper(), tuple(flags), rest, bodies)


def _body(lines: Iterator[tuple[int, str]], name: str) -> Iterator[str]:
    for _, line in lines:
        if line.lstrip("\t") == name:
            return
        yield line


def settings(one: Instruction) -> Iterator[tuple[str, str | None]]:
    """Yield the variables of ENV or ARG, also of `ENV NAME value`; None for an ARG without a default."""
    first, *words = one.words or [""]
    if words and "=" not in first and one.keyword == "ENV":
        yield first, " ".join(words)
        return
    for word in (first, *words):
        name, sign, value = word.partition("=")
        yield name, value if sign else None


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
