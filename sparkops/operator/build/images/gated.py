"""The operator's record of what passed its gate: a node that was taken over later cannot send another image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparkops.config.inventory import Fleet
from sparkops.errors import ImageRejected, SparkopsError

NAME = "gated-images"
"""Beside the inventory, like known_hosts: lines of a tag and a content, which `image_content` defines."""


@dataclass(frozen=True)
class GatedImages:
    """Contents by tag. Each build has its own, so a tag may have several. An image ID would not do.

    Docker's own store and containerd's have different IDs for one image; the digest of layers and settings is the same.
    """

    file: Path

    def contents(self, tag: str) -> frozenset[str]:
        """Return the known contents of a tag. Raises SparkopsError for a file that cannot be read."""
        try:
            lines = self.file.read_text().splitlines()
        except FileNotFoundError:
            return frozenset()
        except (OSError, UnicodeDecodeError) as error:
            raise SparkopsError(f"{self.file}: cannot be read: {error}") from None
        known = (line.split() for line in lines)
        return frozenset(words[1] for words in known if len(words) == 2 and words[0] == tag)

    def add(self, tag: str, content: str) -> None:
        """Note what has passed its gate. One short line, so that commands at once keep each other's. Raises
        SparkopsError.
        """
        if content in self.contents(tag):
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a") as file:
                file.write(f"{tag} {content}\n")
        except OSError as error:
            raise SparkopsError(f"{self.file}: cannot be written: {error}") from None

    def require(self, tag: str, content: str, node: str) -> bool:
        """Require that a node sends what passed the gate. Returns whether it did not know the tag, and notes it.

        Raises ImageRejected for another content.
        """
        known = self.contents(tag)
        if known and content not in known:
            expected = " or ".join(sorted(item[:12] for item in known))
            problem = (
                f"{tag} is another image than the one that passed its gate: content {content[:12]}, expected {expected}"
            )
            step = (
                f"If nobody built it from another machine, take {node} for compromised. Otherwise remove the lines of "
                f"{tag} from {self.file}, then retry."
            )
            raise ImageRejected(node, problem, next_step=step)
        self.add(tag, content)
        return not known


def of(fleet: Fleet) -> GatedImages:
    return GatedImages(fleet.resolve(NAME))
