"""Traces: swaps with what operators do and what fails at named moments, played in the simulator and on real nodes.

The old release runs on n2; n1 has the gateway, so its guard leads. On real nodes they are node-2 and node-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from sparkops.swap.model import Mode, Phase


class Role(StrEnum):
    """A release of a trace."""

    OLD = "old"
    NEW = "new"


@dataclass(frozen=True)
class KillGuard:
    """The guard's process of a node ends; Docker starts it again."""

    node: str


@dataclass(frozen=True)
class KillEngine:
    """The engine's process of a release ends."""

    role: Role


@dataclass(frozen=True)
class StopByHand:
    """`docker stop` on the node of a release."""

    role: Role


@dataclass(frozen=True)
class Ask:
    """An operator's verb."""

    verb: Literal["cancel", "promote", "stop", "rollback"]


Act = KillGuard | KillEngine | StopByHand | Ask


@dataclass(frozen=True)
class Trace:
    """A deploy in a mode, the acts in it, each at its phase, and the release that serves in the end; None: no release.

    `answers`: whether the new release passes its checks.
    """

    name: str
    mode: Mode
    acts: tuple[tuple[Phase, Act], ...] = ()
    serves: Role | None = Role.NEW
    answers: bool = True
    automatic: bool = True

    @property
    def node(self) -> str:
        """The node of the new release."""
        return "n1" if self.mode is Mode.ACROSS else "n2"

    @property
    def keeps_old(self) -> bool:
        """Whether the old release stays warm until an act."""
        return any(phase is Phase.RETIRE for phase, _ in self.acts)

    def __str__(self) -> str:
        return self.name


TRACES = (
    Trace(
        "beside, cancelled in bake",
        Mode.BESIDE,
        ((Phase.BAKE, Ask("cancel")),),
        serves=Role.OLD,
        automatic=False,
    ),
)
"""Those that `make test` plays on real nodes."""

MORE = (
    Trace(
        "across, the leader's guard is killed in load",
        Mode.ACROSS,
        ((Phase.LOAD, KillGuard("n1")),),
    ),
    Trace("across", Mode.ACROSS),
    Trace("beside", Mode.BESIDE),
    Trace("in place", Mode.IN_PLACE),
    Trace("across, cancelled in load", Mode.ACROSS, ((Phase.LOAD, Ask("cancel")),), serves=Role.OLD),
    Trace("in place, cancelled in load", Mode.IN_PLACE, ((Phase.LOAD, Ask("cancel")),), serves=Role.OLD),
    Trace("across, the engine dies in load", Mode.ACROSS, ((Phase.LOAD, KillEngine(Role.NEW)),), serves=Role.OLD),
    Trace("in place, the engine dies in load", Mode.IN_PLACE, ((Phase.LOAD, KillEngine(Role.NEW)),), serves=Role.OLD),
    Trace("across, the old release is stopped by hand", Mode.ACROSS, ((Phase.LOAD, StopByHand(Role.OLD)),)),
    Trace("beside, checks fail", Mode.BESIDE, serves=Role.OLD, answers=False),
    Trace("in place, promoted by hand", Mode.IN_PLACE, ((Phase.BAKE, Ask("promote")),), automatic=False),
    Trace("across, stopped in bake", Mode.ACROSS, ((Phase.BAKE, Ask("stop")),), serves=None, automatic=False),
    Trace(
        "in place, both guards are killed, promoted by hand",
        Mode.IN_PLACE,
        ((Phase.LOAD, KillGuard("n1")), (Phase.BAKE, KillGuard("n2")), (Phase.BAKE, Ask("promote"))),
        automatic=False,
    ),
    Trace("across, rolled back to the warm release", Mode.ACROSS, ((Phase.RETIRE, Ask("rollback")),), serves=Role.OLD),
    Trace(
        "in place, the guard is killed in load, checks fail",
        Mode.IN_PLACE,
        ((Phase.LOAD, KillGuard("n2")),),
        serves=Role.OLD,
        answers=False,
    ),
)
"""Those that `make matrix` adds."""
