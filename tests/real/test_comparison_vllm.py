"""Comparisons of the real vLLM, ten of each kind: the same weights pass, what only claims to be the same is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sparkops.config import recipe_file
from sparkops.config.inventory import Fleet
from sparkops.engines import endpoints
from sparkops.node.http import direct
from sparkops.serving.comparison import answers, verdict
from sparkops.serving.comparison.answers import Baseline
from sparkops.serving.comparison.asking import Asking, of_new
from sparkops.swap.model import Answer
from tests import checkpoints
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import RECIPE
from tests.real.service import wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.matrix]

RUN = recipe_file.load(RECIPE)
ASKED = answers.questions(RUN)
OLD, NEW = 8100, 8101
TURNS = 10
TEMPLATE = "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}"
VARIANTS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "equal": ("tiny-qwen3", ("--max-num-seqs=8",), ""),
    "noise in one layer": ("tiny-layer", (), "log-probabilities differ by up to"),
    "chat template": ("tiny-qwen3", ("--chat-template=/models/other.jinja",), "log-probabilities differ by up to"),
    "window": ("tiny-qwen3", ("--max-model-len=512",), "the context is 512 tokens, that of the old release 1024"),
}
"""By name: the checkpoint, further arguments, and what of the comparison must be beyond the spread; empty: nothing."""


@pytest.fixture(scope="module")
def image(nodes: RealFleet, fleet: Fleet, built: str, model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image, with the checkpoint on node-1, the same one with noise in one layer, and another chat template."""
    source = checkpoints.make(fleet, "node-1", built, nodes.home / "checkpoints")
    noisy = tmp_path_factory.mktemp("noisy") / "tiny-layer"
    shutil.copytree(source, noisy)
    checkpoints.add_noise(noisy / "model.safetensors", checkpoints.NOISY_LAYER)
    checkpoints.copy(fleet, "node-1", noisy, "tiny-layer")
    assert model == VARIANTS["equal"][0]
    nodes.node("node-1").exec("sh", "-c", "cat > /srv/models/other.jinja", stdin=TEMPLATE.encode())
    return built


@contextmanager
def engine(nodes: RealFleet, image: str, port: int, checkpoint: str, *args: str) -> Iterator[Asking]:
    """A vLLM in a container of node-1 that sparkops does not know."""
    node, name = nodes.node("node-1"), f"compared-{port}"
    env = [f"--env={key}={value}" for key, value in RUN.serve.env.items()]
    mounts = ("--volume=/srv/models:/models:ro", "--network=host", "--entrypoint=vllm", "--shm-size=1g")
    given: dict[str, Any] = {**RUN.serve.args, "served-model-name": RUN.service, "port": port}
    own = [f"--{key}" if value is True else f"--{key}={value}" for key, value in given.items()]
    node.exec(
        "docker",
        "run",
        "--detach",
        f"--name={name}",
        *mounts,
        *env,
        image,
        "serve",
        f"/models/{checkpoint}",
        *own,
        *args,
    )
    try:
        asking = Asking(name, RUN, lambda: direct(node.address, port))
        wait_for(lambda: healthy(asking), 300, 1)
        yield asking
    finally:
        node.exec("docker", "rm", "--force", name)


def healthy(asking: Asking) -> bool:
    with asking.open() as session:
        return endpoints.health(session) is Answer.YES


@pytest.mark.timeout(3600)
def test_ten_comparisons_of_each_kind_end_rightly(nodes: RealFleet, image: str) -> None:
    wrong = list[str]()
    with engine(nodes, image, OLD, "tiny-qwen3") as old:
        for name, (checkpoint, args, what) in VARIANTS.items():
            with engine(nodes, image, NEW, checkpoint, *args) as new:
                for turn in range(TURNS):
                    baseline = Baseline(questions=ASKED, old=old.answers(ASKED))
                    found = verdict.compare(baseline, of_new(new, baseline))
                    print(f"{name}, {turn + 1}: {found.beyond or found.figures}")
                    right = any(what in line for line in found.beyond) if what else not found.beyond
                    wrong += [] if right else [f"{name}, {turn + 1}: {found}"]
    assert not wrong, "\n".join(wrong)
