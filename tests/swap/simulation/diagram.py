"""The diagram of docs/swap.md, made from the machine itself: `python -m tests.swap.simulation.diagram` rewrites it."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.names import Slot
from sparkops.swap.fleet_state import FleetState, GatewayView
from sparkops.swap.journal import Journal
from sparkops.swap.leader import failure
from sparkops.swap.model import PHASES, Answer, Deployment, Mode, Phase
from tests.places import ROOT
from tests.swap.simulation.scenarios import deployment

PAGE = ROOT / "docs/swap.md"
BEGIN, END = "<!-- made by tests.swap.simulation.diagram -->\n", "<!-- end -->\n"
NODES = {
    Mode.FIRST: (None, "n2"),
    Mode.BESIDE: ("n2", "n2"),
    Mode.ACROSS: ("n2", "n3"),
    Mode.IN_PLACE: ("n2", "n2"),
}
TITLES = {Mode.FIRST: "First deploy", Mode.ACROSS: "Beside and across", Mode.IN_PLACE: "In place"}


def diagram() -> str:
    """Each mode as a flowchart: solid arrows for success, dotted ones for a failure."""
    return "\n".join(
        f"**{title}**\n\n```mermaid\nflowchart LR\n{_chart(mode)}\n```\n" for mode, title in TITLES.items()
    )


def _chart(mode: Mode) -> str:
    """One chain of the phases, then one line for each end that failures of some phases have in common."""
    chain: list[str] = []
    failing: dict[str, list[str]] = {}
    for journal in _phases(_begun(mode)):
        assert journal.swap is not None
        chain.append(_box(journal.swap.phase))
        if back := _failed(journal):
            failing.setdefault(back, []).append(journal.swap.phase.name.lower())
    lines = [" --> ".join([*chain, "done([done])"])]
    lines += [f"{' & '.join(phases)} -.-> {back}" for back, phases in failing.items()]
    return "\n".join(f"  {line}" for line in lines)


def _phases(journal: Journal) -> Iterator[Journal]:
    while journal.swap:
        yield journal
        journal = journal.advanced()


def _box(phase: Phase) -> str:
    return f"{phase.name.lower()}[{phase}]"


def _begun(mode: Mode) -> Journal:
    old_node, node = NODES[mode]
    old: Deployment | None = deployment("a", Slot.BLUE, old_node) if old_node else None
    journal = Journal("chat", "n1", active=old)
    return journal.begun("i", mode, deployment("b", Slot.GREEN, node), automatic=True)


def _failed(journal: Journal) -> str:
    """Where a failed target leads; empty where the machine continues."""
    swap = journal.swap
    assert swap is not None
    old = {swap.source.slot: Answer.YES} if swap.source else {}
    slots = {item.slot: item.release for item in (swap.target, swap.source) if item}
    view = GatewayView(slots=slots, answers={swap.target.slot: Answer.NO, **old})
    if swap.reached(Phase.SWITCH) and not failure(journal, swap, FleetState(gateway=view)):
        return ""
    back = journal.reverted("failed")
    if back.stopping or swap.source is None:
        return "off([nothing serves])"
    return (
        f"back_{back.swap.phase.name.lower()}([return, from '{back.swap.phase}'])"
        if back.swap
        else "old([old release stays])"
    )


def page(text: str) -> str:
    """The page with its diagrams as they are now."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{diagram()}{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    print(f"{PAGE.name}: {sum(len(phases) for phases in PHASES.values())} phases in {len(PHASES)} modes")
