"""The rules for each stage: what is shipped keeps them, a planted fault is found, an operator's template is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from sparkops.config import assets, recipe_file, shipped
from sparkops.config.image import Image
from sparkops.errors import ConfigError
from sparkops.operator.build.gateway.image import gateway_dockerfile
from sparkops.operator.build.guard.image import guard_dockerfile
from sparkops.operator.build.hub.pull import hub_dockerfile
from sparkops.operator.build.render.context import render
from sparkops.operator.build.render.dockerfile import MOST, problems
from tests.examples import CUDA, USED, recipe
from tests.places import ROOT

TEMPLATES = assets.load_templates()
COMMITTED = ROOT / "Dockerfiles"
RECIPES = shipped.recipes()
NAMES = sorted(file.stem for file in COMMITTED.glob("*.Dockerfile"))
FILES = pytest.mark.parametrize("name", NAMES)
GPU = recipe(image={"template": "vllm-wheels", "torch": CUDA, "vllm": "vllm==0.23.0"}).image
FINISHED = recipe(image={**USED, "torch": CUDA}).image
PIN = "torch==2.11.0+cu130"
PATIENT = "ENV UV_HTTP_TIMEOUT=600\n"


def shown(text: str, image: Image | None = None) -> list[str]:
    return [f"{line}: {problem}" for line, problem in problems(text, image)]


@cache
def shipped_image(name: str) -> Image | None:
    return recipe_file.load(RECIPES[name]).image if name in RECIPES else None


def committed(name: str) -> str:
    return (COMMITTED / f"{name}.Dockerfile").read_text()


@FILES
def test_every_shipped_dockerfile_passes(name: str) -> None:
    assert shown(committed(name), shipped_image(name)) == []


PLANTED = {
    "no timeout": ("RUN true", "UV_HTTP_TIMEOUT is not set"),
    "the default": ("ENV UV_HTTP_TIMEOUT=30\nRUN uv sync", "UV_HTTP_TIMEOUT is 30"),
    "the stage before": ("RUN true \\\n  && exec uv pip install x", "UV_HTTP_TIMEOUT is not set"),
    "a command": (f"{PATIENT}RUN UV_HTTP_TIMEOUT=5 uv sync", "UV_HTTP_TIMEOUT is 5"),
    "ENV": (f"{PATIENT}ENV HF_TOKEN=abc", "ENV HF_TOKEN: the history of the image shows this secret"),
    "ARG": (f"{PATIENT}ARG NEXUS_PASSWORD", "ARG NEXUS_PASSWORD: the history of the image shows this secret"),
    "RUN": (f"{PATIENT}RUN export API_KEY='abc' && make", "RUN API_KEY: the history of the image shows this secret"),
    "key": (f"{PATIENT}RUN curl -H 'X: hf_abcdefghijklmnopqrst' x", "RUN contains a Hugging Face token"),
    "file": (f"{PATIENT}COPY files/id_rsa /root/", "COPY files/id_rsa: a file with keys comes into the image"),
}
"""A fault in a stage of its own, and what is reported."""


@FILES
@pytest.mark.parametrize(("fault", "problem"), PLANTED.values(), ids=PLANTED)
def test_a_fault_in_another_stage_is_found_in_every_shipped_dockerfile(name: str, fault: str, problem: str) -> None:
    image = shipped_image(name)
    if image is None and fault == "RUN true":
        return  # an image of sparkops itself has no uv
    before = committed(name)

    found = shown(before + f"FROM debian\n{fault}\n", image)

    about = [one for one in found if problem in one]
    assert len(about) == 1
    assert all(int(one.partition(":")[0]) > before.count("\n") for one in found)
    assert all(one in about or "UV_OVERRIDE is not set" in one for one in found)


CUTS: dict[str, tuple[str, str, str]] = {
    "timeout": ("UV_HTTP_TIMEOUT=600", "", "UV_HTTP_TIMEOUT is not set"),
    "override": ("UV_OVERRIDE=/opt/sparkops/override.txt", "", "UV_OVERRIDE is not set, expected a file with torch=="),
    "file": ('> "$UV_OVERRIDE"', "    && true", "/opt/sparkops/override.txt is not written"),
    "pin": ("TORCH_PIN=", "    TORCH_PIN=torch==1.0", "torch==1.0 is pinned, expected torch=="),
    "no pin": ("TORCH_PIN=", "    TORCH_PIN=numpy", "no version of torch, expected torch=="),
    "index": ("ARG TORCH_BACKEND=cu130", "ARG TORCH_BACKEND=cu128", "from the index cu128, expected cu130"),
}
"""A line of a stage, what stands there instead, and what is reported."""


def cut(text: str, line: str, new: str) -> Iterator[str]:
    """The text with another line in one stage, for each stage that has it."""
    lines = text.split("\n")
    for number, one in enumerate(lines):
        if line in one:
            yield "\n".join((*lines[:number], new or one.replace(line, "A=1"), *lines[number + 1 :]))


@FILES
@pytest.mark.parametrize(("line", "new", "problem"), CUTS.values(), ids=CUTS)
def test_a_line_that_is_missing_from_one_stage_is_found_there(name: str, line: str, new: str, problem: str) -> None:
    for text in cut(committed(name), line, new):
        [found] = shown(text, shipped_image(name))

        assert problem in found


def test_each_line_was_missing_somewhere() -> None:
    assert all(any([*cut(committed(name), line, new)] for name in NAMES) for line, new, _ in CUTS.values())
    stages = sum(committed(name).count("\nFROM ") for name in NAMES if shipped_image(name))
    assert sum(len([*cut(committed(name), "UV_HTTP_TIMEOUT=600", "")]) for name in NAMES) == stages


HELD = f"{PATIENT}ENV UV_OVERRIDE=/o\n"
CHECKED: list[tuple[str, Image | None, list[str]]] = [
    ("FROM a\nRUN apt-get update", None, []),
    ("FROM a\n# RUN uv pip install x", None, []),
    ("FROM a\nENV UV_HTTP_TIMEOUT 600\nRUN uv sync", None, []),
    ("FROM a AS one\nENV UV_HTTP_TIMEOUT=600\nFROM one\nRUN uv sync", None, []),
    ("FROM a AS One\nENV UV_HTTP_TIMEOUT=600\nFROM b\nRUN ls\nFROM one\nRUN uv sync", None, []),
    ("FROM a\nARG UV_HTTP_TIMEOUT=600\nRUN uv sync", None, []),
    ("FROM a\nENV HF_TOKEN_PATH=/x MAX_TOKENS=5 HF_TOKEN=\nRUN HF_TOKEN=$(cat /run/secrets/x) make", None, []),
    ("FROM a AS one\nFROM b\nCOPY --from=one /id_rsa /x\nCOPY .env.example ca.pem /x/", None, []),
    ("ARG UV_HTTP_TIMEOUT=600\nFROM a\nRUN uv sync", None, ["3: UV_HTTP_TIMEOUT is not set"]),
    ("FROM a AS one\nENV UV_HTTP_TIMEOUT=600\nFROM a\nRUN uv sync", None, ["4: UV_HTTP_TIMEOUT is not set"]),
    ("FROM a\nRUN uv sync\nENV UV_HTTP_TIMEOUT=600", None, ["2: UV_HTTP_TIMEOUT is not set"]),
    ("FROM a\nENV UV_HTTP_TIMEOUT=$NOTHING\nRUN uv sync", None, ["3: UV_HTTP_TIMEOUT is $NOTHING"]),
    ("FROM a\nRUN true && \\\n\n  # why\n  cd /x; sudo -E /usr/bin/uv sync", None, ["2: UV_HTTP_TIMEOUT is not set"]),
    ('FROM a\nRUN ["uv", "sync"]', None, ["2: UV_HTTP_TIMEOUT is not set"]),
    ("FROM a\nRUN if true; then uvx ruff; fi", None, ["2: UV_HTTP_TIMEOUT is not set"]),
    ("FROM a\nRUN <<EOF\nset -e\n# first\nuv sync\nEOF\nRUN ls", None, ["2: UV_HTTP_TIMEOUT is not set"]),
    ("FROM a\nCOPY <<EOF /x\nFROM b\nEOF\nRUN uv sync", None, ["5: UV_HTTP_TIMEOUT is not set"]),
    ("FROM a\nRUN echo \"it's\" && echo 'open\nRUN uv sync", None, ["3: UV_HTTP_TIMEOUT is not set"]),
    ("FROM a", GPU, ["1: UV_HTTP_TIMEOUT is not set", "1: UV_OVERRIDE is not set"]),
    (f"FROM a\n{PATIENT}RUN ls", GPU, ["1: UV_OVERRIDE is not set"]),
    (f"FROM a\n{HELD}RUN ls", GPU, ["1: /o is not written"]),
    (f"FROM a\n{HELD}RUN echo {PIN} > /o", GPU, []),
    (f"FROM a\n{HELD}RUN uv sync\nRUN echo {PIN} > /o", GPU, ["4: /o is not written"]),
    (f"FROM a\n{HELD}COPY <<E /o\n{PIN}\nE", GPU, []),
    (f"FROM a\n{HELD}COPY <<E /o\nnumpy\nE", GPU, ["1: no version of torch"]),
    (f"FROM a\n{HELD}RUN echo torch==2.11.0 > /o && uv sync --torch-backend=cu130", GPU, []),
    (f"FROM a\n{HELD}RUN echo torch==2.11.0 > /o && uv sync --torch-backend cu130", GPU, []),
    (f"FROM a\n{HELD}ENV UV_TORCH_BACKEND=cu130\nRUN echo torch==2.11.0 > /o", GPU, []),
    (f"FROM a\n{HELD}RUN echo torch==2.11.0 > /o", GPU, ["1: torch comes from any index"]),
    (f"FROM a\n{HELD}RUN echo torch==2.11.0 > /o", FINISHED, []),
    (
        f"FROM a\n{HELD}RUN echo {PIN} > /o\nRUN pip install -i https://x/whl/cpu x",
        GPU,
        ["5: torch comes from the index"],
    ),
    (f"FROM a\n{HELD}RUN echo {PIN} > /o\nRUN pip install torch==2.11.0+cpu", GPU, ["5: torch==2.11.0+cpu is pinned"]),
    (f"FROM a AS b\n{HELD}RUN echo {PIN} > /o\nFROM b\nRUN uv pip install vllm", GPU, []),
]


@pytest.mark.parametrize(("text", "image", "expected"), CHECKED, ids=[text for text, _, _ in CHECKED])
def test_a_stage_is_read_as_docker_reads_it(text: str, image: Image | None, expected: list[str]) -> None:
    found = [one.replace(": stage 0: ", ": ").replace(": stage 1: ", ": ") for one in shown(text, image)]

    assert len(found) == len(expected)
    for one, beginning in zip(found, expected, strict=True):
        assert one.startswith(beginning)


OWN = """{% import "macros.j2" as macros %}
{# A template
of an operator #}
{{ macros.header(recipe) }}
{{ macros.stage(recipe, "builder", []) }}
{{ macros.venv(recipe) }}
{{ macros.install(recipe, [recipe.image.vllm]) }}

FROM {{ recipe.image.base | image }} AS runner
COPY --from=builder /opt/venv /opt/venv
{% for package in recipe.image.packages %}
RUN uv pip install \\
      {{ package | requirement }}
{% endfor %}
ENV HF_TOKEN=abc
{{ macros.finish(recipe) }}
"""
PROBLEMS = [
    "templates/own.Dockerfile.j2:12: stage runner: UV_HTTP_TIMEOUT is not set, expected ENV UV_HTTP_TIMEOUT=600, more "
    "than 30 seconds",
    "templates/own.Dockerfile.j2:12: stage runner: UV_OVERRIDE is not set, expected a file with torch==2.13.0+cpu",
    "templates/own.Dockerfile.j2:15: ENV HF_TOKEN: the history of the image shows this secret, expected RUN "
    "--mount=type=secret",
]


def test_a_problem_has_the_line_of_the_template() -> None:
    own = recipe(image={"template": "own", "packages": ["numpy==2.0"]})

    with pytest.raises(ConfigError) as caught:
        render(own, {**TEMPLATES, "own.Dockerfile.j2": OWN})

    assert (str(caught.value).split("\n"), caught.value.exit_code) == (PROBLEMS, 2)


@pytest.mark.parametrize("of", [gateway_dockerfile, guard_dockerfile, hub_dockerfile], ids=lambda of: of.__name__)
def test_images_of_sparkops_itself_are_checked(of: Callable[[dict[str, str]], str]) -> None:
    kind = of.__name__.removesuffix("_dockerfile")
    name = f"{kind}/Dockerfile.j2"
    broken = {**TEMPLATES, name: TEMPLATES[name] + "RUN uv sync\n"}
    line = broken[name].count("\n")

    with pytest.raises(ConfigError, match=rf"^templates/{name}:{line}: stage 0: UV_HTTP_TIMEOUT is not set"):
        of(broken)


def test_a_longer_dockerfile_is_refused() -> None:
    assert shown(f"FROM a\n{'#' * MOST}") == [f"1: the Dockerfile has {MOST + 7} characters, expected at most {MOST}"]
