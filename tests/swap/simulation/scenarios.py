"""Where a run starts, and what its operators ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import permutations, product

from sparkops.names import Slot
from sparkops.swap.fleet_state import GatewayView
from sparkops.swap.intents import Cancel, Deploy, EndWarm, Forget, Hold, Intent, Promote, Reply, Stop, accept
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Deployment, Limits, Mode, RankSpec, Replica
from sparkops.swap.rebuild import rebuilt
from tests.swap.simulation.faults import faults
from tests.swap.simulation.sharing import by_identity, replace
from tests.swap.simulation.transitions import following, written
from tests.swap.simulation.views import Health
from tests.swap.simulation.world import NODES, Engine, Gateway, Leader, Machine, Transition, World, fleet

LIMITS = Limits(bake_s=1, drain_s=1, keep_old_s=1, unknown_s=1, start_s=1)


def deployment(name: str, slot: Slot, *nodes: str, claim: float = 2.0, turns: str = "good") -> Deployment:
    """A release of one replica, with one rank on each node. `turns`: what its engines become once loaded."""
    spec = f"{name} {slot} {turns}"
    ranks = tuple(RankSpec(node, f"{name}-r{index}", claim, spec) for index, node in enumerate(nodes))
    return Deployment(name, slot, (Replica(ranks),), LIMITS)


def replicas(name: str, *places: str, claim: float = 2.0, turns: str = "good", min_serving: int = 0) -> Deployment:
    """A release with a replica at each place, in slot blue. A place is a node, or nodes of several ranks: n1+n2."""
    nodes = [place.split("+") for place in places]
    each = [deployment(f"{name}{names[0][1:]}", Slot.BLUE, *names, claim=claim, turns=turns) for names in nodes]
    limits = replace(LIMITS, min_serving=min_serving)
    return Deployment(name, Slot.BLUE, tuple(item.replicas[0] for item in each), limits)


SLOTS = {"a": Slot.BLUE, "b": Slot.GREEN}


def gateway_view(active: str = "", **answers: Answer) -> GatewayView:
    """The gateway with release a in slot blue and b in green, with their answers."""
    slots = {SLOTS[name]: name for name in answers}
    return GatewayView(SLOTS.get(active), slots, {SLOTS[name]: answer for name, answer in answers.items()})


def empty(leader: str = "n1", nodes: tuple[str, ...] = NODES) -> World:
    """Nothing runs; the guards are there."""
    peers = tuple(node for node in nodes if node != leader)
    journal = Journal("chat", leader, peers)
    return World(tuple(Machine(node) for node in nodes), (Leader(journal),), Gateway(leader))


def settle(world: World, steps: int = 1000) -> World:
    """The end of a fair run."""
    for _ in range(steps):
        if (transition := following(world)) is None:
            return world
        world = transition[1]
    raise AssertionError("it does not settle")


def ask(world: World, make: Callable[[str, int], Intent]) -> World | None:
    """An operator's intent reaches the leader; None where it changes nothing."""
    leader = world.leader
    if _silent(world, leader):
        return None
    intent = make(_number(leader.journal), leader.journal.revision)
    return _accepted(world, leader, intent, accept(leader.journal, intent, world.fleet(leader)))


def _silent(world: World, leader: Leader) -> bool:
    return leader.away or world.machine(leader.journal.leader).lost


def _number(journal: Journal) -> str:
    return f"i{sum(outcome.intent.startswith('i') for outcome in journal.outcomes)}"


def _accepted(world: World, leader: Leader, intent: Intent, reply: Reply) -> World | None:
    if not isinstance(reply, Journal):
        return None
    accepted = world.with_leader(written(leader, reply))
    down = world.serves(world.gateway.active) is not Answer.YES  # a fault that no request met has hit later ones
    unacknowledged = (*world.unacknowledged, (intent.id, reply.revision))
    return replace(accepted, unacknowledged=unacknowledged, touched=accepted.touched or down)


def rebuild(world: World) -> Transition | None:
    """The gateway's node is lost, or its journal, and an operator rebuilds it from the copies of the other guards."""
    lost = frozenset(machine.name for machine in world.machines if machine.lost)
    others = [machine for machine in world.machines if machine.name not in lost | {world.leader.journal.leader}]
    copies = [machine.record.copy for machine in others if machine.record.copy]
    if not _silent(world, world.leader) or not copies:
        return None
    node = next(machine.name for machine in world.machines if not machine.lost)
    joined = max(machine.joined for machine in world.machines if not machine.lost)
    journal = rebuilt(copies, node, lost, joined)
    gateway = world.gateway if world.gateway.node == node else Gateway(node)
    former = tuple(leader for leader in world.leaders if leader.journal.leader != node)
    machines = tuple(machine if machine.lost else replace(machine, joined=journal.term) for machine in world.machines)
    leaders = (*former, Leader(journal))
    return f"gateway rebuild {node}", replace(world, machines=machines, leaders=leaders, gateway=gateway)


A, B, C = "a", "b", "c"
Shape = tuple[Deployment | None, Deployment, Mode]
"""The old and the new release of a swap, and its mode."""
MODES: Mapping[str, Shape] = {
    "first": (None, deployment(B, Slot.BLUE, "n2"), Mode.FIRST),
    "beside": (
        deployment(A, Slot.BLUE, "n2", claim=1.0),
        deployment(B, Slot.GREEN, "n2", claim=1.0),
        Mode.BESIDE,
    ),
    "across": (deployment(A, Slot.BLUE, "n2"), deployment(B, Slot.GREEN, "n3"), Mode.ACROSS),
    "move": (deployment(A, Slot.BLUE, "n2"), deployment(A, Slot.GREEN, "n3"), Mode.ACROSS),
    "in-place": (deployment(A, Slot.BLUE, "n2"), deployment(B, Slot.GREEN, "n2"), Mode.IN_PLACE),
    "in-place at the gateway": (deployment(A, Slot.BLUE, "n1"), deployment(B, Slot.GREEN, "n1"), Mode.IN_PLACE),
    "pair in-place": (deployment(A, Slot.BLUE, "n2", "n3"), deployment(B, Slot.GREEN, "n2", "n3"), Mode.IN_PLACE),
}


def _shapes() -> Iterator[tuple[tuple[str, ...], str, Shape]]:
    """Yield the kind, name and releases of every swap between one or two nodes, and every first deploy.

    n1 has the gateway; n2 and n3 are alike, so of two shapes that differ by them alone there is one.
    """
    places = [nodes for size in (1, 2) for nodes in permutations(NODES, size)]
    known = set[tuple[tuple[str, ...], ...]]()
    for old, new in product([(), *places], places):
        if (_mirrored(old), _mirrored(new)) in known:
            continue
        known.add((old, new))
        shared = {*old} & {*new}
        modes = (Mode.IN_PLACE, Mode.BESIDE) if shared else (Mode.ACROSS if old else Mode.FIRST,)
        for mode in modes:
            claim = 1.0 if mode is Mode.BESIDE else 2.0
            first = deployment(A, Slot.BLUE, *old, claim=claim) if old else None
            target = deployment(B, Slot.GREEN if old else Slot.BLUE, *new, claim=claim)
            kind = (mode.value, _change(old, new), "at the gateway" if NODES[0] in old + new else "")
            yield kind, f"{mode}: {'+'.join(old) or 'nothing'} to {'+'.join(new)}", (first, target, mode)


def _mirrored(nodes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple({"n2": "n3", "n3": "n2"}.get(node, node) for node in nodes)


def _change(old: tuple[str, ...], new: tuple[str, ...]) -> str:
    if {*old} == {*new}:
        return "equal" if old == new else "turned round"
    if not {*old} & {*new}:
        return f"disjoint, {len(old)} to {len(new)}"
    return "wider" if {*old} < {*new} else "narrower" if {*old} > {*new} else "overlapping"


SHAPES: Mapping[str, Shape] = {name: shape for _, name, shape in _shapes()}
"""Every shape of a swap; MODES names those that stories are about."""
KINDS: tuple[str, ...] = tuple({kind: name for kind, name, _ in reversed([*_shapes()])}.values())
"""One shape of each kind: mode, how the nodes change, and whether the gateway's node is one of them."""
REPLICAS: Mapping[str, Shape] = {
    "rolling": (replicas(A, "n2", "n3"), replicas(B, "n2", "n3"), Mode.ROLLING),
    "rolling at the gateway": (replicas(A, "n1", "n2"), replicas(B, "n1", "n2"), Mode.ROLLING),
    "rolling, three": (replicas(A, "n1", "n2", "n3"), replicas(B, "n1", "n2", "n3"), Mode.ROLLING),
    "one more": (replicas(A, "n2"), replicas(A, "n2", "n3"), Mode.ROLLING),
    "one less": (replicas(A, "n2", "n3"), replicas(A, "n3"), Mode.ROLLING),
    "elsewhere": (replicas(A, "n1", "n2"), replicas(B, "n1", "n3"), Mode.ROLLING),
    "rolling, two at once": (
        replicas(A, "n1", "n2", "n3"),
        replicas(B, "n1", "n2", "n3", min_serving=1),
        Mode.ROLLING,
    ),
    "replicas in-place": (
        replicas(A, "n1", "n2"),
        replace(replicas(B, "n1", "n2"), slot=Slot.GREEN),
        Mode.IN_PLACE,
    ),
}
"""Changes of several replicas, one after another or all at once."""
FOUR, OTHER_FOUR = ("n1", "n2", "n3", "n4"), ("n5", "n6", "n7", "n8")
WIDE: Mapping[str, Shape] = {
    "four across": (deployment(A, Slot.BLUE, *FOUR), deployment(B, Slot.GREEN, *OTHER_FOUR), Mode.ACROSS),
    "four beside": (
        deployment(A, Slot.BLUE, *FOUR, claim=1.0),
        deployment(B, Slot.GREEN, *FOUR, claim=1.0),
        Mode.BESIDE,
    ),
    "four in-place": (deployment(A, Slot.BLUE, *FOUR), deployment(B, Slot.GREEN, *FOUR), Mode.IN_PLACE),
    "one to four": (deployment(A, Slot.BLUE, "n1"), deployment(B, Slot.GREEN, *FOUR), Mode.IN_PLACE),
    "rolling pairs": (replicas(A, "n1+n2", "n3+n4"), replicas(B, "n1+n2", "n3+n4"), Mode.ROLLING),
}
"""Replicas of four ranks, and several of two: on four or eight nodes instead of three."""
AGAIN = {"again elsewhere": "a-r0 is hung", "again without a lost node": "loss of n2"}
"""The same release once more, in the other slot on another node, after its engine or its node has failed."""


def failed(fault: str) -> World:
    """Release a has served on n2 and does not answer any more: the service needs an operator."""
    world = serving(deployment(A, Slot.BLUE, "n2"))
    hurt = next(after for label, after in faults(world) if label == fault)
    return settle(hurt.with_machine(_for_good(hurt.machine("n2"))))


def _for_good(machine: Machine) -> Machine:
    """The engines that hang do so after each start."""
    hung = (engine for engine in machine.engines if engine.health is Health.HUNG)
    engine = next(hung, None)
    return machine.holding(replace(engine, turns=Health.HUNG)) if engine else machine


def serving(first: Deployment | None, nodes: frozenset[str] = frozenset()) -> World:
    """`first` serves, and nothing else is under way. `nodes`: further ones, besides the three and its own."""
    world = empty(nodes=tuple(sorted({*NODES, *nodes, *(first.nodes if first else ())})))
    if first is None:
        return settle(world)
    started = ask(settle(world), lambda id_, revision: Deploy(id_, revision, first, Mode.FIRST))
    assert started is not None
    return replace(settle(started), touched=False)  # its first deploy began where requests failed


def deploying(
    name: str, *, automatic: bool = True, turns: str = "good", beside: str = "", claim: float | None = None
) -> World:
    """The intent of a swap is accepted. `claim`: that of each rank, in place of the shape's.

    `beside`: a node with an engine of another service, which takes half of its memory.
    """
    if name in AGAIN:
        moved_release, lost = deployment(A, Slot.GREEN, "n3"), frozenset({"n2"} if "lost" in name else ())
        started = ask(
            failed(AGAIN[name]), lambda id_, revision: Deploy(id_, revision, moved_release, Mode.FIRST, without=lost)
        )
        assert started is not None
        return started
    first, target, mode = {**SHAPES, **REPLICAS, **WIDE, **MODES}[name]
    first = _with(first, "good", claim) if first else None
    target = _with(target, turns, claim) if turns != "good" or claim is not None else target
    world = serving(first, target.nodes)
    if beside:
        machine, other = world.machine(beside), Engine("other", "other", "", 1.0, Health.GOOD)
        world = world.with_machine(replace(machine, other=other))
    started = ask(world, lambda id_, revision: Deploy(id_, revision, target, mode, automatic=automatic))
    assert started is not None
    return started


def _with(release: Deployment, turns: str, claim: float | None) -> Deployment:
    """The release with engines that become `turns` once loaded, and with this claim, if any, of each of them."""

    def changed(rank: RankSpec) -> RankSpec:
        name, slot, _ = rank.spec.split(" ")
        gib = rank.claim_gib if claim is None else claim
        return replace(rank, spec=f"{name} {slot} {turns}", claim_gib=gib)

    return replace(release, replicas=tuple(Replica(tuple(map(changed, item.ranks))) for item in release.replicas))


def operators(world: World) -> Iterator[Transition]:
    """What a second operator may ask for just now."""
    leader = world.leader
    if not _silent(world, leader):
        for name, intent, reply in _asked(leader, world.view(leader)):
            if after := _accepted(world, leader, intent, reply):
                yield f"operator: {name}", after


@by_identity
def _asked(leader: Leader, view: GatewayView | None) -> list[tuple[str, Intent, Reply]]:
    """Each intent that changes the journal, with what it becomes."""
    journal, state = leader.journal, fleet(leader, view)
    requests: tuple[tuple[str, Callable[[str, int], Intent] | None], ...] = (
        ("cancel", Cancel),
        ("promote", Promote),
        ("stop", lambda id_, revision: Stop(id_, revision, force=True)),
        ("forget", Forget),
        ("end warm", EndWarm),
        ("hold", lambda id_, revision: Hold(id_, revision, "exam")),
        ("move", _move(journal)),
        *((f"deploy back ({mode})", _back(journal, mode)) for mode in Mode if mode is not Mode.FIRST),
    )
    intents = [(name, make(_number(journal), journal.revision)) for name, make in requests if make]
    replies = [(name, intent, accept(journal, intent, state)) for name, intent in intents]
    return [item for item in replies if isinstance(item[2], Journal)]


def _move(journal: Journal) -> Callable[[str, int], Intent] | None:
    """The active release on another node, in the other slot."""
    active = journal.active
    if active is None or not active.alone or len(active.replicas) > 1:
        return None
    (rank,) = active.ranks
    _, _, turns = rank.spec.split(" ")
    moved = "n3" if rank.node == "n2" else "n2"
    moved_release = deployment(active.release, active.slot.other, moved, claim=rank.claim_gib, turns=turns)
    return lambda id_, revision: Deploy(id_, revision, moved_release, Mode.ACROSS)


def _back(journal: Journal, mode: Mode) -> Callable[[str, int], Intent] | None:
    previous = journal.previous
    return (lambda id_, revision: Deploy(id_, revision, previous, mode)) if previous else None
