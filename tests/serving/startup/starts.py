"""The starts of tests/captured/starts with the truth about each, and the verdict of sparkops on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

STARTS = Path(__file__).parents[2] / "captured" / "starts"
WORK, JUDGED = "work", "judged"


@dataclass(frozen=True)
class Start:
    """One start with the truth about it; README.md of tests/captured/starts explains the keys."""

    truth: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.truth["log"])

    @property
    def half(self) -> str:
        """The half that it belongs to, by a hash of its source: JUDGED is looked at once, at the end."""
        stated = self.truth.get("half")
        first = hashlib.sha256(str(self.truth.get("source", self.name)).encode()).digest()[0]
        return str(stated) if stated else (JUDGED if first % 2 else WORK)

    @property
    def files(self) -> Sequence[Path]:
        """The log of each rank; the output of Docker is one file."""
        own = [
            STARTS / f"{self.name}{ending}" for ending in (".log", ".txt") if (STARTS / f"{self.name}{ending}").exists()
        ]
        return own or sorted(STARTS.glob(f"{self.name}.rank*.log"))

    @property
    def root_file(self) -> Path:
        """The log with the root."""
        rank = self.truth.get("root_rank", 0)
        return next((file for file in self.files if f".rank{rank}." in file.name), self.files[0])

    def is_root(self, line: str) -> bool:
        """Return whether a line is the root, or one that the truth calls as good."""
        shown = " ".join(line.split())
        return any(" ".join(text.split()) in shown for text in (self.truth["root"], *self.truth.get("also", ())))

    def says(self, key: str, text: str) -> bool:
        """Return whether a text means what `key`_words ask for: one word of each group, whatever its case."""
        said = text.lower()
        return all(any(word.lower() in said for word in group) for group in self.truth[f"{key}_words"])

    def is_wrong(self, cause: str) -> bool:
        """Return whether a cause is another one than the truth's."""
        denied = any(word.lower() in cause.lower() for word in self.truth.get("not_words", ()))
        return bool(cause) and (denied or not self.says("cause", cause))


def load() -> Iterator[Start]:
    """Yield every start, by the file of its truth."""
    for file in sorted((STARTS / "truth").glob("*.yaml")):
        yield from (Start(truth) for truth in yaml.safe_load(file.read_text()))
