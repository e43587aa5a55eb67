"""A model from its hub to one node, by the hub's own library, in an image that holds nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sparkops.commands import docker
from sparkops.commands import models as commands
from sparkops.commands.docker import model_dir
from sparkops.config import programs
from sparkops.config.assets import BuildInputs
from sparkops.config.model import Weights
from sparkops.errors import NodeError, UsageError
from sparkops.facts import hub
from sparkops.facts.checkpoint import Checkpoint, ModelDirectory
from sparkops.fleet import models, transfer
from sparkops.fleet.build import Gate, Order, build_on
from sparkops.fleet.connected import Member
from sparkops.fleet.meter import Meter
from sparkops.fleet.progress import Event, Tell
from sparkops.plan import models as planning
from sparkops.render import hub as render

ASK = b"import huggingface_hub; huggingface_hub.HfApi"
"""What shows that an image can fetch."""


@dataclass(frozen=True)
class Hub:
    """How to fetch: the image that has the hub's library, a token or no text, another hub's URL or no text.

    `replace`: also a whole directory of that name that is known to be another model. Raises UsageError for a token
    that would be sent without encryption.
    """

    order: Order
    token: str = field(default="", repr=False)
    endpoint: str = ""
    replace: bool = False

    def __post_init__(self) -> None:
        if self.token and self.endpoint and urlsplit(self.endpoint).scheme != "https":
            problem = f"--endpoint: the token would be sent unencrypted to {self.endpoint}, expected https://"
            raise UsageError(problem, next_step="Use the https:// URL of the mirror, or leave out --token-file.")


def order(templates: Mapping[str, str], requirements: bytes, inputs: BuildInputs, image: str = render.IMAGE) -> Order:
    """Return what to build for the container that fetches, on the base `image`."""
    context = render.hub_context(templates, requirements, inputs, image)
    return Order(render.NAME, context, render.DISK_GIB, Gate(lambda image: docker.ask_image(image, ASK)))


def pull(member: Member, weights: Weights, source: Hub, tell: Tell) -> Checkpoint:
    """Fetch a model to a node. What is there already, whole and right, is left alone. Raises NodeError."""
    there = models.room(member, weights.path)
    own = there.checkpoints.get(weights.path)
    if own and not any(planning.refused(planning.fetched(weights), own)):
        tell(Event(member.name, f"{weights.path} is there already"))
        return own
    models.refuse_to_lose(member, planning.fetched(weights), there, replace=source.replace)
    image = build_on(member, source.order, tell).image
    tell(Event(member.name, f"fetching {weights.id}"))
    _fetch(member, image, weights, source, there, tell)
    fetched = models.publish(member, weights.path)
    tell(Event(member.name, f"{weights.path} is complete"))
    return fetched


def _fetch(member: Member, image: str, weights: Weights, source: Hub, there: ModelDirectory, tell: Tell) -> None:
    where = model_dir(member.config)
    inside = commands.container(where, image, (there.user, there.group), network="host", task="pull")
    command = commands.pull(programs.load(*programs.PULL), inside, weights, source.token, source.endpoint)
    meter: Meter | None = None
    end: hub.Fetched | hub.Failure | None = None

    def heard(line: str) -> None:
        nonlocal meter, end
        match hub.parse(line, anonymous=not source.token):
            case hub.Progress(done, total):
                meter = meter or Meter(tell, member.name, f"fetching {weights.id}", total, at=done)
                meter(done)
            case hub.Fetched() | hub.Failure() as said:
                end = said
            case None:
                pass

    transfer.attended(member, command, heard)
    if isinstance(end, hub.Failure):
        raise NodeError(member.name, f"{weights.id}: {end.problem}", next_step=end.next_step)
    if end is None:
        raise NodeError(member.name, f"{weights.id}: the download ended without a word", next_step="Run it again.")
