"""The rules for each stage: what is shipped keeps them, a planted fault is found, an operator's template is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from sparkops.config import assets, recipe_file, shipped
from sparkops.config.image import Image
from sparkops.errors import ConfigError
from sparkops.gateway.image import gateway_dockerfile
from sparkops.guard_client.image import guard_dockerfile
from sparkops.hub.pull import hub_dockerfile
from sparkops.render.context import render
from sparkops.render.dockerfile import MOST, problems
from tests.examples import CUDA, USED, recipe

TEMPLATES = assets.load_templates()
COMMITTED = Path(__file__).parents[2] / "Dockerfiles"
RECIPES = shipped.recipes()
NAMES = sorted(file.stem for file in COMMITTED.glob("*.Dockerfile"))
FILES = pytest.mark.parametrize("name", NAMES)
GPU = recipe(image={"template": "vllm-wheels", "torch": CUDA, "vllm": "vllm==0.23.0"}).image
FINISHED = recipe(image={**USED, "torch": CUDA}).image
PIN = "torch==2.11.0+cu130"
PATIENT = "ENV UV_HTTP_TIMEOUT=600 PIP_DEFAULT_TIMEOUT=600\n"


def shown(text: str, image: Image | None = None) -> list[str]:
    return [f"{line}: {problem}" for line, problem in problems(text, image)]


@cache
def shipped_image(name: str) -> Image | None:
    return recipe_file.load(RECIPES[name]).image if name in RECIPES else None


def committed(name: str) -> str:
    return (COMMITTED / f"{name}.Dockerfile").read_text()


def cut(text: str, line: str, new: str = "") -> list[str]:
    """The text with another line in one stage, for each stage that has it and installs something after it."""
    at = [number for number, one in enumerate(text.split("\n")) if line in one]
    changed = []
    for number in at:
        lines = text.split("\n")
        rest = "\n".join(lines[number:]).partition("\nFROM ")[0]
        if "uv pip install" in rest:
            lines[number] = new or lines[number].replace(line, "A=1")
            changed.append("\n".join(lines))
    return changed


@FILES
def test_every_shipped_dockerfile_passes(name: str) -> None:
    assert shown(committed(name), shipped_image(name)) == []


PLANTED = {
    "no timeout": ("RUN uv pip install --no-deps vllm", "uv runs without UV_HTTP_TIMEOUT"),
    "the default": ("ENV UV_HTTP_TIMEOUT=30\nRUN uv sync --no-deps", "uv runs with UV_HTTP_TIMEOUT=30"),
    "the stage before": ("RUN true \\\n  && exec uv pip install --no-deps x", "uv runs without UV_HTTP_TIMEOUT"),
    "pip": ("RUN python3 -m pip install --no-deps vllm", "pip runs without PIP_DEFAULT_TIMEOUT"),
    "ENV": ("ENV HF_TOKEN=abc", "ENV HF_TOKEN: the history of the image shows this secret"),
    "ARG": ("ARG NEXUS_PASSWORD", "ARG NEXUS_PASSWORD: the history of the image shows this secret"),
    "RUN": ("RUN export API_KEY='abc' && make", "RUN API_KEY: the history of the image shows this secret"),
    "key": ("RUN curl -H 'X: hf_abcdefghijklmnopqrst' x", "RUN contains a Hugging Face token"),
    "file": ("COPY files/id_rsa /root/", "COPY files/id_rsa: a file with keys comes into the image"),
}
"""A fault in a stage of its own, and what is reported."""


@FILES
def test_a_fault_in_another_stage_is_found_in_every_shipped_dockerfile(name: str) -> None:
    found = planted(name, PLANTED.values(), "")

    assert [problem in one for one, (_, problem) in zip(found, PLANTED.values(), strict=True)] == [True] * len(PLANTED)


def planted(name: str, faults: Iterable[tuple[str, str]], before: str) -> list[str]:
    """What is found in a shipped Dockerfile with a stage for each fault; each in the lines of its own stage."""
    text, ends = committed(name), list[int]()
    for lines, _ in faults:
        text += f"FROM debian\n{before}{lines}\n"
        ends.append(text.count("\n"))
    found = shown(text, shipped_image(name))
    lines_of = [int(one.partition(":")[0]) for one in found]
    assert all(end - 3 < line <= end for line, end in zip(lines_of, ends, strict=False))
    return found


TORCH = {
    "no pin": ("RUN uv pip install vllm", "torch"),
    "another torch": ("RUN uv pip install torch==1.0 vllm", "torch"),
    "an override that no one writes": ("ENV UV_OVERRIDE=/opt/none.txt\nRUN uv pip install vllm", "/opt/none.txt"),
    "pip without a pin": ("RUN pip install vllm", "pip installs without a version of torch"),
}


@FILES
def test_a_torch_that_another_stage_may_replace_is_found_in_every_recipe_with_torch(name: str) -> None:
    image = shipped_image(name)

    found = planted(name, TORCH.values(), PATIENT)

    expected = list(TORCH.values()) if image and image.torch else []
    assert [problem in one for one, (_, problem) in zip(found, expected, strict=True)] == [True] * len(expected)


CUTS: dict[str, tuple[str, str, str]] = {
    "timeout": ("UV_HTTP_TIMEOUT=600", "", "without UV_HTTP_TIMEOUT"),
    "override": ("UV_OVERRIDE=/opt/sparkops/override.txt", "", "without UV_OVERRIDE"),
    "file": ('> "$UV_OVERRIDE"', "    && true", "/opt/sparkops/override.txt is not written"),
    "pin": ("TORCH_PIN=", "    TORCH_PIN=torch==1.0", "torch==1.0 is pinned, expected torch=="),
    "no pin": ("TORCH_PIN=", "    TORCH_PIN=numpy", "uv installs without a version of torch"),
    "index": (
        "ARG TORCH_BACKEND=cu130",
        "ARG TORCH_BACKEND=cu128",
        "from the index cu128, expected --torch-backend=cu130",
    ),
}


@FILES
@pytest.mark.parametrize(("line", "new", "problem"), CUTS.values(), ids=CUTS)
def test_a_line_that_is_missing_from_one_stage_is_found_there(name: str, line: str, new: str, problem: str) -> None:
    for text in cut(committed(name), line, new):
        [found] = shown(text, shipped_image(name))

        assert problem in found


def test_each_line_was_missing_somewhere() -> None:
    assert all(any(cut(committed(name), line, new) for name in NAMES) for line, new, _ in CUTS.values())
    assert len([text for name in NAMES for text in cut(committed(name), "UV_HTTP_TIMEOUT=600")]) > 30


CHECKED: list[tuple[str, Image | None, list[str]]] = [
    ("FROM a\nRUN uv --version && uv pip freeze && uv venv /v", None, []),
    ("FROM a\nRUN apt-get install -y uv python3-pip && command -v uv", None, []),
    ("FROM a\nRUN echo 'uv pip install x' && printf uv pip install", None, []),
    ("FROM a\n# RUN uv pip install x", None, []),
    ("FROM a\nRUN echo uv==0.1 > /u.txt && pip install -r /u.txt", None, []),
    ("FROM a\nRUN pip install uv wheel", None, []),
    ("FROM a\nENV UV_HTTP_TIMEOUT 600\nRUN uv sync", None, []),
    ("FROM a\nRUN UV_HTTP_TIMEOUT=600 uv sync", None, []),
    ("FROM a\nRUN export UV_HTTP_TIMEOUT=600 && uv sync", None, []),
    ("FROM a AS one\nENV UV_HTTP_TIMEOUT=600\nFROM one\nRUN uv sync", None, []),
    ("FROM a AS One\nENV UV_HTTP_TIMEOUT=600\nFROM b\nRUN ls\nFROM one\nRUN uv sync", None, []),
    ("ARG BASE=one\nFROM a AS one\nENV UV_HTTP_TIMEOUT=600\nFROM $BASE\nRUN uv sync", None, []),
    ("ARG T=600\nFROM a\nARG T\nENV UV_HTTP_TIMEOUT=${T}\nRUN uv sync", None, []),
    ("FROM a\nARG UV_HTTP_TIMEOUT=600\nRUN uv sync", None, []),
    ("FROM a\nENV HF_TOKEN_PATH=/x MAX_TOKENS=5 HF_TOKEN=\nRUN HF_TOKEN=$(cat /run/secrets/x) make", None, []),
    ("FROM a AS one\nFROM b\nCOPY --from=one /id_rsa /x\nCOPY .env.example ca.pem /x/", None, []),
    ("ARG UV_HTTP_TIMEOUT=600\nFROM a\nRUN uv sync", None, ["3: uv runs without"]),
    ("FROM a AS one\nENV UV_HTTP_TIMEOUT=600\nFROM a\nRUN uv sync", None, ["4: uv runs without"]),
    ("FROM a\nRUN uv sync\nENV UV_HTTP_TIMEOUT=600", None, ["2: uv runs without"]),
    ("FROM a\nENV UV_HTTP_TIMEOUT=$NOTHING\nRUN uv sync", None, ["3: uv runs with UV_HTTP_TIMEOUT=$NOTHING"]),
    (
        "FROM a\nRUN true && \\\n\n  # why\n  cd /x; sudo -E /usr/bin/uv --quiet pip install x",
        None,
        ["2: uv runs without"],
    ),
    ("FROM a\nRUN bash -euc 'cd x && uv sync'", None, ["2: uv runs without"]),
    ('FROM a\nRUN ["uv", "sync"]', None, ["2: uv runs without"]),
    ("FROM a\nRUN if true; then uvx ruff; fi", None, ["2: uv runs without"]),
    ("FROM a\nRUN <<EOF\nset -e\n# first\nuv sync\nEOF\nRUN ls", None, ["2: uv runs without"]),
    ("FROM a\nRUN --network=host bash <<'EOF'\nuv sync\nEOF", None, ["2: uv runs without"]),
    ("FROM a\nCOPY <<EOF /x\nRUN uv sync\nEOF\nRUN uv sync", None, ["5: uv runs without"]),
    ("FROM a\nRUN cat <<EOF > /x\nuv sync\nEOF", None, []),
    ("FROM a\nRUN echo \"it's\" && echo 'open\nRUN uv sync", None, ["3: uv runs without"]),
    ("FROM a\nRUN curl -o x http://u/x 2>/dev/null && uv sync", None, ["2: uv runs without"]),
    (f"FROM a\n{PATIENT}RUN uv pip install {PIN} vllm", GPU, []),
    (f"FROM a\n{PATIENT}RUN uv pip install --torch-backend=cu130 torch==2.11.0 vllm", GPU, []),
    (f"FROM a\n{PATIENT}RUN uv pip install --torch-backend cu130 torch==2.11.0 vllm", GPU, []),
    (f"FROM a\n{PATIENT}ENV UV_TORCH_BACKEND=cu130\nRUN uv pip install torch==2.11.0 vllm", GPU, []),
    (f"FROM a\n{PATIENT}RUN pip install --index-url https://x/whl/cu130 torch==2.11.0 vllm", GPU, []),
    (f"FROM a\n{PATIENT}RUN uv pip install torch==2.11.0 vllm", GPU, ["3: torch comes from any index"]),
    (
        f"FROM a\n{PATIENT}RUN uv pip install --index-url https://x/whl/cpu {PIN}",
        GPU,
        ["3: torch comes from the index cpu"],
    ),
    (f"FROM a\n{PATIENT}RUN uv pip install torch==2.11.0+cpu", GPU, ["3: torch==2.11.0+cpu is pinned, expected"]),
    (f"FROM a\n{PATIENT}RUN uv pip install --reinstall /w/*.whl", GPU, ["3: uv installs without a version of torch"]),
    (f"FROM a\n{PATIENT}RUN uv pip install ninja cmake", GPU, []),
    (f"FROM a\n{PATIENT}RUN uv pip install --no-deps vllm", GPU, []),
    (f"FROM a\n{PATIENT}RUN uv pip install torch==2.11.0 vllm", FINISHED, []),
    (f"FROM a\n{PATIENT}RUN uv pip install vllm", FINISHED, ["3: uv installs without a version of torch"]),
    (f"FROM a\n{PATIENT}COPY files/ /o/\nRUN uv pip install --override /o/x.txt --torch-backend=cu130 vllm", GPU, []),
    (f"FROM a\n{PATIENT}RUN cat <<E > /o.txt\n{PIN}\nE\nRUN uv pip install --override=/o.txt vllm", GPU, []),
    (
        f"FROM a\n{PATIENT}COPY <<E /o.txt\nnumpy\nE\nRUN uv pip install --override=/o.txt vllm",
        GPU,
        ["6: uv installs without"],
    ),
    (f"FROM a\n{PATIENT}RUN echo {PIN} > /c && pip install -c /c vllm", GPU, []),
    (f"FROM a\n{PATIENT}RUN echo x > /o && echo {PIN} >> /o\nENV UV_OVERRIDE=/o\nRUN uv pip install vllm", GPU, []),
    (f"FROM a AS b\n{PATIENT}ENV UV_OVERRIDE=/o\nRUN echo {PIN} > /o\nFROM b\nRUN uv pip install vllm", GPU, []),
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
    "templates/own.Dockerfile.j2:12: stage runner: uv runs without UV_HTTP_TIMEOUT, expected ENV UV_HTTP_TIMEOUT=600 "
    "in this stage, more than 30 seconds",
    "templates/own.Dockerfile.j2:12: stage runner: uv runs without UV_OVERRIDE, expected a file with torch==2.13.0+cpu "
    "as in the other stages",
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

    with pytest.raises(ConfigError, match=rf"^templates/{name}:{line}: stage 0: uv runs without"):
        of(broken)


def test_a_value_that_doubles_itself_stays_small() -> None:
    assert shown("FROM a\nENV A=xxxxxxxx\n" + "ENV A=$A$A\n" * 1000 + "RUN uv sync $A", None)


def test_a_longer_dockerfile_is_refused() -> None:
    assert shown(f"FROM a\n{'#' * MOST}") == [f"1: the Dockerfile has {MOST + 7} characters, expected at most {MOST}"]
