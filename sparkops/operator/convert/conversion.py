"""A recipe of sparkops made from another tool's recipe, and the settings that it omits."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sparkops.config.fields import Location, as_name
from sparkops.config.source import Source
from sparkops.engines import ENGINES, EngineName
from sparkops.engines.engine import EngineKind
from sparkops.foreign import one_line
from sparkops.operator.convert.command_lines import OPTIMIZATION, SHORT
from sparkops.operator.convert.mods import Mod
from sparkops.operator.convert.releases import RELEASES, ModelType, Release
from sparkops.redact import names_secret

Kind = Literal["note", "loss", "refusal"]
"""note: sparkops has its own way to do the same. loss: stated in the new recipe, as it may matter. refusal: the engine
cannot start without it."""


DEFAULTS = {
    "tensor-parallel-size": "tensor_parallel",
    "pipeline-parallel-size": "pipeline_parallel",
    "data-parallel-size": "data_parallel",
}
"""Flags whose key in `defaults` has another name."""

SAME_ANSWERS = {"recipe_version", "container", "served-model-name", "port", "gpu-memory-utilization-gb"}
"""What may matter to the owner, clients or memory, and not to what the model answers: another image has the same model.
"""
OF_MACHINE = re.compile(r"(NCCL|GLOO|UCX|RAY|HF_HUB)_\w+|HF_HOME|\w*(HOST_IP|SOCKET_IFNAME|CACHE(_DIR|_HOME|_ROOT)?)")
"""Variables of the network, the hub and of places on a node: what the model answers does not depend on them."""


@dataclass(frozen=True)
class Omission:
    """A setting that is not imported: the line in the file (from 1), the key, and the reason."""

    line: int
    key: str
    reason: str
    kind: Kind = "note"
    section: str = "serve"
    """The top-level key of the new recipe where the setting is missing."""
    final: bool = False
    """Whether `--without` has no effect, as for the number of nodes."""
    unknown: bool = False
    """Whether only the tables of import lack it, so that a finished image may have it."""

    def __post_init__(self) -> None:
        _show_on_one_line(self)

    @property
    def may_change_answers(self) -> bool:
        """Whether the model may answer otherwise than with the original, for lack of this setting."""
        variable = self.key.partition("env.")[2] if self.key.startswith("env.") else ""
        beside = bool(variable) and (names_secret(variable) or OF_MACHINE.fullmatch(variable) is not None)
        return self.kind != "note" and self.key.partition(" ")[0] not in SAME_ANSWERS and not beside


@dataclass(frozen=True)
class Kept:
    """A setting that is imported although no table knows it: the finished image judges it.

    The line in the file (from 1), the key, and the reason. `allow` is its name in `serve.allow`, empty if it needs
    none.
    """

    line: int
    key: str
    reason: str
    allow: str = ""

    def __post_init__(self) -> None:
        _show_on_one_line(self)


def _show_on_one_line(part: Omission | Kept) -> None:
    """Write the words of the original's author so that they neither add a line nor control a terminal."""
    object.__setattr__(part, "key", one_line(part.key))
    object.__setattr__(part, "reason", one_line(part.reason))


@dataclass(frozen=True)
class Choices:
    """The options of `sparkops import`.

    `without` are flags and keys that may be missing although the engine needs them. `mods` is a checkout of
    spark-vllm-docker, whose mods and chat templates are read like those beside the recipe. `use` is a finished image,
    `variant` one of several settings in one file; both are empty if the recipe's own count. `own` is the finished image
    of the recipe itself, which its author chose.
    """

    without: Collection[str] = ()
    mods: Path | None = None
    use: str = ""
    variant: str = ""
    own: str = ""


IMPORTED = Choices()
"""No option is given."""


def directory(model: str) -> str:
    """Return the directory of a model: the last part of its repository's name."""
    return model.rstrip("/").rpartition("/")[2].partition(":")[0]


@dataclass
class Conversion:
    """A recipe of sparkops under construction.

    `original` is the data of `source`, `text` its file. `release` is the vLLM that judges the flags; with a finished
    image it only gives the tables that tell a known flag from one of a fork. `guessed` has a comment for each key that
    the original does not state. `lines` has the original's line for each place in `data`.
    """

    source: Source
    original: Mapping[str, Any]
    text: str
    choices: Choices = IMPORTED
    engine: EngineName = "vllm"
    release: Release = RELEASES[0]
    model_type: ModelType | None = None
    """The type of the model; None if no fact says."""
    data: dict[str, Any] = field(default_factory=dict)
    omissions: list[Omission] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    guessed: dict[str, str] = field(default_factory=dict)
    lines: dict[Location, int] = field(default_factory=dict)
    mods: Mapping[str, str] = field(default_factory=dict)
    """The flags that each mod of the original provides; empty if unknown."""
    beside: dict[str, Mod] = field(default_factory=dict)
    """The mods that lie beside the recipe, by name."""
    files: dict[str, bytes] = field(default_factory=dict)
    """The mods of the new recipe that must be written to ./mods, by the name of the file."""
    draft: dict[str, str] | None = None
    """`model.draft` of the new recipe."""
    image_mods: list[str] = field(default_factory=list)
    """`image.mods` of the new recipe."""
    revision: str = ""
    """The commit of the model that a flag states."""
    spelled: dict[str, str] = field(default_factory=dict)
    """The original's name of each flag that has another one here."""

    @cached_property
    def text_lines(self) -> list[str]:
        """The lines of the file."""
        return self.text.splitlines()

    @property
    def refusals(self) -> list[Omission]:
        """The omissions without which the engine cannot start, by line."""
        return sorted(
            (omission for omission in self.omissions if omission.kind == "refusal"), key=lambda omission: omission.line
        )

    @property
    def losses(self) -> list[Omission]:
        """The omissions that the new recipe states."""
        return [omission for omission in self.omissions if omission.kind == "loss"]

    @property
    def kind(self) -> EngineKind:
        """The facts of its engine."""
        return ENGINES[self.engine]

    @property
    def use(self) -> str:
        """The finished image; empty if sparkops builds one."""
        return self.choices.use or self.choices.own

    def add_mod(self, name: str, content: bytes) -> str:
        """Add a mod to the new recipe, and return its name there."""
        stem, dot, suffix = name.rpartition(".")
        name = as_name(stem)[: 62 - len(suffix)] + dot + suffix
        self.files[name] = content
        self.image_mods += [name] if name not in self.image_mods else []
        return name

    def omit(
        self, line: int, key: str, reason: str, kind: Kind = "note", section: str = "serve", *, unknown: bool = False
    ) -> None:
        """Add an omission. A refusal whose key is in `choices.without` becomes a loss."""
        kind = "loss" if kind == "refusal" and key in self.choices.without else kind
        self.omissions.append(Omission(line, key, reason, kind, section, unknown=unknown))

    def refuse(self, line: int, key: str, reason: str) -> None:
        """Add a refusal that `without` cannot lift."""
        self.omissions.append(Omission(line, key, reason, "refusal", final=True))

    def line(self, where: Location, *words: str) -> int:
        """Return the first line from `where` on that contains one of the words, or the line of `where`."""
        first = self.source.lines.get(self.source.nearest(where), 1)
        numbers = range(first, len(self.text_lines) + 1)
        return next((n for word in words if word for n in numbers if word in self.text_lines[n - 1]), first)

    def flag_line(self, flag: str) -> int:
        """Return the line of a flag: in the command, or in `defaults`."""
        places, flag = self.source.lines, self.spelled.get(flag, flag)
        default = places.get(("defaults", flag.replace("-", "_"))) or places.get(("defaults", DEFAULTS.get(flag, "")))
        first = places.get(("command",))
        if first is None:
            return default or self.line(("defaults",))
        first_key, dot, rest = flag.partition(".")
        shorts = (f"-{short}" for short, name in SHORT.items() if name == first_key)
        own = (first_key,) if first_key.startswith("-") else (f"--{first_key}", f"--{first_key.replace('-', '_')}")
        forms = [re.escape(form + dot + rest) for form in (*own, *shorts)] + ["-O=?[0-9]*"] * (flag == OPTIMIZATION)
        pattern = re.compile(rf"(?<![\w-])({'|'.join(forms)})(?![\w-])")
        numbers = range(first, len(self.text_lines) + 1)
        lines = {n: text for n in numbers if not (text := self.text_lines[n - 1]).lstrip().startswith("#")}
        return next((n for n, text in lines.items() if pattern.search(text)), default or first)
