"""Compare a built image with its recipe's lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkops.config.lock import Lock
from sparkops.engines.image_facts import GateVerdict, ImageFacts

SHOWN = 5
OTHER_PARENT = (
    "the base image differs from the locked one; load that one on the node, or run `sparkops recipe lock --update`"
)
OTHER_PACKAGES = "a mod, or an installation without UV_CONSTRAINT, changed installed packages"
OTHER_TORCH = "another build of the locked version; check its index"


def verdicts(lock: Lock, facts: ImageFacts, layers: Sequence[str]) -> Iterator[GateVerdict]:
    """Compare an image with its lock. `layers`: the digests of its own layers, the lowest first."""
    parent = lock.parent.layers
    if parent:
        below = list(layers[: len(parent)]) == parent
        measured = "its layers" if below else "other layers"
        expected = f"the layers of {lock.parent.name}"
        yield GateVerdict("locked base", below, measured, expected, "" if below else OTHER_PARENT)
    if lock.packages:
        differing = sorted({package.lower() for package in lock.packages} - set(facts.packages))
        more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
        missing = f"missing: {', '.join(differing[:SHOWN])}{more}"
        measured = missing if differing else f"{len(lock.packages)} as locked"
        yield GateVerdict(
            "locked packages", not differing, measured, "all as locked", OTHER_PACKAGES if differing else ""
        )
    if lock.contents:
        yield _torch(lock, facts)


def _torch(lock: Lock, facts: ImageFacts) -> GateVerdict:
    locked = lock.contents
    torch = _triple(facts.torch.version, facts.cuda, facts.archs)
    expected = _triple(locked.torch, locked.cuda, locked.archs) if locked else ""
    same = torch == expected
    return GateVerdict("locked torch", same, torch, expected, "" if same else OTHER_TORCH)


def _triple(version: str, cuda: str | None, archs: Sequence[str]) -> str:
    return f"{version}, CUDA {cuda or 'none'}, for {' '.join(archs) or 'no GPU'}"
