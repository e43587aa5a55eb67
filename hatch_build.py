"""Hook of the wheel's build: recipes as files; what only images and nodes run, and the locks, in one archive.

A wheel compresses each file alone, so that these files take more than twice the bytes of the archive.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIPPED = "sparkops/shipped"
ARCHIVE = f"{SHIPPED}/files.json.xz"


class ShippedFiles(BuildHookInterface):
    """Adds recipes and the archive to the wheel; sparkops/config/shipped.py reads it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # the checkout has the files
            return
        root = Path(self.root)
        recipes = {str(file): f"{SHIPPED}/{file.relative_to(root)}" for file in sorted(root.glob("recipes/**/*.yaml"))}
        texts = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in packed(root)}
        build_data["force_include"] |= {**recipes, self._written(texts): ARCHIVE}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - of the interface
        if version != "editable":
            self.scratch.cleanup()

    def _written(self, texts: dict[str, str]) -> str:
        """Write the archive, whose bytes depend on the texts alone, and return its path."""
        self.scratch = tempfile.TemporaryDirectory()
        archive = Path(self.scratch.name) / "files.json.xz"
        archive.write_bytes(lzma.compress(json.dumps(texts, ensure_ascii=False).encode()))
        return str(archive)


def packed(root: Path) -> Iterator[Path]:
    """Yield the files of the archive: templates, the guard, which runs in its image only, and the locks."""
    yield from sorted(file for file in (root / "templates").rglob("*") if file.suffix != ".pyc" and file.is_file())
    yield from sorted((root / "sparkops/guard").rglob("*.py"))
    yield from sorted((root / "recipes").rglob("*.lock"))
