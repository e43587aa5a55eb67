"""The past starts and events that guards remember. Starts only make figures: without them a deploy goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from sparkops.config.recipe import Recipe
from sparkops.errors import SparkopsError
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.guarded import Link, linked
from sparkops.fleet.parallel import all_or_raise
from sparkops.fleet.progress import Event, Tell, silent
from sparkops.plan import history, pace
from sparkops.plan.journal import Mode
from sparkops.plan.pace import Forecast, Started
from sparkops.plan.startup import Watch
from sparkops.plan.swap import SwapPlan


@dataclass(frozen=True)
class Past:
    """What is remembered of releases like one. Without a guard nothing is, and an error of it is only told."""

    member: Member
    release: str
    recipe: Recipe
    inputs: str
    link: Link | None
    tell: Tell

    @property
    def kind(self) -> str:
        """What starts of its kind have in common."""
        return pace.kind(self.recipe, self.inputs)

    def forecast(self) -> Forecast | None:
        """How long a start takes here, as far as anything is known of it."""
        expected = self.recipe.expected.cold_start_s if self.recipe.expected else None
        return pace.forecast(self.release, self.kind, expected, _read(self._ask("starts") or ()))

    def learn(self, watch: Watch) -> None:
        """Remember a start that ended well."""
        started = pace.started(self.release, self.kind, watch)
        self._ask("started", started=started.model_dump(mode="json"))

    def _ask(self, op: str, **words: Any) -> Any:
        if self.link is None:
            return None
        try:
            return self.link.ask(op, self.recipe.service, **words)
        except SparkopsError as error:
            self.tell(Event(self.member.name, f"nothing is learnt from starts: {error}"))
            return None


def _read(records: Iterable[Any]) -> Iterator[Started]:
    for each in records:
        with suppress(ValidationError):  # another version of sparkops may remember other things
            yield Started.model_validate(each)


@contextmanager
def past(member: Member, release: str, recipe: Recipe, inputs: str, tell: Tell = silent) -> Iterator[Past]:
    """What the node's guard remembers, asked over one stream for as long as a start takes."""
    with linked(member) as link:
        yield Past(member, release, recipe, inputs, link, tell)


def events(connected: Connected, gateway: str, service: str, tell: Tell) -> list[history.Record]:
    """Read the events of a service from the gateway's guard, with those of other guards that saved evidence.

    Raises the error of the gateway's guard; an error of another one is reported.
    """

    def read(member: Member) -> list[history.Record]:
        with linked(member) as link:
            return list(link.ask("history", service)) if link else []

    outcomes = connected.on_each(read)
    for node, outcome in outcomes.items():
        if isinstance(outcome, SparkopsError) and node != gateway:
            tell(Event(node, f"history not read: {outcome}"))
    own = all_or_raise({gateway: outcomes.pop(gateway)})[gateway]
    return history.merge(own, (event for found in outcomes.values() if isinstance(found, list) for event in found))


def announced(connected: Connected, made: SwapPlan) -> SwapPlan:
    """The same plan; where the service will be down for a start, with how long that usually takes."""
    if made.mode is not Mode.IN_PLACE:
        return made
    release, member = made.release, connected.members[made.rank.node]
    with past(member, release.id, release.recipe, release.inputs) as known:
        return replace(made, gap=known.forecast())
