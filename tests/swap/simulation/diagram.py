"""The diagram of docs/swap.md, made from the machine itself: `python -m tests.swap.simulation.diagram` rewrites it."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.swap.fleet_state import FleetState, GatewayView
from sparkops.swap.journal import Journal
from sparkops.swap.leader import failure
from sparkops.swap.model import PHASES, Answer, Phase
from tests.places import ROOT
from tests.swap.simulation.scenarios import MODES, REPLICAS

PAGE = ROOT / "docs/swap.md"
BEGIN, END = "<!-- made by tests.swap.simulation.diagram -->\n", "<!-- end -->\n"
TITLES = {
    "first": "First deploy",
    "across": "Beside and across",
    "in-place": "In place",
    "rolling": "Rolling, each step",
}
"""By shape of a swap."""


def diagram() -> str:
    """Each mode as a flowchart: solid arrows for success, dotted ones for a failure."""
    return "\n".join(
        f"**{title}**\n\n```mermaid\nflowchart LR\n{_chart(shape)}\n```\n" for shape, title in TITLES.items()
    )


def _chart(shape: str) -> str:
    """One chain of the phases, then one line for each end that failures of some phases have in common."""
    chain: list[str] = []
    failing: dict[str, list[str]] = {}
    last = "done([done])"
    for journal in _phases(_begun(shape)):
        assert journal.swap is not None
        last = "done([next step, or done])" if journal.swap.goal else last
        chain.append(_box(journal.swap.phase))
        if back := _failed(journal):
            failing.setdefault(back, []).append(journal.swap.phase.name.lower())
    lines = [" --> ".join([*chain, last])]
    lines += [f"{' & '.join(phases)} -.-> {back}" for back, phases in failing.items()]
    return "\n".join(f"  {line}" for line in lines)


def _phases(journal: Journal) -> Iterator[Journal]:
    """Yield the journal in each phase of the swap, or of its first step."""
    key = journal.swap.key if journal.swap else ""
    while journal.swap and journal.swap.key == key:
        yield journal
        journal = journal.advanced()


def _box(phase: Phase) -> str:
    return f"{phase.name.lower()}[{phase}]"


def _begun(shape: str) -> Journal:
    old, new, mode = {**MODES, **REPLICAS}[shape]
    return Journal("chat", "n1", active=old).begun("i", mode, new, automatic=True)


def _failed(journal: Journal) -> str:
    """Where a failed target leads; empty where the machine continues."""
    swap = journal.swap
    assert swap is not None
    old = {swap.source.slot: Answer.YES} if swap.source else {}
    slots = {item.slot: item.mark for item in (swap.proving, swap.source) if item}
    view = GatewayView(slots=slots, answers={swap.proving.slot: Answer.NO, **old})
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
