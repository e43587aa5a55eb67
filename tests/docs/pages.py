"""The pages of this project, read as Markdown: links, commands and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.places import ROOT

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:    .+\n)(?:(?:    .+)?\n)*")
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)|<(https?://[^>\s]+)>|^\[[^\]]+\]: (\S+)$", re.MULTILINE)
LABEL = re.compile(r"\]\[(\w+)\]")
DEFINED = re.compile(r"^\[([^\]]+)\]: ", re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """A Markdown file, by its path in the checkout."""

    name: str

    @property
    def file(self) -> Path:
        """Path of the file."""
        return ROOT / self.name

    @property
    def text(self) -> str:
        """Content without comments of HTML."""
        return re.sub(r"<!--.*?-->", "", self.file.read_text(), flags=re.DOTALL)

    @property
    def prose(self) -> str:
        """Content without blocks of code."""
        return INDENTED.sub("", FENCE.sub("", self.text))

    def links(self) -> list[str]:
        """Return the targets of all links."""
        return [target for groups in LINK.findall(self.prose) for target in groups if target]

    def anchors(self) -> set[str]:
        """Return the anchor of each heading, as GitHub makes it."""
        titles = (title.replace("`", "").lower() for title in HEADING.findall(self.prose))
        return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}

    def lines(self) -> Iterator[str]:
        """Yield each line of each block of code."""
        for block in (*FENCE.findall(self.text), *INDENTED.findall(FENCE.sub("", self.text))):
            yield from (line.strip() for line in block.splitlines() if not line.startswith("```"))

    def spans(self) -> Iterator[str]:
        """Yield each span of code in the prose."""
        yield from (" ".join(span.split()) for span in SPAN.findall(self.prose))


def _names() -> Iterator[str]:
    for file in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        yield str(file.relative_to(ROOT))


PAGES = [Page(name) for name in _names()]
