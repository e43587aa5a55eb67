"""What the leader concludes from answers through the gateway, and from the time that passes."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from sparkops.gateway import commands
from sparkops.gateway.facts import ServiceFacts, SlotFacts
from sparkops.gateway.front import endpoints
from sparkops.guard.disk.state import State
from sparkops.guard.lead.completion import FAILURES, Completion, ReleaseHealth
from sparkops.guard.lead.gateway_front import GatewayContainer, GatewayFront, is_pointed
from sparkops.guard.lead.lead import Lead, PhaseClocks
from sparkops.names import Slot
from sparkops.serving.engine_spec import EngineSpec, rank_spec
from sparkops.swap.effects import PointSlot, SwitchTraffic, WriteJournal
from sparkops.swap.fleet_state import EngineReport, EngineState, FleetState, Report
from sparkops.swap.journal import Journal
from sparkops.swap.leader import step
from sparkops.swap.model import Answer, Deployment, Mode, Phase, Replica
from tests.examples import IMAGE_ID, INPUTS, recipe
from tests.node.recording import RecordingNode
from tests.operator.deploy.states import serving, swapping
from tests.places import ROOT

pytestmark = pytest.mark.unit
CAPTURED = ROOT / "tests" / "gateway" / "captured"
NEW, DRAINING = ((CAPTURED / f"{name}.json").read_text() for name in ("new", "draining"))


def after(*completions: Completion, steps: tuple[float, ...] = ()) -> ReleaseHealth:
    health = ReleaseHealth()
    for result in completions:
        health.learn(result, steps)
    return health


def test_one_answer_is_yes_and_one_failure_is_not_no() -> None:
    assert after(Completion.RIGHT).answer is Answer.YES
    assert after(Completion.RIGHT, Completion.WRONG).answer is Answer.UNKNOWN


def test_only_failures_in_a_row_are_no() -> None:
    assert after(*[Completion.WRONG] * FAILURES).answer is Answer.NO
    assert after(*[Completion.WRONG] * (FAILURES - 1), Completion.RIGHT, Completion.WRONG).answer is Answer.UNKNOWN


def test_an_engine_that_makes_no_step_and_answers_nothing_in_time_is_no() -> None:
    assert after(*[Completion.LATE] * (FAILURES + 1), steps=(1.0, 2.0)).answer is Answer.NO


def test_an_engine_that_is_late_and_steps_is_busy() -> None:
    health = after(Completion.RIGHT)
    for count in range(1, 10):
        health.learn(Completion.LATE, (float(count),))

    assert health.answer is Answer.YES


def test_an_engine_that_hung_and_steps_again_is_unknown_until_it_answers() -> None:
    health = after(*[Completion.LATE] * (FAILURES + 1), steps=(1.0,))
    health.learn(Completion.LATE, (2.0,))

    assert health.answer is Answer.UNKNOWN


def test_a_closed_gateway_says_nothing_about_a_release() -> None:
    assert after(Completion.RIGHT, *[Completion.CLOSED] * 10).answer is Answer.UNKNOWN
    assert after(*[Completion.WRONG] * (FAILURES - 1), Completion.CLOSED).answer is Answer.UNKNOWN


def test_time_counts_as_sampled_only_while_requests_are_sampled() -> None:
    clocks = PhaseClocks()
    for second, sampled in enumerate((True, True, False, True)):
        clocks.tick(float(second), "bake", "same", sampled=sampled)

    assert (clocks.sampled_s, clocks.waited_s) == (2.0, 3.0)


def test_a_new_phase_begins_at_zero() -> None:
    clocks = PhaseClocks()
    for second in range(3):
        clocks.tick(float(second), "bake", "same", sampled=True)
    clocks.tick(3.0, "promote", "same", sampled=True)

    assert (clocks.sampled_s, clocks.waited_s) == (0.0, 0.0)


def test_whatever_moves_ends_a_wait() -> None:
    clocks = PhaseClocks()
    for second, moved in enumerate(("a", "a", "b", "b")):
        clocks.tick(float(second), "load", moved, sampled=False)

    assert clocks.waited_s == 1.0


def test_time_in_which_the_guard_did_not_run_is_not_counted() -> None:
    clocks = PhaseClocks()
    clocks.tick(0.0, "bake", "same", sampled=True)
    clocks.tick(3600.0, "bake", "same", sampled=True)

    assert clocks.sampled_s == 5.0


def released(address: str) -> Deployment:
    """A release whose node has this address."""
    data = recipe().model_dump(mode="json", exclude_defaults=True)
    node = {"transport": "local", "gpu": "none"}
    given = {"recipe": data, "inputs": INPUTS, "image": IMAGE_ID, "slot": Slot.BLUE, "index": 0, "node": node}
    spec = EngineSpec.model_validate({**given, "address": address, "jobs": 2})
    return Deployment("q-1", Slot.BLUE, (Replica((replace(rank_spec(spec, "n1"), container="q-1-blue-r0"),)),))


def test_each_replica_is_named_by_its_own_release_also_the_only_one_of_a_deployment() -> None:
    """While a failed step of a rolling update returns, what serves is of the old release."""
    target = replace(released("10.0.0.1"), release="q-2")

    assert [place.release for place in endpoints(target)] == ["q-1"]


@pytest.mark.parametrize(
    ("host", "address", "pointed"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("[fd00::2]", "fd00:0::2", True),
        ("[fd00::2]", "fd00::3", False),
        ("10.0.0.1", "spark-1.lan", True),
    ],
)
def test_a_slot_means_a_release_only_where_its_engine_is(host: str, address: str, pointed: bool) -> None:
    target = released(address)
    port = endpoints(target)[0].port

    for server, expected in ((f"{host}:{port}", pointed), (f"{host}:{port + 1}", False)):
        slot = SlotFacts("chat", Slot.BLUE, "q-1", "q-1", (server,), (server,))
        assert is_pointed(ServiceFacts("chat", 8000, "", "", {Slot.BLUE: slot}), target) is expected


@pytest.mark.parametrize(("named", "moved"), [("q-1", 0), ("q-0", 0), ("", 0), ("q-1", 1)])
def test_a_slot_means_a_release_only_once_haproxy_has_what_the_file_has(named: str, moved: int) -> None:
    """HAProxy may have started from the file a moment before it was changed."""
    target = released("10.0.0.1")
    port = endpoints(target)[0].port
    servers, serving = ((f"10.0.0.1:{at}",) for at in (port, port + moved))
    slot = SlotFacts("chat", Slot.BLUE, "q-1", named, servers, serving)

    assert is_pointed(ServiceFacts("chat", 8000, "", "", {Slot.BLUE: slot}), target) is ((named, moved) == ("q-1", 0))


def reads(printed: str, *answers: Answer, swapping: bool = False) -> int:
    """How often the gateway is read in 30 s, with a look every second, while its releases have these answers."""
    now_s = [0.0]
    node = RecordingNode("n1", {str(commands.SHOW): printed})
    view = GatewayFront("chat", GatewayContainer(node, clock=lambda: now_s[0]))
    for second in range(30):
        now_s[0] = float(second)
        view.releases = {
            released(f"10.0.0.{number + 1}"): ReleaseHealth(answer) for number, answer in enumerate(answers)
        }
        view.look((), swapping=swapping)
    view.close()
    return len(node.ran)


def test_an_idle_gateway_whose_releases_answer_is_read_every_ten_seconds() -> None:
    assert reads(NEW, Answer.YES) == 3


@pytest.mark.parametrize("answer", [Answer.NO, Answer.UNKNOWN])
def test_a_gateway_with_a_release_that_does_not_answer_is_read_every_second(answer: Answer) -> None:
    assert reads(NEW, Answer.YES, answer) == 30


def test_during_a_swap_and_while_it_cannot_be_read_a_gateway_is_read_every_second() -> None:
    assert reads(NEW, Answer.YES, swapping=True) == 30
    assert reads("no JSON", Answer.YES) == 30


def lead(tmp_path: Path, journal: Journal) -> Lead:
    """A leader of a service, with a gateway that it has not read."""
    view = GatewayFront("chat", GatewayContainer(RecordingNode("n1", {})))
    return Lead(journal, State(tmp_path), view, dict, frozenset, print)


def test_an_idle_leader_reads_the_gateway_again_before_it_changes_it(tmp_path: Path) -> None:
    """The journal names no release; one that had the traffic at the last look has lost it since."""
    shown = {str(commands.SHOW): DRAINING}
    node = RecordingNode("n1", shown)
    view = GatewayFront("chat", GatewayContainer(node))
    leader = Lead(Journal("chat", "n1", revision=1), State(tmp_path), view, dict, frozenset, print)
    view.look((), swapping=False)
    shown[str(commands.SHOW)] = NEW
    leader.turn()
    view.close()

    assert node.ran == [commands.SHOW] * 2


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.LOAD, Phase.VERIFY, Phase.BAKE, Phase.PROMOTE, Phase.DRAIN])
def test_during_a_swap_each_release_is_asked_every_second(tmp_path: Path, phase: Phase) -> None:
    assert lead(tmp_path, swapping(phase).journal).hurried


def test_beside_a_release_that_is_only_kept_warm_it_is_asked_as_seldom_as_alone(tmp_path: Path) -> None:
    kept = swapping(Phase.RETIRE).journal
    assert kept.swap
    assert not lead(tmp_path, kept).hurried
    assert lead(tmp_path, replace(kept, swap=replace(kept.swap, reverting=True))).hurried
    assert not lead(tmp_path, serving().journal).hurried


@pytest.mark.parametrize(
    ("backend", "hold", "expected"),
    [
        ("be_chat_wait", True, (None, "1.2")),
        ("be_chat_wait", False, (None, "")),
        ("be_down", True, (None, "")),
        ("be_chat_green", True, (None, "")),
        ("be_chat_green", False, (Slot.GREEN, "")),
    ],
    ids=["waits", "its file is lost", "HAProxy has not heard", "the hold has not ended", "serves"],
)
def test_a_change_that_was_interrupted_is_seen_as_not_done(
    backend: str, hold: bool, expected: tuple[Slot | None, str]
) -> None:
    shown = json.loads(DRAINING)
    shown["holds"] = {"chat": {"mark": "1.2", "until": 1e9, "longest_s": 540.0, "most": 500}} if hold else {}
    shown["haproxy"]["map"] = f"0x1 chat {backend}\n"
    view = GatewayFront("chat", GatewayContainer(RecordingNode("n1", {str(commands.SHOW): json.dumps(shown)})))

    known = view.look((), swapping=True)
    view.close()

    assert known
    assert (known.active, known.held) == expected


def test_a_release_whose_id_is_in_the_other_slot_as_well_is_pointed_at_and_gets_the_traffic() -> None:
    """The lost release and the same one on another node differ by slot and address only."""
    lost, again = released("10.0.0.2"), replace(released("10.0.0.3"), slot=Slot.GREEN)
    (rank,), port = again.ranks, endpoints(again)[0].port
    key, facts = "i1", json.loads(DRAINING)
    journal = Journal("chat", "n1", revision=9).begun(key, Mode.FIRST, again, automatic=True)
    while journal.swap and journal.swap.phase is not Phase.VERIFY:
        journal = journal.advanced()
    assert journal.swap
    proven = EngineReport(rank.container, EngineState.HEALTHY, journal.swap.key, Answer.YES, journal.swap.key)
    shown = dict[str, str]()
    front = GatewayFront("chat", GatewayContainer(RecordingNode("n1", shown)))
    front.releases = {lost: ReleaseHealth(Answer.NO, next_s=inf), again: ReleaseHealth(Answer.YES, next_s=inf)}

    def due(journal: Journal, active: Slot, **slots: str) -> object:
        """What the leader does where the slots have this release at these addresses."""
        running = facts["haproxy"]
        for slot, address in slots.items():
            name, server = f"be_chat_{slot}", f"{address}:{port}"
            before = facts["slots"][name]
            facts["slots"][name] = {"release": again.release, "servers": [server]}
            running["releases"] = running["releases"].replace(f"{name} {before['release']}", f"{name} {again.release}")
            for pid, text in running["statistics"].items():
                running["statistics"][pid] = text.replace(f",{before['servers'][0]},", f",{server},")
        facts["haproxy"]["map"] = f"0x1 chat be_chat_{active}\n"
        facts["map"] = f"chat be_chat_{active}\n"
        shown[str(commands.SHOW)] = json.dumps(facts)
        front.releases[again] = ReleaseHealth(Answer.YES, next_s=inf)
        view = front.look(journal.deployments, swapping=True, fresh=True)
        report = Report(rank.node, "b", journal.term, journal.revision, journal.revision, (proven,))
        return step(journal, FleetState({rank.node: report}, view))

    elsewhere = due(journal, Slot.BLUE, blue="10.0.0.2", green="10.0.0.9")
    switching = journal.advanced()
    pointed = due(switching, Slot.BLUE, green="10.0.0.3")
    moved = due(switching, Slot.GREEN)
    front.close()

    assert (elsewhere, pointed) == (PointSlot(again), SwitchTraffic(again))
    assert moved == WriteJournal(switching.advanced())
