"""A verb for its --help alone: its text and options come from help.json, so that neither it nor its work is imported.

`python -m tests.docs.help_file` writes the file from the verbs.
"""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

FILE = Path(__file__).with_name("help.json")
ASKED = (["--help"], ["-h"])
"""Words behind a verb that ask for nothing but its help; with others the verb itself reads them."""


class Described(TyperCommand):
    """A command that can print its help, and nothing else."""

    def __init__(self, name: str, words: str) -> None:
        self.page = loads(FILE.read_text(encoding="utf-8"))[words]
        super().__init__(name, help=self.page["help"], rich_markup_mode=None)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the parts of the usage line behind the verb."""
        return [*self.page["usage"]]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's signature
        """Write arguments and options."""
        for title, rows in self.page["sections"].items():
            with formatter.section(title):
                formatter.write_dl([(name, meaning) for name, meaning in rows])
