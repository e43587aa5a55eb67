"""Describe a model that only its hub has, by config.json and headers that a node reads there by range requests."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkops import foreign
from sparkops.config.model import Weights
from sparkops.errors import NotReady
from sparkops.node.member import Member
from sparkops.operator.build.hub.pull import FAILURES, GIVE_ONE, require_encrypted
from sparkops.operator.build.weights import commands, description
from sparkops.operator.build.weights.description import Description
from sparkops.operator.fleet.transfer import transfer

OWN: Mapping[str, tuple[str, str]] = {
    "answer": ("the hub's answer describes no model", "Check model.id of the recipe and the mirror (--endpoint)."),
    "range": ("the hub answered 416, Range Not Satisfiable", GIVE_ONE),
    "slow": ("the hub is too slow", "Retry, or use a mirror (--endpoint)."),
    "unreachable": (
        "the hub cannot be reached from this node",
        "Use a node with internet (--node), or a mirror (--endpoint).",
    ),
}
"""Where a description fails otherwise than a download."""
SHORT_COMMIT = 12


@dataclass
class HubHeaders:
    """A hub to describe models by: its token, URL (empty: the default) and certificates as PEM.

    What one node has read is not read again by the others. Raises UsageError for a token that would be sent without
    encryption.
    """

    token: str = field(default="", repr=False)
    endpoint: str = ""
    certificates: tuple[bytes, ...] = ()
    known: dict[tuple[str | None, ...], Description] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        require_encrypted(self.token, self.endpoint)

    def describe(self, member: Member, weights: Weights) -> Description:
        """Return the description of a model, read from this node. Raises NotReady, and errors of the node."""
        key = (weights.id, weights.revision, *weights.exclude)
        with self.lock:
            if key not in self.known:
                self.known[key] = self._read(member, weights)
            return self.known[key]

    def _read(self, member: Member, weights: Weights) -> Description:
        command = commands.describe_at_hub(weights, self.token, self.endpoint, self.certificates)
        line = (transfer.run(member, command).stdout.splitlines() or [""])[-1]
        try:
            return parse(line, weights.id)
        except ValueError as error:
            kind, text = error.args if len(error.args) == 2 else ("answer", str(error))
            problem, step = OWN.get(kind) or FAILURES.get(kind, OWN["answer"])
            raise NotReady(member.name, f"{weights.id}: {problem} ({text})", next_step=step) from error


def parse(line: str, model: str) -> Description:
    """Parse what the node prints. Raises ValueError, with kind and text of a failure that it reports."""
    answer = foreign.loads(line)
    if isinstance(answer, dict) and "kind" in answer:
        raise ValueError(str(answer["kind"]), foreign.one_line(str(answer["text"])))
    commit = str(answer["commit"]) if isinstance(answer, dict) and "commit" in answer else ""
    described = description.parse(line, f"{model} at the hub, {commit[:SHORT_COMMIT]}")
    if described is None:
        raise ValueError("no description")
    return described
