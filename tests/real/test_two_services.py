"""Two services on one node after a boot: a third one takes no memory that one of them waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from sparkops.swap.intents import Deploy
from sparkops.swap.model import Mode
from tests.real.endings import good_end
from tests.real.service import Service, unused, wait_for
from tests.real.test_faults import available_gib

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]

NODE = "node-2"
SHARE = 0.6
"""Share of the node's available memory that each of three services claims: the node has room for none beside two."""
START_S = "25"


@pytest.fixture
def services(stand_in: Service, tmp_path: Path) -> Iterator[list[Service]]:
    """Three services of the stand-in, with images on one node, none of which runs."""
    stand_in.sweep()
    made = []
    with ExitStack() as sweeps:
        for number, name in enumerate(("agent", "chat", "third")):
            recipe, port = tmp_path / f"{name}.yaml", 9300 + 10 * number
            words = {"description": "One of three", "verified": "nothing"}
            own = {"name": name, "extends": "stand-in", "service": name, "serve": {"port": port}, **words}
            recipe.write_text(yaml.safe_dump(own))
            service = replace(stand_in, recipe=str(recipe), name=name, port=port)
            service.sweep()
            sweeps.callback(service.sweep)
            built = service.cli("build", service.recipe, "--node", NODE)
            assert built.code == 0, built.err
            made.append(service)
        yield made


def test_a_third_service_takes_no_memory_that_another_waits_for_after_a_boot(services: list[Service]) -> None:
    *two, third = services
    node = third.nodes.node(NODE)
    claim = {"memory__claim_gib": f"{SHARE * available_gib(node):.1f}", "START_S": START_S}
    third.anew("--node", NODE, **claim)
    known = third.journal().active
    assert known
    stopped = third.cli("stop", third.name)
    assert stopped.code == 0, stopped.err
    for service in two:
        deployed = service.deploy("--node", NODE, **claim)
        assert deployed.code == 0, deployed.err
    before = {service.name: service.running()[0] for service in two}

    node.reboot(graceful=False)
    wait_for(lambda: any(service.running() for service in two))
    refused = third.deploy("--node", NODE, name="planned", **claim)
    waiting = [service for service in two if not service.running()]
    sent = third.intend(Deploy(unused(), third.journal().revision, known, Mode.FIRST))
    print(f"\nthird service: {refused.err.strip()}\nthe same past the plan: {sent}")

    assert refused.code == 5, refused.err
    assert [service.name for service in waiting], "both run already: the plan was not tried in time"
    (waits,) = waiting
    assert f" for {before[waits.name].name}, which starts again" in refused.err
    assert sent["result"] == "accepted", sent
    wait_for(lambda: all(service.running() for service in services))
    for service in two:
        assert good_end(service) == before[service.name].release
    after = [service.running()[0] for service in two]
    assert all(engine.started_at > before[engine.service].started_at for engine in after)
    (late,) = third.running()
    assert late.started_at > max(engine.started_at for engine in after)
    assert [service.running()[0].started_at for service in two] == [engine.started_at for engine in after]
