"""The `spec` of a rank, from which a guard creates and starts an engine without the operator's files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from pydantic import BaseModel, ConfigDict, PrivateAttr

from sparkops.command import Command
from sparkops.config.node import NodeConfig
from sparkops.config.recipe import Recipe
from sparkops.config.release import Rank, Release
from sparkops.engines.launch import Seat
from sparkops.names import LABEL, Slot
from sparkops.node.docker import commands
from sparkops.node.network.commands import RDMA_OPTIONS
from sparkops.swap.model import Deployment, RankSpec

HEAD_GRACE_S, WORKER_GRACE_S = 5, 3
"""Longest grace in seconds of rank 0 and of the other ranks of a replica on several nodes. vLLM finishes no request
after SIGTERM, and Ray's ranks wait for each other: 44 s for both (vLLM 0.23.0, Ray 2.60.0 on two H100s)."""
LOAD_GRACE_S = 5
"""Longest grace in seconds of an engine that has not answered yet: it has no request to finish. Without this limit one
ran for at least 56 s of its `stop_grace_s` of 60 s (vLLM 0.23.0, docs/evidence/gpu-h100.md)."""
SPEC_LABEL = f"{LABEL}spec"
"""Label of a container: the digest of the spec that it was created from."""
NAMED = 16  # digits of a token's digest in its name
IMAGE_ID = re.compile("sha256:[0-9a-f]{64}")


class EngineSpec(BaseModel):
    """One rank: recipe, image, and settings of its node and network. Equal texts create equal engines."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: dict[str, Any]
    inputs: str
    """Digest of what the image was built from."""
    image: str
    """ID of the image, sha256:..., so that a moved tag changes nothing."""
    slot: Slot
    index: int
    address: str
    """Address of the node for the leader and the gateway."""
    node: dict[str, Any]
    """The node's entry of the inventory."""
    jobs: int
    """Number of parallel compilers."""
    callers: tuple[str, ...] | None = None
    """IP addresses that may connect to the HTTP port. None: every address; empty: loopback only."""
    seat: Seat | None = None
    """The place of a rank of several in their network."""
    memory_gib: float | None = None
    """Limit of the container in GiB; None: no limit."""
    token: str = ""
    """Digest of the token of its Ray cluster, new at each deploy, so that no container keeps an earlier token."""
    changes: tuple[str, ...] = ()
    """The `--set` of its deploy, which `recipe` has: the next deploy of the recipe's file would lose them."""
    _text: str = PrivateAttr("")

    @property
    def ray(self) -> bool:
        """Whether it joins a Ray cluster, whose token its guard must have."""
        return self.seat is not None and self.parsed.serve.executor == "ray"

    @property
    def parsed(self) -> Recipe:
        """The recipe. Raises ValidationError for one of another version."""
        return Recipe.model_validate(self.recipe)

    @property
    def config(self) -> NodeConfig:
        return NodeConfig.model_validate(self.node)

    def require_readable(self) -> None:
        """Raise ValidationError where a recipe or the settings of a node are of another version."""
        Recipe.model_validate(self.recipe)
        NodeConfig.model_validate(self.node)

    def rank(self, node: str) -> Rank:
        release = Release(self.parsed, self.inputs)
        return Rank(release, self.slot, node, self.index, callers=self.callers)

    def create(self, node: str, paths: Collection[str] | None = None) -> Command:
        """Return the command that creates its container, labelled with the digest of the text it was read from.

        `paths`: the only directories, files and devices of the node that it may get; None: any. Raises ValueError for
        others, and for an image, addresses or options that could give it more rights than an engine's or break the
        firewall: the leader of another node may have sent the spec.
        """
        if not IMAGE_ID.fullmatch(self.image):
            raise ValueError(f"image: expected the ID of an image, sha256:..., got {self.image!r}")
        if more := set(self.seat.options if self.seat else ()) - {*RDMA_OPTIONS}:
            raise ValueError(f"seat: expected options among {', '.join(RDMA_OPTIONS)}, got {', '.join(sorted(more))}")
        if unnamed := commands.host_paths(self.config).difference(paths) if paths is not None else ():
            raise ValueError(
                f"node: {', '.join(sorted(unnamed))}: not in the inventory that this guard got: deploy again"
            )
        for address in (*(self.callers or ()), *(self.seat.peers if self.seat else ())):
            ip_address(address)
        command = commands.create(self.rank(node), self.config, self.image, self.jobs, self.seat, self.memory_gib)
        label = f"--label={SPEC_LABEL}={_sha256(self._text or self.model_dump_json())}"
        return replace(command, argv=(*command.argv[:2], label, *command.argv[2:]))


def of(rank: RankSpec) -> EngineSpec:
    """Read the spec of a rank. Raises ValueError if another version wrote it."""
    spec = EngineSpec.model_validate_json(rank.spec)
    spec._text = rank.spec  # this version may write the same values in another way
    return spec


def grace_s(index: int, ranks: int, stop_grace_s: int, *, loading: bool = False) -> int:
    """Return the seconds between SIGTERM and SIGKILL for a rank of a recipe with this `serve.stop_grace_s`.

    `loading`: the engine is known not to have answered yet.
    """
    if ranks == 1:
        return min(stop_grace_s, LOAD_GRACE_S) if loading else stop_grace_s
    return min(stop_grace_s, WORKER_GRACE_S if index else HEAD_GRACE_S)


def stop(rank: RankSpec) -> Command:
    """Return the command that stops its container. Raises ValueError if another version wrote the spec."""
    spec = of(rank)
    serve = spec.parsed.serve
    return commands.stop(rank.container, grace_s(spec.index, serve.ranks, serve.stop_grace_s))


def digest(rank: RankSpec) -> str:
    """Return the value of SPEC_LABEL on a container that was created from the spec of `rank`."""
    return _sha256(rank.spec)


def token_name(release: str, slot: Slot, digest: str) -> str:
    """Return the name under which a guard keeps a token of a release's Ray cluster: each deploy has its own.

    The token comes before the intent, which may be refused: it must not replace that of the engines that serve.
    """
    return f"ray-{release}-{slot}-{digest[:NAMED]}"


def deployed_tokens(deployment: Deployment) -> Iterator[str]:
    """Yield the names under which the tokens of a deployment are kept; none for a spec that cannot be read."""
    for rank in deployment.ranks:
        with suppress(ValueError):
            if token := of(rank).token:
                yield token_name(deployment.release, deployment.slot, token)


def token_digest(token: bytes) -> str:
    """Return the value of `EngineSpec.token` for a token."""
    return hashlib.sha256(token).hexdigest()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def rank_spec(spec: EngineSpec, node: str) -> RankSpec:
    """Return the rank that a swap orders from a guard."""
    rank = spec.rank(node)
    return RankSpec(node, rank.container, rank.release.recipe.memory.claim_gib, spec.model_dump_json())
