"""Each rule of Dockerfiles finds what it is for, on the right line, and nothing where all is well."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkops.lint.check import check_dockerfile, findings
from sparkops.lint.finding import LintFinding
from sparkops.lint.rules.table import NAMES, RULES
from tests.lint.cases import CUDA, FAILING, HELD, KEY, PASSING, PATIENT, SLIM, TOKEN

FRAGMENTS = st.sampled_from(
    [
        *"\n\n\n\n \\`'\"$()<>|&;{}#=",
        *("FROM a:1", "RUN ", "ENV A=$A$A", "ARG ", "ONBUILD ", "COPY ", " AS b", "<<EOF", "EOF", "\\\n", '["a"]'),
        *("uv pip install ", "--override ", "*.whl", "torch==1", "${A:-", "$(", "curl x", "| sh", "git clone h:x"),
        *("case x in", "esac", "for w in ", "bash -c '", "# sparkops: ignore=", "--mount=from=", "nvcc x", "env -u"),
    ]
)


def lint(text: str, *rules: str) -> list[LintFinding]:
    return findings([check_dockerfile(text, "Dockerfile")], rules or NAMES)


def cases(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(rule, text) for rule, texts in table.items() for text in texts]


@pytest.mark.parametrize(("rule", "text", "lines"), [(r, *case) for r, cases in FAILING.items() for case in cases])
def test_a_rule_finds_what_it_is_for(rule: str, text: str, lines: list[int]) -> None:
    assert [finding.line for finding in lint(text, rule)] == lines


@pytest.mark.parametrize(("rule", "text"), cases(PASSING))
def test_a_rule_lets_pass_what_is_right(rule: str, text: str) -> None:
    assert lint(text, rule) == []


def test_every_rule_of_dockerfiles_has_a_failing_and_a_passing_case() -> None:
    checked = {rule.name for rule in RULES if rule.check}

    assert checked == set(FAILING) == set(PASSING)


def test_the_finding_names_the_stage_with_the_variable() -> None:
    text = f"{CUDA} AS one\n{PATIENT}\nRUN uv sync\n{CUDA} AS two\nRUN uv sync\n"

    (finding,) = lint(text, "uv-timeout")

    assert f"{finding.file}:{finding.line}: {finding.rule}: {finding.problem}" == (
        "Dockerfile:5: uv-timeout: stage two runs uv without UV_HTTP_TIMEOUT and UV_HTTP_RETRIES, expected them in "
        "the stage itself: stage one sets UV_HTTP_TIMEOUT, and FROM nvidia/cuda:13.0.2-devel-ubuntu24.04 does not "
        "inherit it"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"ARG UV_HTTP_TIMEOUT=9\n{SLIM}\nRUN uv sync", "ARG before the first FROM has no effect in a stage"),
        (f"{SLIM}\nRUN uv sync\n{PATIENT}", "UV_HTTP_TIMEOUT is set after this line"),
        (f"{SLIM}\nENV UV_HTTP_TIMEOUT=20\nRUN uv sync", "or to at most 30, the default of uv"),
    ],
)
def test_a_variable_that_is_set_and_does_not_reach_uv_is_explained(text: str, expected: str) -> None:
    assert expected in lint(text, "uv-timeout")[0].problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{CUDA}\nRUN uv pip install vllm", "installs vllm without a torch pin"),
        (f"{CUDA}\nRUN uv pip install torch==2.11.0", "pins torch==2.11.0 without a build"),
        (f"{CUDA}\nRUN uv pip install torch==2.11.0+cpu", "pins torch==2.11.0+cpu on the CUDA image nvidia/cuda:13"),
        (
            f"{CUDA} AS a\n{HELD}\nRUN uv pip install vllm\n{CUDA} AS b\nRUN uv pip install torch==2.10.0+cu130",
            "stage b pins torch 2.10.0+cu130, and stage a 2.11.0+cu130",
        ),
    ],
)
def test_the_problem_of_a_pin_is_reported(text: str, expected: str) -> None:
    (finding,) = lint(text, "torch-pin")

    assert expected in finding.problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{CUDA}\nRUN uv pip install vllm", "vllm is installed without --override or UV_OVERRIDE"),
        (f"{CUDA}\nRUN pip install vllm", "vllm is installed without --constraint or PIP_CONSTRAINT"),
        (f"{CUDA}\nENV UV_OVERRIDE=/o\nRUN uv pip install vllm", "stage 0 does not write /o"),
        (f"{CUDA}\nENV UV_OVERRIDE=/o\nRUN echo a > /o\nRUN uv pip install vllm", "/o does not pin torch"),
    ],
)
def test_the_problem_of_an_override_is_reported(text: str, expected: str) -> None:
    assert expected in lint(text, "torch-override")[0].problem


@pytest.mark.parametrize("secret", [TOKEN, KEY, "pa55word"])
def test_no_finding_shows_a_secret(secret: str) -> None:
    text = (
        f"FROM https://me:{secret}@h/x\nENV TOKEN={secret} X={secret}\n"
        f"RUN git clone https://me:{secret}@h/x\nRUN uv pip install git+https://{secret}@h/x vllm"
    )

    output = " ".join(f"{finding.problem} {finding.fix}" for finding in lint(text))

    assert "git clone https://***@h/x uses" in output
    assert secret not in output


@given(st.lists(FRAGMENTS, max_size=60).map("".join))
def test_no_text_stops_the_rules_and_each_finding_is_in_the_file(text: str) -> None:
    last = text.count("\n") + 1

    assert all(1 <= finding.line <= last for finding in lint(text))


def test_a_value_that_doubles_itself_is_not_followed() -> None:
    text = f"{SLIM}\nENV A=xxxxxxxx\n" + "ENV A=$A$A\n" * 200 + "RUN uv pip install $A"

    assert len(lint(text, "uv-timeout")[0].problem) < 1000


@pytest.mark.local
def test_a_chain_of_very_many_stages_is_followed_to_its_end() -> None:
    chain = "".join(f"FROM s{n} AS s{n + 1}\n" for n in range(1500))

    assert lint(f"{SLIM} AS s0\n{PATIENT}\n{chain}RUN uv sync", "uv-timeout", "latest") == []
