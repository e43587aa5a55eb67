"""Hook of the wheel's build: packs what is no module of the operator's program into two archives.

A wheel compresses each file alone, so that these files would take more than twice the bytes.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ARCHIVES = {
    "recipes": ("recipes/**/*.yaml", "recipes/**/*.lock"),
    "programs": ("templates/**/*", "sparkops/guard/**/*.py"),
}
"""By name, the patterns of their files. Completion of a shell reads the first one only, which is small."""


class ShippedFiles(BuildHookInterface):
    """Adds the archives to the wheel; sparkops/config/shipped.py reads them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # the checkout has the files
            return
        self.scratch = tempfile.TemporaryDirectory()
        for name, patterns in ARCHIVES.items():
            archive = Path(self.scratch.name) / f"{name}.json.xz"
            archive.write_bytes(packed(Path(self.root), patterns))
            build_data["force_include"][str(archive)] = f"sparkops/shipped/{archive.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - of the interface
        if version != "editable":
            self.scratch.cleanup()


def packed(root: Path, patterns: Iterable[str]) -> bytes:
    """Return an archive: JSON of texts by their path, so that its bytes depend on the texts alone."""
    found = sorted(file for pattern in patterns for file in root.glob(pattern) if file.is_file())
    files = [file for file in found if "__pycache__" not in file.parts]
    texts = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}
    return lzma.compress(json.dumps(texts, ensure_ascii=False).encode())
