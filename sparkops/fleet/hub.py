"""A model from its hub to one node, by the hub's own library, in a container that has it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkops.commands import models as commands
from sparkops.commands.docker import model_dir
from sparkops.config import programs
from sparkops.config.model import Weights
from sparkops.errors import NodeError, NotReady
from sparkops.facts import hub
from sparkops.facts.checkpoint import Checkpoint, ModelDirectory
from sparkops.fleet import models, transfer
from sparkops.fleet.connected import Member
from sparkops.fleet.meter import Meter
from sparkops.fleet.progress import Event, Tell
from sparkops.plan import models as planning


@dataclass(frozen=True)
class Hub:
    """How to fetch: the image that has the hub's library, a token or no text, another hub's URL or no text.

    `replace`: also a whole directory of that name that is known to be another model.
    """

    image: str
    token: str = field(default="", repr=False)
    endpoint: str = ""
    replace: bool = False


def pull(member: Member, weights: Weights, source: Hub, tell: Tell) -> Checkpoint:
    """Fetch a model to a node. What is there already, whole and right, is left alone. Raises NodeError."""
    there = models.room(member, weights.path)
    own = there.checkpoints.get(weights.path)
    if own and not any(planning.refused(planning.fetched(weights), own)):
        tell(Event(member.name, f"{weights.path} is there already"))
        return own
    models.refuse_to_lose(member, planning.fetched(weights), there, replace=source.replace)
    if member.engine.image(source.image) is None:
        step = "Build the recipe's image there, or name another one that has huggingface_hub with --image."
        raise NotReady(member.name, f"it does not have the image {source.image}", next_step=step)
    tell(Event(member.name, f"fetching {weights.id}"))
    _fetch(member, weights, source, there, tell)
    fetched = models.publish(member, weights.path)
    tell(Event(member.name, f"{weights.path} is complete"))
    return fetched


def _fetch(member: Member, weights: Weights, source: Hub, there: ModelDirectory, tell: Tell) -> None:
    where = model_dir(member.config)
    inside = commands.container(where, source.image, (there.user, there.group), network="host", task="pull")
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
