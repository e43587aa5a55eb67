"""Whether a built image is what its recipe's lock says."""

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


def held(lock: Lock, facts: ImageFacts, layers: Sequence[str]) -> Iterator[GateVerdict]:
    """Compare an image with its lock. `layers`: the digests of its own layers, the lowest first."""
    parent = lock.parent.layers
    if parent:
        below = list(layers[: len(parent)]) == parent
        found = "its layers" if below else "other layers"
        yield GateVerdict(
            "locked base", below, found, f"the layers of {lock.parent.name}", "" if below else OTHER_PARENT
        )
    if lock.packages:
        differing = sorted({package.lower() for package in lock.packages} - set(facts.packages))
        found = f"{len(lock.packages)} as locked" if not differing else f"not there: {_few(differing)}"
        yield GateVerdict("locked packages", not differing, found, "all as locked", OTHER_PACKAGES if differing else "")
    if lock.contents:
        yield _torch(lock, facts)


def _torch(lock: Lock, facts: ImageFacts) -> GateVerdict:
    then = lock.contents
    torch = _triple(facts.torch.version, facts.cuda, facts.archs)
    expected = _triple(then.torch, then.cuda, then.archs) if then else ""
    same = torch == expected
    return GateVerdict("locked torch", same, torch, expected, "" if same else OTHER_TORCH)


def _triple(version: str, cuda: str | None, archs: Sequence[str]) -> str:
    return f"{version}, CUDA {cuda or 'none'}, for {' '.join(archs) or 'no GPU'}"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
