"""vLLM's /metrics."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkops.engines import metrics
from sparkops.engines.load import Load

RUNNING = "vllm:num_requests_running or sglang:num_running_reqs or llamacpp:requests_processing"


def test_a_whole_page(captured: Callable[[str], str]) -> None:
    assert metrics.parse(captured("vllm-0.32.0-cpu-metrics.txt")) == Load(running=0, waiting=0, generated=8)


def test_the_engines_of_one_server_are_added_up() -> None:
    text = "".join(
        f'vllm:num_requests_running{{engine="{engine}"}} {engine + 1}.0\n'
        f'vllm:num_requests_waiting{{engine="{engine}"}} 3.0\n'
        f'vllm:generation_tokens_total{{engine="{engine}"}} 1e+02\n'
        for engine in (0, 1)
    )

    assert metrics.parse(text) == Load(running=3, waiting=6, generated=200)


def test_what_an_engine_does_not_say_is_0() -> None:
    assert metrics.parse("vllm:num_requests_running 2.0\n") == Load(running=2, waiting=0, generated=0)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", f"no {RUNNING} among the metrics"),
        ("process_cpu_seconds_total 1.0\n", f"no {RUNNING} among the metrics"),
        ("<html>not found</html>", f"no {RUNNING} among the metrics"),
        ('vllm:num_requests_running{engine="0} 1\n', "invalid.*|.*not .*"),
        ("vllm:num_requests_running 1\n" * 10_001, "more than 10000 lines of figures"),
    ],
)
def test_a_page_of_something_else_is_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{error}$"):
        metrics.parse(text)


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running{" + ",".join(f'a{number}="b"' for number in range(40_000)) + "} 1",
        "# HELP vllm:num_requests_running " + "\\" * 400_000,
        "\n".join(f"a{number} 1" for number in range(1_000_000)),
    ],
    ids=["labels", "help", "families"],
)
def test_what_is_no_figure_of_an_engine_is_not_parsed(line: str) -> None:
    page = f"{line}\nvllm:num_requests_waiting 3.0\nvllm:num_requests_running 2.0\n"

    assert metrics._lines(page) == ["vllm:num_requests_waiting 3.0", "vllm:num_requests_running 2.0"]
    assert metrics.parse(page) == Load(running=2, waiting=3, generated=0)


def test_a_counter_without_total_in_its_name_is_read(captured: Callable[[str], str]) -> None:
    page = captured("vllm-0.32.0-cpu-metrics.txt").replace("generation_tokens_total", "generation_tokens")

    assert metrics.parse(page).generated == 8
