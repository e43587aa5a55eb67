"""llama-server: its flags, its log, its figures and its answers, as a real one printed them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from sparkops.config import opt_in
from sparkops.engines import ENGINES, metrics
from sparkops.engines.llama_cpp.figures import FIGURES
from sparkops.engines.llama_cpp.flags import FLAGS
from sparkops.engines.llama_cpp.start_log import LOG
from sparkops.engines.load import Load, Rates, rates
from sparkops.engines.start_log import Stage
from sparkops.exchange import Reply
from sparkops.node.docker import commands
from sparkops.serving.memory.bound import bound
from sparkops.serving.smoke import openai
from sparkops.serving.smoke.coverage import planned
from sparkops.serving.smoke.prompts import window_of
from sparkops.serving.startup import causes
from sparkops.serving.startup.explain import explain
from tests.examples import IMAGE_ID, node, rank, recipe

Captured = Callable[[str], str]
PREFIX = "llama-cpp-0.3.36"
IMAGE = {"torch": None, "vllm": None, "template": "llama-cpp"}
MODEL = {"id": "org/q", "path": "q", "file": "q-Q4.gguf"}
OWN: dict[str, Any] = {"engine": "llama-cpp", "image": IMAGE, "model": MODEL}
TAKES = re.compile(r"FILE|FNAME|PATH|DIR\b|URL|SERVERS|repo>")
"""What --help calls values that name files, directories and servers."""


def flags(page: str) -> dict[str, str]:
    """The flags of --help with the name of their value."""
    heads = (re.split(r" {3,}", re.sub(r"^(-\w+,) +", r"\1 ", line))[0] for line in page.splitlines())
    known = {}
    for head in heads:
        names = re.findall(r"--([a-z0-9][a-z0-9.-]*)", head) if re.match(r"-+\w", head) else []
        known.update(dict.fromkeys(names, re.sub(r"-{1,2}[\w.-]+,?", "", head).strip()))
    return known


def test_its_container_gets_the_file_and_separate_words() -> None:
    args = {"ctx-size": 8192, "flash-attn": "on", "kv-unified": True, "warmup": False}
    argv = commands.create(rank(**OWN, serve={"args": args}), node(), IMAGE_ID, jobs=1).argv
    image = argv.index("--entrypoint=llama-server") + 1

    assert " ".join(argv[image + 1 :]) == (
        "--model /models/q/q-Q4.gguf --host 0.0.0.0 --port 8001 --metrics --offline --alias chat "
        "--ctx-size 8192 --flash-attn on --kv-unified --no-warmup"
    )


def test_every_flag_and_effect_is_one_that_llama_server_has(captured: Captured) -> None:
    known = flags(captured(f"{PREFIX}-help.txt"))
    engine = ENGINES["llama-cpp"]

    assert {*FLAGS.harmless, *FLAGS.effects, *engine.taken, engine.window_flag, engine.template_flag} <= set(known)
    assert [flag for flag in FLAGS.harmless if TAKES.search(known[flag])] == []
    assert [flag for flag, value in known.items() if TAKES.search(value) and flag in FLAGS.harmless] == []


def test_every_flag_that_names_a_file_or_server_needs_allow(captured: Captured) -> None:
    known = flags(captured(f"{PREFIX}-help.txt"))
    naming = [flag for flag, value in known.items() if TAKES.search(value)]

    assert len(naming) > 20
    for flag in naming:
        assert list(opt_in.of_flag(flag, "/x", "llama-cpp")), flag


@pytest.mark.parametrize(
    ("args", "env", "problem"),
    [
        ({"tools": "all"}, {}, "tools lets clients run commands and change files in the container"),
        ({"lora": "/models/x.gguf"}, {}, "lora reads a file or directory named in its value"),
        ({}, {"LLAMA_ARG_TOOLS": "all"}, "LLAMA_ARG_TOOLS sets an argument of llama-server"),
        ({}, {"GGML_BACKEND_PATH": "/x.so"}, "GGML_BACKEND_PATH loads a shared library named in its value"),
    ],
)
def test_what_runs_code_or_reads_files_is_refused(args: dict[str, str], env: dict[str, str], problem: str) -> None:
    serve = recipe(**OWN, serve={"args": args, "env": env}).serve

    assert [text.partition(";")[0] for _, text in opt_in.refusals(serve, "llama-cpp")] == [problem]


@pytest.mark.parametrize(
    ("flag", "names"),
    [("chat-template-file", []), ("chat-template", ["chat-template"])],
)
def test_a_chat_template_of_the_image_is_allowed_with_the_flag_that_reads_files(flag: str, names: list[str]) -> None:
    path = "/opt/sparkops/templates/mine.jinja"

    assert [name for name, _ in opt_in.of_flag(flag, path, "llama-cpp")] == []
    assert [name for name, _ in opt_in.of_flag("chat-template-file", "/models/x.jinja", "llama-cpp")] == [
        "chat-template-file"
    ]
    assert [name for name, _ in opt_in.of_flag(flag, path, "vllm")] == ([] if names else ["chat-template-file"])


@pytest.mark.parametrize(
    ("log", "stages"),
    [
        ("cpu-start", [Stage.WEIGHTS, Stage.OPENING, Stage.SERVING]),
        ("cuda-h200-start", [Stage.WEIGHTS, Stage.OPENING, Stage.SERVING]),
        ("cpu-start-verbose", [Stage.WEIGHTS, Stage.KV_CACHE, Stage.WARMING, Stage.OPENING, Stage.SERVING]),
    ],
)
def test_a_start_goes_through_its_stages_in_order(captured: Captured, log: str, stages: list[Stage]) -> None:
    readings = [LOG.read(line) for line in captured(f"{PREFIX}-{log}.log").splitlines()]

    assert list(dict.fromkeys(reading.stage for reading in readings if reading.stage)) == stages
    assert not any(reading.fatal for reading in readings)


@pytest.mark.parametrize(
    ("log", "headline", "cause"),
    [
        (
            "cpu-missing-file",
            "gguf_init_from_file: failed to open GGUF file '/models/q/model.gguf' (No such file or directory)",
            "the file /models/q/model.gguf is missing",
        ),
        (
            "cpu-truncated",
            "llama_model_load: error loading model: tensor 'blk.0.attn_q.weight' data is not within the file bounds, "
            "model is corrupted or incomplete",
            "the GGUF file is truncated",
        ),
        (
            "cpu-no-gguf",
            "gguf_init_from_reader: invalid magic characters: 'NOTG', expected 'GGUF'",
            "the file begins with NOTG: it is no GGUF file",
        ),
        (
            "cpu-architecture",
            "llama_model_load: error loading model: unknown model architecture: 'qwenX'",
            "this build of llama.cpp has no models of the architecture qwenX",
        ),
        (
            "cpu-port-in-use",
            "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8391",
            "another program uses port 8391",
        ),
        (
            "cpu-bad-flag",
            "error: invalid argument: --max-model-len",
            "llama-server has no argument --max-model-len",
        ),
        (
            "cpu-bad-value",
            'error while handling argument "--ctx-size": stoi',
            "llama-server refuses the value of --ctx-size: stoi",
        ),
        (
            "cuda-h200-out-of-memory",
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 19531.25 MiB on device 0: cudaMalloc failed: "
            "out of memory",
            "the memory is too small for the KV cache or context: an allocation of 19531.25 MiB on the GPU failed",
        ),
    ],
)
def test_a_failed_start_has_its_error_and_its_cause(captured: Captured, log: str, headline: str, cause: str) -> None:
    lines = captured(f"{PREFIX}-{log}.log").splitlines()

    assert any(LOG.read(line).fatal for line in lines)
    assert explain(lines, causes.of("llama-cpp")).root == headline
    advice = explain(lines, causes.of("llama-cpp")).advice
    assert advice
    assert (advice.cause, bool(advice.step)) == (cause, True)


def test_its_figures_are_read_from_its_pages(captured: Captured) -> None:
    idle, busy, after = (captured(f"{PREFIX}-metrics-{name}.txt") for name in ("idle", "busy", "after"))

    assert metrics.parse(idle) == Load(running=0, waiting=0, generated=0)
    assert metrics.parse(busy) == Load(running=4, waiting=4, generated=90)
    assert metrics.parse(after) == Load(running=0, waiting=0, generated=12090)
    assert metrics.steps(idle) != metrics.steps(busy) != metrics.steps(after)


def test_what_it_does_not_count_is_unknown() -> None:
    first = {FIGURES.running: 1.0, "llamacpp:tokens_predicted_total": 10.0}
    second = {FIGURES.running: 1.0, "llamacpp:tokens_predicted_total": 30.0}

    assert rates(first, second, 2.0) == Rates(tok_s=10.0)


def answers(captured: Captured) -> Any:
    return json.loads(captured(f"{PREFIX}-answers.json"))


def reply(answer: Any) -> Reply:
    return Reply(answer["status"], ((0.1, answer["body"]),))


def test_its_answers_are_those_that_the_smoke_suite_reads(captured: Captured) -> None:
    given = answers(captured)
    chat = openai.chat(reply(given["What is the capital of France?"]))

    assert [card.name for card in openai.cards(reply(given["/v1/models"]))] == ["tiny"]
    assert (chat.text, chat.prompt_tokens) == ("The capital of France is Paris.", 17)
    assert given["/health while it loads"]["status"] == 503


def test_it_fails_the_checks_that_it_declares_and_a_recipe_skips_them(captured: Captured) -> None:
    given = answers(captured)
    skipped = {check.name: check.why for check in planned(recipe(**OWN)) if not check.runs}

    assert (given["/version"]["status"], given["unknown model"]["status"], given["too long"]["status"]) == (
        404,
        200,
        400,
    )
    assert skipped["version"] == "llama-server has no /version"
    assert skipped["negatives"] == "llama-server answers requests for any model"


def test_its_window_is_its_context_and_no_argument_bounds_its_memory() -> None:
    gpu = recipe(**{**OWN, "image": {**IMAGE, "backend": "cu130"}}, serve={"args": {"ctx-size": 32768}})

    assert (gpu.backend, recipe(**OWN).backend) == ("cu130", "cpu")
    assert window_of(gpu) == 32768
    assert bound(gpu, 121.7) is None
