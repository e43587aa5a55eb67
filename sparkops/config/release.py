"""Releases and ranks, with all their names, tags, labels and ports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sparkops import __version__
from sparkops.config.recipe import Recipe
from sparkops.names import INPUTS, LABEL, Slot

TAGS, CANDIDATES = "sparkops/", "sparkops-candidate/"
TRUSTED, CACHES = "sparkops-trusted-", "sparkops-cache-"
SHORT = 12  # hex digits of a digest in names and tags: 48 bits
DECIDING = {"service", "engine", "model", "serve"}  # the image is known by its inputs
# Keys of a recipe's model that do not change what the engine reads: sizes, and files that are not downloaded.
NOT_DECIDING: dict[str, Any] = {
    "size_gb": True,
    "exclude": True,
    "sources": {"__all__": {"size_gb", "exclude"}},
    "steps": {"__all__": {"disk_gb"}},
}


@dataclass(frozen=True)
class Release:
    """A recipe with the image made from `inputs` (a sha256) and the model revision. Immutable."""

    recipe: Recipe
    inputs: str

    @cached_property
    def id(self) -> str:
        """Recipe name and ten hex digits over all that decides how the release behaves.

        Descriptions, probes and placement may change without making another release. Defaults are left out: a new key
        changes no release that does not use it.
        """
        beside: dict[str, Any] = {"model": NOT_DECIDING, "serve": {"allow", "replicas", "sticky"}}
        identity = self.recipe.model_dump(mode="json", include=DECIDING, exclude=beside, exclude_defaults=True)
        if not identity.get("serve", True):
            del identity["serve"]  # nothing but these
        text = json.dumps({**identity, "inputs": self.inputs}, sort_keys=True)
        return f"{self.recipe.name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    @property
    def service(self) -> str:
        """The name that clients call."""
        return self.recipe.service

    @property
    def image(self) -> str:
        """Tag of the image. It exists on a node only after the image passed its gates there."""
        return image_tag(self.recipe.engine, self.inputs)

    @property
    def images(self) -> tuple[str, str]:
        """Tags that the image may have: its own, and the one of sparkops 0.2, which had the recipe's name."""
        return self.image, image_tag(self.recipe.name, self.inputs)


def image_tag(name: str, inputs: str) -> str:
    """Return sparkops/NAME:DIGEST; the same inputs give the same tag on every machine.

    `name`: the engine of recipes, which share an image if their inputs are the same, or the agent.
    """
    return f"{TAGS}{name}:{inputs[:SHORT]}"


def candidate_tag(name: str, inputs: str) -> str:
    """Return the tag of an image that was built and has not passed its gates yet."""
    return f"{CANDIDATES}{name}:{inputs[:SHORT]}"


def trust_mark(tag: str, image: str) -> str:
    """Return the name of the volume that proves that sparkops gave `tag` to the image ID `image` on a node.

    A volume, because a tag or label can come with any tar that Docker loads.
    """
    name, _, digest = tag.rpartition("/")[2].partition(":")
    return f"{TRUSTED}{name}-{digest}-{image.partition(':')[2]}"


def image_labels(recipe_name: str, inputs: str) -> dict[str, str]:
    """Return the labels of an image. Other recipes may use it too: the name is that of the first."""
    return {f"{LABEL}recipe": recipe_name, INPUTS: inputs, f"{LABEL}version": __version__}


def mod_labels(outcomes: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of an image with the outcome of each mod: applied, or already present."""
    return {f"{LABEL}mod.{name}": outcome for name, outcome in sorted(outcomes.items())}


def content_labels(torch: str, cuda: str | None, packages: str) -> dict[str, str]:
    """Return the labels of an image with its contents: torch and its CUDA, and a digest over all packages."""
    version = f"{torch} for CUDA {cuda}" if cuda else torch
    return {f"{LABEL}torch": version, f"{LABEL}packages": packages} if torch else {f"{LABEL}packages": packages}


def peer_labels(peers: Sequence[str], ssh_port: int) -> dict[str, str]:
    """Return the labels for the firewall of a rank of several nodes: the addresses of all, and its node's SSH port."""
    return {f"{LABEL}peers": ",".join(peers), f"{LABEL}ssh-port": str(ssh_port)} if peers else {}


def installed(labels: Mapping[str, str]) -> str:
    """Return the contents in an image's labels as text; empty without such labels."""
    torch, packages = labels.get(f"{LABEL}torch"), labels.get(f"{LABEL}packages", "")
    return ", ".join([*([f"torch {torch}"] if torch else []), f"packages {packages[:SHORT]}"]) if packages else ""


def cache_volume(release: Release) -> str:
    """Return the name of the volume for what a recipe's engine compiles with one image."""
    return f"{CACHES}{release.recipe.name}-{release.inputs[:SHORT]}"


@dataclass(frozen=True)
class Rank:
    """One container of a replica. Rank 0 answers requests.

    `generation` is the attempt to start several ranks: only the ranks of one attempt belong together.
    """

    release: Release
    slot: Slot
    node: str
    index: int = 0
    generation: str = ""
    callers: tuple[str, ...] | None = None
    """IP addresses that may connect to the HTTP port from other nodes. None: every address; empty: loopback only."""

    @property
    def size(self) -> int:
        """Ranks of the replica."""
        return self.release.recipe.serve.ranks

    @property
    def container(self) -> str:
        """Name of the container, with its release, so that two releases never clash."""
        return f"{self.release.id}-{self.slot}-r{self.index}"

    @property
    def port(self) -> int:
        """HTTP port of the engine: that of the service at the gateway and one more for blue, two more for green."""
        return self.release.recipe.serve.port + self._place

    @property
    def rendezvous_port(self) -> int:
        """Port of rank 0 where the ranks of a replica connect: after the HTTP ports of both slots, one for each."""
        return self.release.recipe.serve.port + self._place + 2

    @property
    def _place(self) -> int:
        return 1 if self.slot is Slot.BLUE else 2

    @property
    def labels(self) -> dict[str, str]:
        """The identity of the container. Its role is not a label: traffic moves without a new container."""
        callers = {} if self.callers is None else {f"{LABEL}callers": ",".join(self.callers)}
        several = {
            f"{LABEL}ranks": str(self.size),
            f"{LABEL}generation": self.generation,
            f"{LABEL}meeting-port": str(self.rendezvous_port),
        }
        return {
            f"{LABEL}service": self.release.service,
            f"{LABEL}release": self.release.id,
            f"{LABEL}recipe": self.release.recipe.name,
            f"{LABEL}slot": self.slot.value,
            f"{LABEL}rank": str(self.index),
            f"{LABEL}port": str(self.port),
            f"{LABEL}claim-gib": f"{self.release.recipe.memory.claim_gib:g}",
            INPUTS: self.release.inputs,
            f"{LABEL}version": __version__,
            **(several if self.size > 1 else {}),
            **callers,
        }


def name_of(tag: str) -> str:
    """Return the engine, or the agent, in an image's tag: NAME of sparkops/NAME:DIGEST."""
    return tag.rpartition(":")[0].rpartition("/")[2]


def recipe_named(release: str) -> str:
    """Return the recipe in the ID of a release."""
    return release.rpartition("-")[0]
