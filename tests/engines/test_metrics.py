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
        ("<html>not found</html>", "invalid metric name:.*"),
    ],
)
def test_a_page_of_something_else_is_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{error}$"):
        metrics.parse(text)
