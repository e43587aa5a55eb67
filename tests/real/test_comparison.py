"""A new release is compared with the old one before the switch: an equal one takes over, another one is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.program import Cli
from tests.real.service import QUICK, Service

pytestmark = pytest.mark.fleet

SETTINGS = {**QUICK, "swap.compare": "refuse", "env.STAND_IN_TOK_S": "100"}
TURNS = 10
SMALLER = {"args__max-model-len": "16384"}


@pytest.fixture(scope="module")
def service(front: Cli, nodes: object) -> Iterator[Service]:
    """The stand-in on node-1, at 100 tokens a second."""
    service = Service(front, nodes, settings=SETTINGS)  # type: ignore[arg-type]
    service.sweep()
    first = service.deploy("--node", "node-1", name="first")
    assert (first.code, first.json["mode"]) == (0, "first"), first.err
    yield service
    service.sweep()


def compared(service: Service) -> list[str]:
    """What `history` says of comparisons, oldest first."""
    events = service.cli("history", service.name, "--json").json["events"]
    return [event["text"] for event in events if event["kind"] == "compared"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("argv", "mode"),
    [
        (("--node", "node-1", "--mode", "beside"), "beside"),
        (("--node", "node-1", "--mode", "in-place", "--allow-downtime"), "in-place"),
        (("--node", "node-2", "--mode", "across"), "across"),
    ],
)
@pytest.mark.matrix
def test_an_equal_release_takes_over_under_load_and_its_figures_are_shown(
    service: Service, argv: tuple[str, ...], mode: str
) -> None:
    before = len(compared(service))
    with service.load(rate=10, streams=2) as load:
        load.wait_for(20)
        ran = service.deploy(*argv, name=f"equal-{mode}")
        load.wait_for(20)
        report = load.report()

    assert (ran.code, ran.json["mode"]) == (0, mode), ran.err
    assert report.clean, report
    (found,) = compared(service)[before:]
    assert "the same weights" in found
    assert "log-probabilities differ by up to 0.000" in found
    assert "the same weights" in ran.err


@pytest.mark.timeout(900)
def test_a_release_with_a_smaller_context_is_refused_and_the_old_one_serves_on(service: Service) -> None:
    active = service.journal().active
    assert active
    (node,) = [rank.node for rank in active.heads]
    with service.load(rate=10, streams=2) as load:
        load.wait_for(20)
        ran = service.deploy("--node", node, name="other", **SMALLER)
        load.wait_for(20)
        report = load.report()

    assert ran.code == 1, (ran.json, ran.err)
    assert f"it differs from {active.release}: the context is 16384 tokens, that of the old release 32768" in ran.err
    assert report.clean, report
    assert service.journal().active == active


@pytest.mark.matrix
@pytest.mark.timeout(3600)
def test_of_twenty_releases_ten_that_are_slower_by_30_percent_are_refused(service: Service) -> None:
    ends = list[int]()
    for turn in range(TURNS):
        slow = service.deploy("--node", service.away, name=f"slow-{turn}", TOK_S="70")
        assert slow.code == 0 or "tokens/s, the old release " in slow.err, slow.err
        ends += [slow.code, service.deploy("--node", service.away, name=f"equal-{turn}").code]
    print(compared(service))

    assert ends == [1, 0] * TURNS


@pytest.mark.matrix
@pytest.mark.timeout(900)
def test_a_difference_that_is_only_reported_stops_nothing(service: Service) -> None:
    changes = {**SMALLER, "swap__compare": "report"}
    given = {**SETTINGS, **{key.replace("__", "."): value for key, value in changes.items()}}
    planned = service.cli(
        "plan", service.recipe, *(word for item in given.items() for word in ("--set", "=".join(item)))
    )
    assert "differences are noted" in planned.out

    ran = service.deploy(name="reported", **changes)

    assert ran.code == 0, ran.err
    assert "it differs from" in compared(service)[-1]
