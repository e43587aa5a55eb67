"""The engine builds its configuration on the node before a deploy stops anything: what is asked, and what is said."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from sparkops.command import Command, Completed
from sparkops.config import assets, inventory, recipe_file
from sparkops.config.release import Rank, Release
from sparkops.errors import Busy, CommandFailed, NotReady
from sparkops.names import Slot
from sparkops.node.member import Member
from sparkops.node.node import OnLine
from sparkops.operator.deploy import configuration
from sparkops.operator.deploy.preconditions import Observed
from sparkops.operator.fleet.guards import leases
from tests.examples import CHECKPOINT, HOST, IMAGE_ID, INPUTS, RECIPE, container, node, rank

SCRIPT = assets.load_parser("vllm")
STEPS = dict.fromkeys(configuration.STEPS, "")
ACCEPTED = (
    "accepted by the engine: config.json, number of ranks, draft model, tokenizer, chat template, adapters, "
    "settings of the engine"
)


@dataclass
class Docker:
    """A node whose engine answers `answer`; a number: its container ends with this code."""

    answer: dict[str, Any] | int
    asked: list[tuple[str, ...]] = field(default_factory=list)
    name: str = "n1"
    cancel: threading.Event = field(default_factory=threading.Event)

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        """See Node.run."""
        _ = stdin, on_line
        self.asked.append(command.argv)
        if isinstance(self.answer, int):
            raise CommandFailed(Completed(self.name, command, self.answer, "", "no vllm"))
        return Completed(self.name, command, 0, f"a warning\n{json.dumps(self.answer)}", "")


def said(problem: str = "", unjudged: str = "", **steps: str) -> dict[str, Any]:
    of = {"q": unjudged} if unjudged else {}
    return {"problems": {"q": problem}, "faults": {}, "unjudged": of, "steps": {"q": {**STEPS, **steps}}}


Check = Callable[..., configuration.Checked | None]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """The check of a recipe on one node."""
    (tmp_path / "inventory.yaml").write_text("nodes: {n1: {address: 10.0.0.1}}")
    fleet = inventory.load(tmp_path / "inventory.yaml")
    monkeypatch.setattr(leases, "on_node", lambda *_: nullcontext())

    def make(docker: Docker, on: Observed | None = None, **changes: Any) -> configuration.Checked | None:
        file = tmp_path / "q.yaml"
        file.write_text(yaml.safe_dump({**RECIPE, **changes}))
        of = Rank(Release(recipe_file.load(file), INPUTS), Slot.BLUE, "n1")
        seen = on or Observed(node(), HOST, (), IMAGE_ID, CHECKPOINT)
        member = Member("n1", node(), docker, docker)  # type: ignore[arg-type]  # one object for both
        connected = SimpleNamespace(fleet=fleet, member=lambda _: member)
        plan = SimpleNamespace(ranks=[of], nodes={"n1": seen}, release=of.release)
        return configuration.check(connected, plan, SCRIPT, lambda _: None)  # type: ignore[arg-type]  # what it reads

    return make


def test_the_engine_reads_the_model_with_little_memory_and_without_network(check: Check) -> None:
    docker = Docker(said())

    assert str(check(docker)) == f"n1: configuration: {ACCEPTED}"
    words = docker.asked[0]
    assert {"--network=none", "--memory=4g", "--volume=/srv/models:/models:ro"} <= {*words}
    assert not any("gpu" in word for word in words)


def test_what_was_accepted_is_not_asked_again_until_image_arguments_or_files_change(check: Check) -> None:
    docker = Docker(said())
    check(docker)

    assert str(check(docker)) == "n1: configuration: accepted by the engine"
    assert len(docker.asked) == 1
    check(docker, serve={"args": {"seed": 1}})
    changed = replace(CHECKPOINT, files={**CHECKPOINT.files, "config.json": (9, 9)})
    check(docker, Observed(node(), HOST, (), IMAGE_ID, changed))
    check(docker, Observed(node(), HOST, (), f"sha256:{'9' * 64}", CHECKPOINT))
    assert len(docker.asked) == 4


def test_what_the_engine_refuses_is_refused_before_anything_stops(check: Check) -> None:
    reason = "model type `gemma9` but Transformers does not recognize this architecture"
    docker = Docker(said(reason, config=reason))

    for _ in range(2):  # a refusal is not noted: files may be corrected
        with pytest.raises(NotReady) as refused:
            check(docker)

    assert refused.value.exit_code == 5
    assert "the engine refuses its configuration, and would end at its start:\n" in str(refused.value)
    assert str(refused.value).endswith(f": model.id: {reason}")
    assert "image.vllm" in refused.value.next_step
    assert len(docker.asked) == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (said(unjudged="a file of the node"), "a file of the node"),
        (1, "it does not run: no vllm"),
        (137, "it does not run (killed: it needs more memory): no vllm"),
        ({"other": 1}, "expected one JSON object on the last line"),
    ],
)
def test_what_cannot_be_judged_is_said_and_refuses_nothing(check: Check, answer: Any, why: str) -> None:
    found = check(Docker(answer))

    assert found
    assert found.result.startswith("not checked")
    assert why in found.result


def test_where_memory_lacks_it_is_not_made_and_says_so(check: Check) -> None:
    docker = Docker(said())
    full = replace(HOST, memory_total_gib=121.7, memory_available_gib=7.0)

    found = check(docker, Observed(node(), full, (), IMAGE_ID, CHECKPOINT))

    assert str(found) == "n1: configuration: not checked: it may take 4 GiB, and 3.0 GiB are free above the 4.0 kept"
    assert docker.asked == []


def test_a_recipe_may_leave_it_out_and_a_loading_engine_goes_first(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = Docker(said())

    left_out = check(docker, probe={"startup": {"configuration": False}})
    assert left_out
    assert left_out.result == "not checked: probe.startup.configuration is false"

    def busy(*_: object) -> None:
        raise Busy("n1: an engine loads")

    monkeypatch.setattr(leases, "on_node", busy)
    loading = check(docker)
    assert loading
    assert loading.result == "not checked: n1: an engine loads"
    assert docker.asked == []


def test_an_engine_that_runs_or_cannot_be_asked_is_not(check: Check) -> None:
    docker = Docker(said())

    assert check(docker, Observed(node(), HOST, (container(rank()),), IMAGE_ID, CHECKPOINT)) is None
    assert check(docker, Observed(node(), HOST, (), None, CHECKPOINT)) is None
    assert docker.asked == []


def test_what_needs_the_gpu_is_named_beside_what_was_accepted(check: Check) -> None:
    found = check(Docker(said(engine_settings="not checked without a GPU: they depend on the GPU")))

    assert found
    assert found.result.startswith("accepted by the engine: config.json, ")
    assert found.result.endswith("; settings of the engine: not checked without a GPU: they depend on the GPU")
