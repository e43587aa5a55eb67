"""A built image, compared with its recipe's lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkops.config.lock import Lock
from sparkops.images.gate import GateVerdict, ImageFacts

SHOWN = 5
OTHER_PARENT = (
    "the image that FROM names is another one than when it was locked; give the node that one, or run "
    "`sparkops lock --update`"
)
OTHER_PACKAGES = "something changed what uv had installed: a mod, or an installation that did not see UV_CONSTRAINT"
OTHER_TORCH = "it has the locked version and is another build of it; see from which index it came"


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
        missing = f"not there: {', '.join(differing[:SHOWN])}{more}"
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
