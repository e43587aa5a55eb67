"""Whether an engine that owes an answer still works on it, against real servers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from sparkops.engines.vllm.figures import STEPS
from sparkops.exchange import Request
from sparkops.guard.follow.smoke_runs import light_pass
from sparkops.names import Slot
from sparkops.serving.engine_spec import EngineSpec, rank_spec
from sparkops.serving.smoke.client import Client, StallDetector
from sparkops.swap.model import Deployment, Replica
from tests.examples import IMAGE_ID, INPUTS, recipe
from tests.serving.smoke.server import Play, Player, head, to, whole

ASKED = Request("/v1/chat/completions", {"q": "?"}, timeout_s=60.0)
STOPPED = "no engine step for 0 s"
POLLS = 5


def page(name: str, value: float) -> bytes:
    """A page of metrics on which one figure has a value, and the others never change."""
    figures = {**dict.fromkeys(STEPS, 1.0), name: value}
    text = "".join(f"{name} {figures[name]}\n" for name in STEPS).encode()
    return head(200, f"Content-Length: {len(text)}") + text


def beating(name: str) -> Callable[[], bytes]:
    """Pages on which one figure grows."""
    values = count()
    return lambda: page(name, next(values))


def plays(pages: Callable[[], bytes]) -> Play:
    """A server with these metrics, which answers once they were read POLLS times."""
    reads, answers = count(1), threading.Event()

    def play(connection: socket.socket, text: str) -> None:
        if text.startswith("GET /metrics"):
            connection.sendall(pages())
            if next(reads) == POLLS:
                answers.set()
        else:
            answers.wait(60.0)
            connection.sendall(whole("here"))

    return play


def stops(pages: Callable[[], bytes]) -> str:
    """Return the report of a detector without patience: every poll must show a step."""
    with Player(plays(pages)).up() as player:
        detector = StallDetector(to(player.port), 0.0, poll_s=0.0)
        problems = [detector.problem() for _ in range(POLLS)]
        return problems[-1]


@pytest.mark.parametrize("name", STEPS)
def test_each_figure_alone_is_a_sign_of_work(name: str) -> None:
    assert stops(beating(name)) == ""


def test_an_engine_whose_figures_stand_still_has_stopped() -> None:
    assert stops(lambda: page(STEPS[0], 1.0)) == STOPPED


def test_an_engine_that_does_not_even_say_what_it_counts_has_stopped() -> None:
    assert stops(lambda: b"") == STOPPED


@pytest.mark.parametrize("pages", [whole("no", 404), whole("<html>")], ids=["404", "a page of something else"])
def test_one_without_metrics_is_not_judged(pages: bytes) -> None:
    assert stops(lambda: pages) == ""


@pytest.mark.parametrize(("beats", "problem"), [(True, ""), (False, STOPPED)])
def test_the_client_waits_for_an_engine_that_works_and_gives_up_one_that_hangs(beats: bool, problem: str) -> None:
    pages = beating(STEPS[3]) if beats else lambda: page(STEPS[3], 0.5)
    with Player(plays(pages)).up() as player:
        open_ = to(player.port)
        (reply,) = Client(open_, watch=lambda: StallDetector(open_, 0.0, poll_s=0.0)).send([ASKED])

    assert (reply.problem, reply.status) == (problem, 200 if beats else 0)


def release_at(port: int, **smoke: Any) -> Deployment:
    """A release whose engine answers at a port of this machine, with these settings of the smoke suite."""
    changes = {"serve": {"port": port - 1}, "probe": {"smoke": smoke}}  # blue's port follows the service's
    data = recipe(**changes).model_dump(mode="json", exclude_defaults=True)
    given = {"recipe": data, "inputs": INPUTS, "image": IMAGE_ID, "slot": Slot.BLUE, "index": 0, "jobs": 1}
    spec = EngineSpec.model_validate({**given, "address": "127.0.0.1", "node": {"transport": "local"}})
    return Deployment("q-1", Slot.BLUE, (Replica((rank_spec(spec, "n1"),)),))


@pytest.mark.parametrize(("beats", "failure"), [(True, ""), (False, "no answer within 4 s")])
def test_an_engine_that_is_too_busy_to_answer_in_time_is_not_wrong_while_it_makes_steps(
    beats: bool, failure: str
) -> None:
    pages = beating(STEPS[3]) if beats else lambda: page(STEPS[3], 0.5)
    over = threading.Event()

    def play(connection: socket.socket, text: str) -> None:
        if text.startswith("POST"):
            over.wait(60.0)
        else:
            connection.sendall(pages() if text.startswith("GET /metrics") else whole("here"))

    with Player(play).up() as player:
        problem = light_pass(release_at(player.port, timeout_s=4.0))
        over.set()

    assert problem == (failure and f"questions: {failure}")


@pytest.mark.parametrize("enabled", [True, False])
def test_a_release_in_service_is_not_judged_by_questions_that_its_recipe_disables(enabled: bool) -> None:
    with Player(lambda connection, _: connection.sendall(whole("no answer that anybody expects"))).up() as player:
        problem = light_pass(release_at(player.port, questions={"enabled": enabled}))

    assert bool(problem) is enabled
