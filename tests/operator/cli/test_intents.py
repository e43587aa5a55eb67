"""Intents as an operator meets them: output, JSON and exit codes of the verbs, against a scripted leader."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from sparkops.names import Slot
from sparkops.operator.build.gateway.image import Service
from sparkops.swap import wire
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, Phase, RankSpec, Replica
from tests.examples import RECIPE
from tests.operator.cli.here import Here, install
from tests.operator.deploy.states import serving
from tests.terminal import terminal

pytestmark = pytest.mark.local
STARTS_MANY = pytest.mark.timeout(180)  # up to nine processes, while other tests have the cores


def deployed(release: str, slot: Slot) -> Deployment:
    return Deployment(release, slot, (Replica((RankSpec("here", f"{release}-r0"),)),))


OLD, NEW = deployed("q-1", Slot.BLUE), deployed("q-2", Slot.GREEN)
SERVING = Journal("chat", "here", active=OLD)
NOTHING = {
    "service": "chat",
    "result": "nothing",
    "exit_code": 0,
    "release": "q-1",
    "mode": None,
    "why": None,
    "seconds": {},
    "cut": 0,
}


@pytest.fixture
def sparkops(tmp_path: Path) -> Iterator[Here]:
    with install(tmp_path) as here:
        yield here


def swapping(sparkops: Here, phase: Phase, *, automatic: bool = True, mode: Mode = Mode.BESIDE) -> None:
    """Bring a swap from q-1 to q-2 into a phase."""
    journal = SERVING.begun("i1", mode, NEW, automatic=automatic)
    sparkops.peer.write(SERVING)
    sparkops.peer.write(journal)
    while journal.swap and journal.swap.phase is not phase:
        journal = journal.advanced()
        sparkops.peer.write(journal)


@STARTS_MANY
def test_promote_follows_the_release_until_only_the_old_one_is_warm(sparkops: Here) -> None:
    swapping(sparkops, Phase.BAKE, automatic=False)

    ran = sparkops("promote", "chat", "--json")

    assert ran.code == 0
    result = ran.json
    assert (result["result"], result["release"], result["mode"], result["exit_code"]) == ("done", "q-2", "beside", 0)
    assert "chat: q-2 serves, mode beside" in ran.err
    again = sparkops("promote", "chat", "--json")
    assert (again.code, again.err) == (0, "chat: nothing to do\n")
    assert again.json == NOTHING | {"release": "q-2"}


@STARTS_MANY
def test_to_follow_a_swap_that_has_ended_is_nothing_to_do_with_the_same_keys(sparkops: Here) -> None:
    sparkops.peer.write(SERVING)

    ran = sparkops("status", "chat", "--follow", "--json")

    assert (ran.code, ran.err) == (0, "chat: nothing to do\n")
    assert ran.json == NOTHING


@STARTS_MANY
def test_cancel_ends_with_0_and_whoever_follows_the_deploy_gets_1(sparkops: Here) -> None:
    swapping(sparkops, Phase.LOAD)
    (sparkops.peer.directory / "halt").write_text(Phase.LOAD.value)
    following = sparkops.start("status", "chat", "--follow", "--json")
    while not sparkops.peer.requests("events"):
        time.sleep(0.05)

    cancelled = sparkops("rollback", "chat")
    out, err = following.communicate()

    assert cancelled.code == 0
    assert "chat: cancelled: q-1 serves, mode beside" in cancelled.err
    assert following.returncode == 1
    assert json.loads(out)["result"] == "cancelled"
    assert "chat: ending the swap to q-2; q-1 on here serves then" in cancelled.err
    assert "sparkops: chat: cancelled; q-1 serves" in err
    assert "next: sparkops history chat" in err


def test_ctrl_c_ends_the_following_with_130_and_says_how_to_follow_and_cancel(sparkops: Here) -> None:
    swapping(sparkops, Phase.LOAD)
    (sparkops.peer.directory / "halt").write_text(Phase.LOAD.value)
    following = sparkops.start("status", "chat", "--follow")
    while len(sparkops.peer.requests("events")) < 2:
        time.sleep(0.05)

    following.send_signal(signal.SIGINT)
    _, err = following.communicate()

    assert following.returncode == 130
    assert err.splitlines()[-3:] == [
        "sparkops: chat: no longer followed; the fleet continues",
        "  next: sparkops status chat --follow",
        "  next: sparkops rollback chat",
    ]
    assert "here: loading weights 40 %, about 3 min left" in err
    journal = sparkops.peer.journal("chat")
    assert journal is not None
    assert journal.swap is not None


@pytest.mark.parametrize(("mode", "code"), [(Mode.BESIDE, 1), (Mode.IN_PLACE, 6)])
def test_a_failed_swap_has_its_exit_code_its_reason_and_its_next_step(sparkops: Here, mode: Mode, code: int) -> None:
    swapping(sparkops, Phase.START, mode=mode)
    (sparkops.peer.directory / "fail").write_text(Phase.VERIFY.value)

    ran = sparkops("status", "chat", "--follow")

    assert ran.code == code
    assert ran.err.splitlines()[-4:] == [
        "sparkops: chat: reverted: n1: q-r0: exited with code 1; q-1 serves",
        "  likely cause: a flag",
        "  next: Remove it.",
        "  next: sparkops history chat",
    ]


def test_a_service_that_needs_an_operator_ends_with_7_and_the_next_step(sparkops: Here) -> None:
    sparkops.peer.write(replace(SERVING, trouble="q-1 does not answer", revision=1))

    ran = sparkops("status", "chat", "--follow")

    assert (ran.code, ran.out) == (7, "")
    assert ran.err.splitlines() == [
        "sparkops: chat: q-1 does not answer",
        "  next: sparkops logs chat",
        "  next: sparkops deploy RECIPE",
    ]


def test_a_detached_rollback_returns_at_once_with_the_commands(sparkops: Here) -> None:
    swapping(sparkops, Phase.RETIRE)

    ran = sparkops("rollback", "chat", "--detach", "--json")

    assert ran.code == 0
    assert ran.json["result"] == "accepted"
    named, *rest = ran.err.splitlines()
    assert named.endswith("here: chat: returning to q-1 on here, still warm; now q-2")
    assert rest == [
        "chat: accepted; the fleet continues without this client",
        "  next: sparkops status chat --follow",
        "  next: sparkops rollback chat",
    ]
    assert sparkops.peer.requests("events") == []


@STARTS_MANY
def test_a_hold_blocks_with_4_also_after_a_wait_and_names_who_and_its_end(sparkops: Here) -> None:
    sparkops.peer.write(replace(SERVING, previous=NEW))
    assert sparkops("hold", "chat", "--off").err == "chat: nothing was held\n"
    held = sparkops("hold", "chat", "-m", "fair").err.strip()
    assert re.fullmatch(r"chat is on hold: fair, by \S+@\S+ since \d{4}-\d\d-\d\d \d\d:\d\d UTC", held)

    ran = sparkops("stop", "chat", "--wait", "1", "--json")

    assert (ran.code, ran.json["exit_code"], ran.json["error"]) == (4, 4, held)
    assert f"waiting: {held}" in ran.err
    assert ran.err.splitlines()[-2:] == [f"sparkops: {held}", "  next: sparkops hold chat --off"]
    assert "chat is on hold: maintenance, by " in sparkops("hold", "chat").err
    assert sparkops("hold", "chat", "--off").err == "chat: hold ended\n"
    assert sparkops("stop", "chat", "--node", "here").code == 2
    stopped = sparkops("stop", "chat")
    assert (stopped.code, "chat: stopped" in stopped.err) == (0, True)


@STARTS_MANY
def test_a_stop_during_a_swap_is_refused_and_by_force_ends_its_deploy_with_1(sparkops: Here) -> None:
    swapping(sparkops, Phase.LOAD)
    (sparkops.peer.directory / "halt").write_text(Phase.LOAD.value)
    following = sparkops.start("status", "chat", "--follow", "--json")
    while not sparkops.peer.requests("events"):
        time.sleep(0.05)

    refused = sparkops("stop", "chat")
    forced = sparkops("stop", "chat", "--force", "--json")
    out, err = following.communicate()

    assert (refused.code, refused.err.splitlines()) == (
        4,
        [
            "sparkops: chat: a swap to q-2 is in phase 'wait until ready'",
            "  next: sparkops rollback chat, which ends it",
            "  next: sparkops stop chat --force",
        ],
    )
    assert (forced.code, forced.json["result"]) == (0, "stopped"), forced.err
    assert (following.returncode, json.loads(out)["result"], json.loads(out)["exit_code"]) == (1, "stopped", 1)
    assert "sparkops: chat: stopped by " in err
    assert "while it started; no release serves" in err


def test_a_stop_asks_on_a_terminal_and_names_the_requests(sparkops: Here) -> None:
    sparkops.peer.write(replace(SERVING, revision=1))
    env = {"PATH": f"{sparkops.directory / 'bin'}:{os.environ['PATH']}", "HOME": str(sparkops.directory)}
    with terminal(sparkops.directory, 100, ("--inventory", "inventory.yaml", "stop", "chat"), env) as shown:
        shown.until("Stop chat, which serves an unknown number of requests? [y/N]")
        os.write(shown.end, b"n\n")
        assert shown.until_end() == 0

    assert not sparkops.peer.requests("intend")


@STARTS_MANY
def test_the_second_rollback_goes_forward_only_by_name(sparkops: Here) -> None:
    swapping(sparkops, Phase.RETIRE)

    preview = sparkops("rollback", "chat", "--dry-run")
    assert (preview.code, preview.out.splitlines()[0]) == (0, "chat: returning to q-1 on here, still warm; now q-2")
    assert not sparkops.peer.requests("intend")
    first = sparkops("rollback", "chat")
    second = sparkops("rollback", "chat")
    forward = sparkops("rollback", "chat", "--to", "q-2")

    assert (first.code, "chat: returning to q-1 on here, still warm; now q-2" in first.err) == (0, True), first.err
    assert (second.code, second.err.splitlines()) == (
        5,
        [
            "sparkops: chat: q-2 was rolled back; another rollback would go forward to it again",
            "  next: sparkops rollback chat --to q-2",
        ],
    )
    assert (forward.code, "q-2 serves" in forward.err) == (0, True), forward.err
    unknown = sparkops("rollback", "chat", "--to", "q-7")
    assert (unknown.code, "--to: unknown release q-7 of chat, expected one of: q-1" in unknown.err) == (2, True)


def test_a_rollback_to_nothing_is_nothing_to_do(sparkops: Here) -> None:
    sparkops.peer.write(SERVING)

    ran = sparkops("rollback", "chat", "--json")

    assert (ran.code, ran.err, ran.json) == (0, "chat: nothing to do\n", NOTHING)


@STARTS_MANY
def test_history_shows_every_lasting_event_and_says_where_there_is_none(sparkops: Here) -> None:
    swapping(sparkops, Phase.LOAD)

    ran = sparkops("history", "chat")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:2] == [
        "2026-11-22T07:00:01+00:00  intent   intent i1: q-2, mode beside, on here",
        "2026-11-22T07:00:02+00:00  phase    q-2: prepare",
    ]
    events = sparkops("history", "chat", "--json").json["events"]
    assert [event["kind"] for event in events[:2]] == ["intent", "phase"]
    sparkops.peer.write(Journal("quiet", "here", revision=1))
    assert sparkops("history", "quiet").err == "quiet: no events\n"


@STARTS_MANY
def test_history_of_all_services_shows_what_an_operator_must_know(sparkops: Here) -> None:
    assert sparkops("history").err == "no events\n"
    swapping(sparkops, Phase.RETIRE)
    sparkops.peer.write(Journal("other", "here", revision=1))
    sparkops.peer.write(Journal("other", "here", revision=2, hold="fair"))

    ran = sparkops("history")

    assert (ran.code, ran.err) == (0, "")
    assert [line.partition("  ")[2] for line in ran.out.splitlines()] == [
        "HOLD begins  other: on hold: fair",
        "PROMOTED  chat: q-2 is promoted",
    ]
    shown = sparkops("history", "--json").json
    assert (shown["service"], [(event["service"], event["kind"]) for event in shown["events"]]) == (
        None,
        [("other", "note"), ("chat", "note")],
    )


@STARTS_MANY
@pytest.mark.parametrize(
    "verb", ["stop", "history", "logs", "status --follow", "rollback", "restart", "promote", "hold"]
)
def test_a_name_that_is_no_service_is_wrong_input_with_the_nearest_names(sparkops: Here, verb: str) -> None:
    sparkops.peer.write(SERVING)

    ran = sparkops(*verb.split(), "chta")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "sparkops: no such service: chta",
        "  next: Did you mean chat? `sparkops status` lists all.",
    ]
    assert not sparkops.peer.requests("intend")


def test_the_name_of_a_recipe_is_answered_with_its_service(sparkops: Here) -> None:
    recipes = sparkops.directory / "recipes"
    recipes.mkdir()
    (recipes / "mine.yaml").write_text(yaml.safe_dump({**RECIPE, "name": "mine", "service": "chat"}))
    sparkops.peer.write(SERVING)

    ran = sparkops("history", "mine")

    assert ran.code == 2
    assert ran.err.splitlines() == [
        "sparkops: mine is a recipe; its service is chat",
        "  next: Did you mean chat? `sparkops status` lists all.",
    ]


@STARTS_MANY
def test_a_stopped_service_is_forgotten_and_the_same_again_is_nothing_to_do(sparkops: Here) -> None:
    sparkops.peer.write(replace(SERVING, revision=1))

    ran = sparkops("stop", "chat", "--forget", "--json")

    assert (ran.code, ran.json["result"]) == (0, "forgotten")
    assert ran.err.splitlines()[-2:] == ["chat: stopped", "chat: forgotten; its names and port are free"]
    journal = sparkops.peer.journal("chat")
    assert journal is not None
    assert (journal.forgotten, journal.active, journal.previous) == (True, None, None)
    repeated = sparkops("stop", "chat", "--forget")
    assert (repeated.code, repeated.err.splitlines()[-1]) == (0, "chat: nothing to do")
    assert sparkops("history", "chat").code == sparkops("rollback", "chat").code == 2


def test_a_service_is_not_forgotten_before_its_stop_has_ended(sparkops: Here) -> None:
    sparkops.peer.write(SERVING)

    ran = sparkops("stop", "chat", "--forget", "--detach")

    assert ran.code == 2
    assert not sparkops.peer.requests("intend")


def test_a_gateway_is_rebuilt_with_a_service_that_was_stopped(tmp_path: Path) -> None:
    served = serving().journal.active
    stopped = Journal("chat", "here", revision=5, previous=served)
    copies = {
        "leader": "here",
        "journals": [],
        "copies": [wire.plain(Journal, stopped)],
        "heard_ago_s": None,
    }
    answers = {'"restart sparkops-guard"': ""}
    with install(tmp_path, service=Service("chat", 8000), answers=answers) as sparkops:
        (sparkops.peer.directory / "copies").write_text(json.dumps({**copies, "problems": [], "term": 0}))

        ran = sparkops("gateway", "rebuild", "here", "--json")

        journal = sparkops.peer.journal("chat")
    assert ran.code == 0, ran.err
    assert [(service["name"], service["problem"]) for service in ran.json["services"]] == [("chat", None)]
    assert journal is not None
    assert (journal.term, journal.active, journal.previous) == (2, None, served)
