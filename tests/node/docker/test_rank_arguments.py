"""How each engine is told what to serve."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from sparkops.engines import ENGINES, EngineName
from sparkops.node.docker import commands, ranks
from tests.examples import IMAGE_ID, node, rank

IMAGE = {"torch": None, "vllm": None}


@pytest.mark.parametrize(
    ("args", "argv"),
    [
        ({}, []),
        ({"max-model-len": 1024}, ["--max-model-len=1024"]),
        ({"gpu-memory-utilization": 0.9}, ["--gpu-memory-utilization=0.9"]),
        ({"chat-template": "a b.jinja"}, ["--chat-template=a b.jinja"]),
        ({"enforce-eager": True}, ["--enforce-eager"]),
        ({"enable-prefix-caching": False}, ["--no-enable-prefix-caching"]),
        ({"lora-modules": ["a", 1, {"name": "b"}, -1]}, ["--lora-modules", "a", "1", '{"name": "b"}', "-1"]),
        ({"allowed-origins": ["*", "b"]}, ['--allowed-origins=["*", "b"]']),
        ({"middleware": ["a.B", "c.D"]}, ["--middleware=a.B", "--middleware=c.D"]),
        (
            {"compilation-config.cudagraph_capture_sizes": [1, 2]},
            ["--compilation-config.cudagraph_capture_sizes=[1, 2]"],
        ),
        ({"speculative-config": {"method": "mtp", "n": 2}}, ['--speculative-config={"method": "mtp", "n": 2}']),
        ({"n": 1, "x": 0}, ["--n=1", "--x=0"]),
        ({"b": "1", "a": "2"}, ["--b=1", "--a=2"]),
    ],
    ids=str,
)
def test_arguments_of_vllm(args: dict[str, Any], argv: list[str]) -> None:
    assert list(ENGINES["vllm"].form.words(args)) == argv


def test_a_flag_that_is_off_is_written_as_its_engine_reads_it() -> None:
    assert list(ENGINES["atlas"].form.words({"exact-verify": False})) == ["--exact-verify=false"]


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("vllm", "serve /models/q --host=0.0.0.0 --port=8001 --served-model-name=chat --max-num-seqs=4"),
        ("stand-in", "serve /models/q --host=0.0.0.0 --port=8001 --served-model-name=chat --max-num-seqs=4"),
        ("atlas", "serve --model-from-path=/models/q --bind=0.0.0.0 --port=8001 --model-name=chat --max-num-seqs=4"),
    ],
)
def test_an_engine_is_told_model_port_and_name_in_its_own_words(name: str, argv: str) -> None:
    of = rank(engine=name, image={} if name == "vllm" else IMAGE, serve={"args": {"max-num-seqs": 4}})

    assert ranks.serve(of, "/models") == tuple(argv.split())


def test_aliases_follow_the_name_of_the_service() -> None:
    of = rank(serve={"aliases": ["fast", "org/chat"], "args": {"max-num-seqs": 4}})

    words = "serve /models/q --host=0.0.0.0 --port=8001 --served-model-name chat fast org/chat --max-num-seqs=4"
    assert ranks.serve(of, "/models") == tuple(words.split())


def test_a_container_runs_the_program_of_its_engine() -> None:
    argv = commands.create(rank(engine="atlas", image=IMAGE), node(), IMAGE_ID, jobs=1).argv

    assert "--entrypoint=spark" in argv
    assert "--env=ATLAS_NO_TUI=1" in argv
    assert "--env=VLLM_NO_USAGE_STATS=1" not in argv


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_beside_its_gateway_listens_on_loopback_only(name: EngineName) -> None:
    started = rank(engine=name, model={"file": "q.gguf"} if ENGINES[name].gguf else {})
    lines = (
        " ".join(ranks.serve(replace(started, callers=callers), "/models")) for callers in ((), ("10.0.0.1",), None)
    )
    hosts = [re.search(r"--(?:host|bind)[= ](\S+)", line) for line in lines]

    assert [host and host[1] for host in hosts] == ["127.0.0.1", "0.0.0.0", "0.0.0.0"]
