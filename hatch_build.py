"""Hook of the wheel's build: recipes as files, their locks in one archive, which is a sixth of their size as files."""

from __future__ import annotations

import json
import lzma
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIPPED = "sparkops/shipped"
LOCKS = f"{SHIPPED}/locks.json.xz"


class LockArchive(BuildHookInterface):
    """Adds recipes and locks to the wheel; sparkops/config/shipped.py reads the archive."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # the checkout has the files
            return
        root = Path(self.root)
        files = sorted(file for file in (root / "recipes").rglob("*") if file.is_file())
        locks = {file.relative_to(root / "recipes").as_posix(): file for file in files if file.suffix == ".lock"}
        include = build_data["force_include"]
        include |= {str(file): f"{SHIPPED}/{file.relative_to(root)}" for file in files if file not in locks.values()}
        include[self._written({name: file.read_text() for name, file in locks.items()})] = LOCKS

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - of the interface
        if version != "editable":
            self.scratch.cleanup()

    def _written(self, locks: dict[str, str]) -> str:
        """Write the archive, whose bytes depend on the locks alone, and return its path."""
        self.scratch = tempfile.TemporaryDirectory()
        archive = Path(self.scratch.name) / "locks.json.xz"
        archive.write_bytes(lzma.compress(json.dumps(locks).encode()))
        return str(archive)
