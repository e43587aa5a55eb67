"""What `uv pip compile --generate-hashes` answered."""

from __future__ import annotations

import re

ENTRY = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;]+)")
HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


def parse(printed: str) -> dict[str, list[str]]:
    """Each package as name==version, and the hashes of its files, in order. Raises ValueError for anything else."""
    hashed = {}
    for line in re.sub(r"\\\n", " ", printed).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        entry = ENTRY.match(line)
        hashes = sorted(HASH.findall(line))
        if entry is None or not hashes:
            raise ValueError(f"expected name==version with its hashes, got {line[:120]!r}")
        hashed[f"{entry['name']}=={entry['version']}"] = hashes
    return dict(sorted(hashed.items()))
