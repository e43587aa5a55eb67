"""The parsers of foreign text: what nodes, engines, registries, recipes and clients send.

`log` gets what Docker returns of an engine's log, whose lines may have any length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic_core import PydanticCustomError

from sparkops import foreign, redact
from sparkops.config import fields
from sparkops.config.source import Source
from sparkops.config.startup import Startup
from sparkops.engines import ENGINES, image_facts, metrics
from sparkops.errors import SparkopsError
from sparkops.gateway.facts import Worker, parse_gateway
from sparkops.guard import messages
from sparkops.guard.follow import nccl_log
from sparkops.node import host
from sparkops.node.docker import facts
from sparkops.node.network import commands, firewall
from sparkops.operator.build.hub import pull
from sparkops.operator.build.images import build, buildkit
from sparkops.operator.build.lock import finished, resolving
from sparkops.operator.build.render.dockerfile import problems
from sparkops.operator.build.weights import checkpoint, prepare
from sparkops.operator.cli import terminal
from sparkops.operator.convert import command_lines, starts
from sparkops.operator.deploy.agents import differences
from sparkops.operator.fleet.network.facts import parse_fabric
from sparkops.operator.fleet.transfer import commands as transfers
from sparkops.operator.status import observation, starting
from sparkops.operator.status.doctor import bundle, discovery
from sparkops.operator.status.doctor.facts import parse_machine
from sparkops.operator.status.hour import read_hour
from sparkops.serving.smoke import garbage, prompts
from sparkops.serving.startup import causes
from sparkops.serving.startup.explain import of_docker
from sparkops.serving.startup.verdict import Line, Sample, Watch, advance, explanation
from sparkops.swap import wire
from sparkops.swap.journal import Journal
from sparkops.swap.wire import WireError

STAMP = "2026-11-28T09:00:00.123456789Z"
LIMITS = Startup()


@dataclass(frozen=True)
class Parser:
    """A parser, and the errors that it raises for text which it does not take."""

    read: Callable[[str], object]
    refuses: tuple[type[Exception], ...] = (ValueError,)


def log(engine: str, text: str) -> str:
    """Read a log as a guard does from the start of an engine to its failure. Returns what was understood."""
    lines = [line for _, line in facts.log_lines("\n".join(f"{STAMP} {line}" for line in text.split("\n")))]
    watch = Watch(LIMITS, ENGINES[engine].log, tuple(causes.of(engine)))
    watch = advance(watch, Sample(1.0, tuple(Line(1.0, line) for line in lines)))
    watch = advance(watch, Sample(2.0, running=False))
    return f"{watch.text} {watch.failure} {watch.memory} {explanation(watch)} {nccl_log.problem(lines, 2)}"


def compose(text: str) -> object:
    """Read a compose file with a text as command, variable and port of its service."""
    service = {"image": "vllm/vllm-openai", "command": text, "environment": [text], "ports": [text]}
    return starts.of_compose(Source(Path("q.yaml"), {"services": {"a": service}}), "")


NESTED = (ValueError, RecursionError)
"""What `json` raises for text; RecursionError, where it is nested too deeply."""
HOUR = (ValueError, TypeError, LookupError, OverflowError)
"""What `operator.fleet.guards.replies.parsed` takes for a reply of another form."""
PARSERS: Mapping[str, Parser] = {
    **{f"log of {engine}": Parser(partial(log, engine)) for engine in ENGINES},
    "stage of a start": Parser(starting.stage),
    "log lines": Parser(lambda text: [*facts.log_lines(text)]),
    "redacted": Parser(redact.redacted),
    "document": Parser(redact.document),
    "words of a shell": Parser(lambda text: redact.shell(text.split(" "))),
    "name of a secret": Parser(redact.names_secret),
    "terminal": Parser(terminal.visible),
    "metrics": Parser(metrics.parse),
    "steps of metrics": Parser(metrics.steps),
    "errors of Docker": Parser(of_docker),
    "progress of BuildKit": Parser(lambda text: buildkit.advance(buildkit.BuildProgress(), text)),
    "step of BuildKit": Parser(lambda text: buildkit.advance(buildkit.BuildProgress(), f"#1 [a 1/2] {text}")),
    "denied": Parser(build.DENIED.search),
    "other platform": Parser(build.OTHER_PLATFORM.search),
    "cut off": Parser(build.cut_off),
    "platforms": Parser(buildkit.platforms, NESTED),
    "image gate": Parser(image_facts.parse, NESTED),
    "crash": Parser(image_facts.crash),
    "versions": Parser(lambda text: finished.parse({"Os": "", "Architecture": "", "Config": {}}, text), NESTED),
    "resolved packages": Parser(resolving.parse),
    "bandwidth": Parser(commands.bandwidth),
    "rendezvous": Parser(commands.rendezvous_report, NESTED),
    "rules of nftables": Parser(lambda text: firewall.closed_ports(f"table inet sparkops {{\n{text}\n}}\n")),
    "fabric": Parser(parse_fabric),
    "machine": Parser(parse_machine),
    "host": Parser(host.parse),
    "clocks": Parser(host.parse_clocks),
    "addresses": Parser(host.parse_addresses),
    "GPUs": Parser(host.parse_gpu_states),
    "models": Parser(discovery.parse),
    "checkpoints": Parser(checkpoint.parse, NESTED),
    "hashes": Parser(checkpoint.hashes, NESTED),
    "bytes read": Parser(checkpoint.bytes_read, NESTED),
    "step of a checkpoint": Parser(prepare.parse, NESTED),
    "download": Parser(partial(pull.parse, anonymous=True), NESTED),
    "copy": Parser(transfers.parse, NESTED),
    "gateway": Parser(parse_gateway, NESTED),
    "worker": Parser(Worker.parse),
    "evidence": Parser(bundle.evidence),
    "status": Parser(partial(observation.read, "n"), (SparkopsError,)),
    "samples of an hour": Parser(lambda text: read_hour(foreign.loads(text), 0.0), HOUR),
    "journal": Parser(lambda text: wire.load(Journal, text.encode()), (WireError,)),
    "message": Parser(lambda text: messages.unpack(text.encode()), (WireError,)),
    "certificate": Parser(differences.PEM.search),
    "command of another tool": Parser(lambda text: command_lines.words(command_lines.filled(text, {"a": "b"})[0])),
    "script of a start": Parser(starts.script),
    "line of a start": Parser(lambda text: starts.script(f"docker run vllm/vllm-openai --model a/b {text}")),
    "other starts": Parser(lambda text: (starts.is_start(text), starts.named(text), foreign.one_line(text))),
    "service of compose": Parser(compose, (SparkopsError,)),
    "variables of a shell": Parser(lambda text: command_lines.expanded(text, {"a": "b"})),
    "URL": Parser(fields.url, (ValueError, PydanticCustomError)),
    "Dockerfile": Parser(lambda text: [*problems(text)]),
    "script of a RUN": Parser(lambda text: [*problems(f"FROM a\nENV A=$A\nRUN {text}")]),
    "answer": Parser(partial(prompts.holds, "Paris")),
    "words of an answer": Parser(garbage.worded),
    "runs of an answer": Parser(garbage.longest_run),
    "scripts of an answer": Parser(garbage.in_two_scripts),
}
UNITS = (
    *(
        "://a:",
        "a",
        "a ",
        "a.",
        "a=",
        '="',
        "-",
        "1",
        "\t",
        "\r",
        " ",
        ":",
        "[",
        "(",
        '"a": [',
        '{"a":',
        '\\"',
        'a{a="",',
    ),
    *("Loading pt:", "Loading pt: ", "init engine (", "Capturing a ", "Graph capturing finished in ", "world_size=2 "),
    *("Load weight end.", "server_args=", "Loading safetensors using a ", "Capture a ", "A: error: ", "Subprocess a"),
    *("(a pid=1) ", "CUDA out of memory", "Available KV cache memory: -1 GiB", "Rank 1", "-----BEGIN ", "cookie "),
    *("context_length (1) is greater than the derived context_length (1)", "eyJaaaaaaaaaaa.", "aB", "a://b:", "a+."),
    *("Free memory on device a (1/1 GiB) on startup is less than ", "failed to open GGUF file 'a", "tcp dport { "),
    *("failed to resolve source metadata for a: ", "--mount=a", "-----BEGIN CERTIFICATE-----", "$(", "#", "\\", "{{"),
)
"""What took quadratic time or more when it was repeated, and what is like it."""
