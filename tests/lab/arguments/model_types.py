"""Compare the model types that import knows with the wheels: `python -m tests.lab.arguments.model_types`.

Fails on a difference. Only the classes that read config.json are compared (vllm/transformers_utils/config.py,
transformers/models/auto), not those of the model itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from sparkops.operator.convert.releases import RELEASES, TYPES, Release, loads
from tests.lab.wheels import remote

CLASS = re.compile(r"""["(]?([\w.-]+)["']?(?:, |: |=)["']\w*Config["']""")
"""A model type and the class that reads its configuration, in each form of the two packages."""
FILES = {
    "vllm": r"vllm/transformers_utils/config\.py",
    "transformers": r"transformers/models/auto/.*auto.*",
}


def types(package: str, version: str) -> set[str]:
    """Return the model types whose configuration a package reads. Raises OSError if the index has no such wheel."""
    wheel = remote.find(f"{package}=={version}", "aarch64")
    if wheel is None:
        raise OSError(f"{package} {version}: not in the index")
    names = [name for name in wheel.archive.namelist() if re.fullmatch(FILES[package], name)]
    return {found for name in names for found in CLASS.findall(wheel.archive.read(name).decode())}


def differences(release: Release) -> Iterator[str]:
    """Yield each type that a release should load by the table, and whose configuration neither package reads."""
    known = types("vllm", release.version) | types("transformers", release.transformers)
    for model_type in TYPES:
        if model_type.config and loads(release, model_type) and model_type.type not in known:
            yield f"vLLM {release.version} with Transformers {release.transformers} has no {model_type.type}"


if __name__ == "__main__":
    found = [line for release in RELEASES for line in differences(release)]
    print("\n".join(found) or f"{len(TYPES)} model types: as in the wheels")
    sys.exit(bool(found))
