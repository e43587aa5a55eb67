"""The arguments of a recipe, for the parser of its engine inside its image: what is asked, and the answer. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sparkops import foreign
from sparkops.command import Command
from sparkops.config import overlay
from sparkops.config.fields import Location
from sparkops.config.recipe import Recipe
from sparkops.config.release import Rank, Release
from sparkops.engines import ENGINES
from sparkops.engines.image_facts import GateVerdict
from sparkops.engines.launch import Seat
from sparkops.names import LABEL, Slot
from sparkops.node.docker import commands, ranks

KEY = f"{LABEL}arguments"
"""Label of an image: the digest of the arguments that its own parser has accepted."""
ACCEPTED = "accepted by the parser of the image"
MODEL_GIB = 4
"""Memory limit of a check with the model's files: vLLM 0.32 took 1.3 GiB to import itself and read a configuration. On
a Spark that is memory of the release that serves, so that a check that needs more is not made."""
SEAT = Seat("10.0.0.2", "10.0.0.1")
"""Any two addresses: those of the ranks are known only on nodes, and no parser connects."""
STEP = "Change or remove it, or name an image whose engine has it, then retry; layers that are complete are kept"


@dataclass(frozen=True)
class Arguments:
    """The command lines of a recipe's ranks, and the script with which its engine's own parser reads them."""

    recipe: Recipe
    script: bytes

    @cached_property
    def lines(self) -> list[list[str]]:
        """The arguments of the engine's program on each rank that starts it; in a Ray cluster that is rank 0 alone."""
        return command_lines(self.recipe)

    @cached_property
    def env(self) -> Mapping[str, str]:
        """Variables of the engine that its parser may read."""
        return {**ENGINES[self.recipe.engine].env, **self.recipe.serve.env}

    @property
    def digest(self) -> str:
        """SHA-256 over what the parser reads."""
        return hashlib.sha256(json.dumps([self.lines, self.env], sort_keys=True).encode()).hexdigest()

    def changed(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether an image with these labels has accepted other arguments.

        False for an image whose parser could not judge, or that an earlier sparkops has gated.
        """
        accepted = (labels or {}).get(KEY)
        return accepted is not None and accepted != self.digest

    def command(self, image: str, models: str = "") -> Command:
        """Return the command that asks the parser, without GPU and network.

        `models`: a node's model directory. With it, the engine also builds its configuration from the model's files.
        """
        platform = "cpu" if self.recipe.backend == "cpu" else "cuda"
        words = (platform, json.dumps({self.recipe.name: self.lines}), json.dumps(self.env))
        memory_gib = MODEL_GIB if models else commands.GATE_GIB
        return commands.check_image(image, self.script, *words, models=models, memory_gib=memory_gib)

    def answer(self, printed: str) -> Answer:
        """Parse the output of the script. Raises ValueError for other text."""
        try:
            judged = foreign.loads(printed.strip().splitlines()[-1])
            if reason := judged["unjudged"].get(self.recipe.name):
                return Answer(unjudged=str(reason))
            name = self.recipe.name
            steps = {str(step): str(said) for step, said in judged.get("steps", {}).get(name, {}).items()}
            return Answer(str(judged["problems"][name]), tuple(map(str, judged["faults"].get(name, ()))), steps=steps)
        except (IndexError, KeyError, TypeError, AttributeError, ValueError):
            raise ValueError(f"expected one JSON object on the last line, got {printed[-500:]!r}") from None

    def refusal(self, answer: Answer) -> str:
        """Return the words of the parser with file, line and field of each argument at fault."""
        read = overlay.read(self.recipe.file)
        overlay.apply(read, self.recipe.changes)
        named = [flag for flag in self.recipe.serve.args if answer.steps and flag.replace("-", "_") in answer.problem]
        places = [self._place(flag) for flag in (*answer.faults, *named)]
        places = places or [("model", "id") if answer.steps else ("serve", "args")]
        return "\n".join(str(read.fail(place, answer.problem)) for place in dict.fromkeys(places))

    def _place(self, flag: str) -> Location:
        """Return the key of the recipe that a flag comes from; `serve` for one that sparkops adds."""
        args = self.recipe.serve.args
        key = next((name for name in (flag, flag.removeprefix("no-")) if name in args), "")
        return ("serve", "args", key) if key else ("serve",)


@dataclass(frozen=True)
class Answer:
    """The answer of a parser: its reason to refuse, empty if it accepts, and the flags at fault."""

    problem: str = ""
    faults: tuple[str, ...] = ()
    unjudged: str = ""
    """Why it could not judge; empty if it did. Such an image is not refused: its engine may start."""
    steps: Mapping[str, str] = field(default_factory=dict)
    """What the engine built from the model's files: each step, and why it could not be judged; empty without them."""

    @property
    def verdict(self) -> GateVerdict:
        """The verdict of the gate."""
        if self.unjudged:
            return GateVerdict("arguments", ok=True, found=f"not checked: {self.unjudged}", expected=ACCEPTED)
        cause = "the engine would end at its start" if self.problem else ""
        return GateVerdict("arguments", not self.problem, self.problem or ACCEPTED, ACCEPTED, cause)


def of(recipe: Recipe, script: bytes) -> Arguments | None:
    """Return what to ask the parser of a recipe's image; None for an engine without such a script (empty)."""
    return Arguments(recipe, script) if script else None


def command_lines(recipe: Recipe) -> list[list[str]]:
    """Return the arguments of the engine's program on each rank that starts it; in a Ray cluster that is rank 0."""
    size, program = recipe.serve.ranks, ENGINES[recipe.engine].program
    starting = range(size if recipe.serve.executor == "mp" else 1)
    release = Release(recipe, "0" * 64)
    lines = []
    for index in starting:
        rank = Rank(release, Slot.BLUE, f"n{index}", index)
        started = ranks.program(rank, "/models", SEAT if size > 1 else None)
        before = 0 if started.entrypoint == program else started.arguments.index(program) + 1
        lines.append(list(started.arguments[before:]))
    return lines
