"""What a run did and measured, written after every step, so that an interrupted run leaves its report."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.places import ROOT

CHECKOUT = ROOT
SECRETS = (
    (re.compile(re.escape(f"{CHECKOUT}/")), ""),
    (re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), r"\1-(scrubbed)"),
    (
        re.compile(r"(Serial Number|Board Part Number|GPU UUID|GPU Part Number|Minor Number)(\s*:).*"),
        r"\1\2 (scrubbed)",
    ),
    (re.compile(r"(serial|uuid)(\W{1,4})(?!N/A)[0-9A-Fa-f-]{8,}", re.IGNORECASE), r"\1\2(scrubbed)"),
)
HEAD = (
    "# Run on {title}\n\nWritten by `make gpu`. No Spark was used: these GPUs have memory of their own. "
    "Commands and keys are\nthose of the version below.\n"
)


def scrubbed(text: str) -> str:
    """Return a text without serial numbers and UUIDs of GPUs, and without the path of the checkout."""
    for pattern, instead in SECRETS:
        text = pattern.sub(instead, text)
    return text


@dataclass
class Step:
    """One step: its command, how it ended, and figures."""

    title: str
    command: str = ""
    result: str = "running"
    took_s: float = 0.0
    figures: list[str] = field(default_factory=list)


@dataclass
class Evidence:
    """The report of a run at `file`; outputs go to `logs`."""

    file: Path
    logs: Path
    title: str
    facts: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def fact(self, name: str, value: str) -> None:
        """Note what this run ran on."""
        self.facts[name] = value.strip()
        self.write()

    @contextmanager
    def step(self, title: str, argv: Sequence[str] = ()) -> Iterator[Step]:
        """Note a step with its time; one that raises is noted with the first line of its error."""
        step = Step(title, shlex.join(argv))
        self.steps.append(step)
        began = time.monotonic()
        try:
            yield step
            step.result = "passed" if step.result == "running" else step.result
        except BaseException as error:
            step.result = f"failed: {brief(str(error) or repr(error))}"
            raise
        finally:
            step.took_s = time.monotonic() - began
            self.write()

    def keep(self, name: str, text: str) -> None:
        """Write an output to the directory of logs, scrubbed."""
        self.logs.mkdir(parents=True, exist_ok=True)
        (self.logs / name).write_text(scrubbed(text))

    def write(self) -> None:
        """Write the report as it is now."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(scrubbed(self.text()))

    def text(self) -> str:
        """Return the report as Markdown."""
        facts = [f"| {name} | {cell(value)} |" for name, value in self.facts.items()]
        steps = [
            f"| {cell(step.title)} | {cell(step.result)} | {step.took_s:.1f} | {cell('; '.join(step.figures))} |"
            for step in self.steps
        ]
        commands = [f"{step.command}  # {step.title}" for step in self.steps if step.command]
        parts = (
            HEAD.format(title=self.title),
            "\n".join(("| fact | value |", "| --- | --- |", *facts)),
            "\n## Steps\n",
            "\n".join(("| step | result | seconds | figures |", "| --- | --- | --- | --- |", *steps)),
            "\n## Commands\n",
            "\n".join(("```console", *commands, "```")),
        )
        return "\n".join(parts) + "\n"


def cell(text: str) -> str:
    """Return a text that stays in one cell of a table."""
    return " ".join(text.replace("|", "\\|").split())


def brief(text: str, most: int = 300) -> str:
    """Return the first line of an error; the rest is in the logs."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= most else f"{line[: most - 3]}..."
