"""Whatever a recipe's author, a node or a client sends, a parser returns a value or raises its documented errors.

`make fuzz` runs the same for minutes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkops import redact
from sparkops.config import addresses, inventory, opt_in, recipe_file
from sparkops.config.recipe_file import read_lock
from sparkops.engines import ENGINES, metrics
from sparkops.engines.start_log import ReportedMemory, fingerprint
from sparkops.engines.vllm.start_log import LOG
from sparkops.errors import ConfigError, SparkopsError
from sparkops.gateway.facts import Worker, parse_gateway
from sparkops.guard import messages
from sparkops.node.docker.facts import LINE_CHARACTERS, log_lines, parse_container
from sparkops.node.docker.places import CONTAINER
from sparkops.operator.convert import other_tools
from sparkops.operator.status import observation
from sparkops.operator.status.doctor import bundle
from sparkops.serving.startup import causes
from sparkops.serving.startup.explain import explain
from sparkops.swap import wire
from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.orders import Order
from sparkops.swap.wire import OtherFormat, WireError
from tests.examples import RECIPE
from tests.fuzz.parsers import PARSERS, UNITS, log
from tests.places import CAPTURED

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(max_size=20)
    | st.sampled_from(["", "-", "0", "1e999", "{}", "[", "\x1b[2J", "../x", "1970-01-01T00:00:00Z", "9" * 5000])
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


def changed(sample: Any) -> st.SearchStrategy[Any]:
    """Values like `sample` with one part at any depth replaced, removed or added."""

    @st.composite
    def draw_changed(draw: st.DrawFn) -> Any:
        return _change(draw, sample)

    return draw_changed()


def _change(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        if not draw(st.integers(0, 5)):
            return {other: child for other, child in value.items() if other != key}
        return {**value, key: _change(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], _change(draw, value[at]), *value[at + 1 :]]
    if isinstance(value, str) and value and draw(st.booleans()):
        at = draw(st.integers(0, len(value)))
        return value[:at] + draw(st.text(max_size=5) | st.sampled_from(["\x00", "\n", "{", ","])) + value[at + 1 :]
    return draw(JSON)


def holds(parse: Callable[[], object], *documented: type[Exception]) -> None:
    """Call a parser: it must return or raise one of `documented`, with a text of bounded size."""
    text = ""
    try:
        parse()
    except documented as error:
        text = str(error)
    assert len(text) < 100_000


FILE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
FLEET = {
    "nodes": {"a": {"address": "10.0.0.1", "model_dir": "/m"}, "b": {"address": "10.0.0.2", "user": "x"}},
    "gateway": {"node": "a", "address": "10.0.0.1", "port": 8080},
    "defaults": {"user": "x"},
}
LOCK = yaml.safe_load(Path("recipes/122b-autoround.lock").read_text())
THEIRS = {"recipe_version": "1", "model": "a/b", "env": {"A": "1"}, "mods": ["m"], "command": "vllm serve a/b -tp 2"}
SERVICES = {"services": {"a": {"image": "x/vllm:1", "command": ["--model", "a/b"], "environment": ["A=1"]}}}


def imported(file: Path) -> object:
    """Convert a recipe of another tool."""
    return other_tools.convert(other_tools.read(file), file.read_text(errors="replace"), "mine")


READERS: dict[str, tuple[Any, Callable[[Path], object]]] = {
    "recipe of another tool": (THEIRS, imported),
    "compose file": (SERVICES, imported),
    "recipe": ({**RECIPE, "serve": {"args": {"a": {"b": ["{}"]}}, "env": {"A": "1"}}}, recipe_file.load),
    "inventory": (FLEET, inventory.load),
    "lock": (LOCK, read_lock),
}


@FILE
@pytest.mark.parametrize("kind", READERS)
@given(data=st.data())
def test_a_changed_file(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    sample, read = READERS[kind]
    file = tmp_path / "q.yaml"
    value = data.draw(changed(sample))
    with contextlib.suppress(UnicodeEncodeError):
        file.write_text(yaml.safe_dump(value, allow_unicode=True))
        holds(lambda: read(file), ConfigError)
        holds(lambda: addresses.read(file))


@FILE
@pytest.mark.parametrize("kind", READERS)
@given(content=st.binary(max_size=200) | st.text("{}[]&*!:-,|>'\"#% \n\tab<0.~", max_size=200).map(str.encode))
def test_any_file(tmp_path: Path, kind: str, content: bytes) -> None:
    file = tmp_path / "q.yaml"
    file.write_bytes(content)
    holds(lambda: READERS[kind][1](file), ConfigError)


@given(flag=st.from_regex(r"[a-z][a-z0-9-]*(\.[a-z0-9_-]+)*", fullmatch=True), value=JSON | JSON.map(json.dumps))
def test_a_flag(flag: str, value: Any) -> None:
    holds(lambda: list(opt_in.of_flag(flag, value, "vllm")))


INSPECT = json.loads((CAPTURED / "docker-26.1-inspect-running.json").read_text())
INSPECT = INSPECT[0] if isinstance(INSPECT, list) else INSPECT
HOST = (CAPTURED / "preflight.txt").read_text()
ENDED = {"code": 0, "out": "", "err": ""}
SURVEY = {
    "docker": ENDED,
    "host": {**ENDED, "out": HOST},
    "containers": [INSPECT],
    "engines": [{"healthy": True, "first": {}, "log": ENDED}],
    "gateway": ENDED,
    "node": "n",
    "guard": {
        "services": "",
        "errors": f"Error: No such container: {CONTAINER}",
        "states": {},
        "events": {},
        "findings": "",
        "cordon": "",
    },
}


@given(value=changed(SURVEY))
def test_a_status_report(value: Any) -> None:
    holds(lambda: observation.read("n", json.dumps(value)), SparkopsError)


@given(value=changed(SURVEY["gateway"]) | JSON)
def test_any_status_report(value: Any) -> None:
    holds(lambda: observation.read("n", json.dumps(value)), SparkopsError)


@given(value=changed(INSPECT))
def test_an_inspected_container(value: Any) -> None:
    holds(lambda: parse_container("n", value), ValueError, LookupError, TypeError, AttributeError)


def read_line(line: str) -> None:
    """Give one line of a log to every parser of such lines."""
    LOG.read(line)
    LOG.read_memory(line, ReportedMemory())
    fingerprint(line)


@given(lines=st.lists(st.text(max_size=200), max_size=5))
def test_a_log(lines: list[str]) -> None:
    for line in lines:
        holds(partial(read_line, line))
    holds(
        lambda: (
            explain(lines, causes.of("vllm")),
            list(log_lines("\n".join(lines))),
            redact.document("\n".join(lines)),
        )
    )


FIGURES = st.sampled_from(["1.2.3", "--", "-.", ".", "9" * 5000, "\u0661", "1e9"])


@given(figure=FIGURES)
def test_a_figure_of_a_log(figure: str) -> None:
    for line in (
        f"Model loading took {figure} GiB",
        f"Available KV cache memory: {figure} GiB",
        f"Graph capturing finished in 1 secs, took {figure} GiB",
        f"Loading safetensors checkpoint shards: {figure}% Completed",
    ):
        holds(partial(read_line, line))


PAGE = (CAPTURED / "vllm-0.32.0-cpu-metrics.txt").read_text()
ROWS = [line for line in PAGE.splitlines() if "vllm:num_requests" in line or "vllm:generation" in line]


@given(rows=changed(ROWS).filter(lambda rows: isinstance(rows, list)))
def test_a_page_of_metrics(rows: list[Any]) -> None:
    text = "\n".join(map(str, rows)) + "\n"
    holds(lambda: metrics.parse(text), ValueError)
    holds(lambda: metrics.steps(text))


SHOWN: Any = {
    "format": SCHEMA,
    "keys": [],
    "certificate": "",
    "aliases": {},
    "haproxy": {
        "map": "0x1 chat be_chat_blue\n",
        "releases": "0x1 be_chat_blue r\n",
        "processes": "1 worker 0\n",
        "statistics": {
            "1": "# pxname,svname,scur,status,addr\nbe_chat_blue,BACKEND,1,UP,\nbe_chat_blue,s,1,UP,10.0.0.1:1\n"
        },
    },
    "ports": {"chat": 8000},
    "slots": {name: {"release": "r", "servers": []} for name in ("be_chat_blue", "be_chat_green")},
    "map": "chat be_chat_blue\n",
    "files": {},
    "loaded": True,
    "problem": "",
    "holds": {"chat": {"mark": "", "longest_s": 1.0, "most": 1}},
    "room": {"chat": {}},
    "port": 80,
}


def test_the_samples_are_read() -> None:
    """A sample that is refused as it stands would make every change of it pass."""
    assert parse_gateway(json.dumps(SHOWN)).services["chat"].port == 8000
    assert observation.read("n", json.dumps(SURVEY)).name == "n"
    assert metrics.parse("\n".join(ROWS) + "\n")


@given(value=changed(SHOWN))
def test_a_reply_of_the_gateway(value: Any) -> None:
    holds(lambda: parse_gateway(json.dumps(value)), ValueError, OtherFormat)


@given(text=st.text(max_size=300))
def test_a_text_in_place_of_a_reply(text: str) -> None:
    holds(lambda: parse_gateway(text), ValueError, OtherFormat)
    holds(lambda: Worker.parse(text), ValueError)
    holds(lambda: bundle.evidence(text), ValueError)


KIB_16, MIB, MIB_4 = 2**14, 2**20, 2**22
EACH = KIB_16 if settings().max_examples < 100 else MIB  # `make fuzz`
"""Characters of a line of each unit."""


@pytest.mark.parametrize("name", PARSERS)
def test_a_line_of_any_length_is_read(name: str) -> None:
    """No time is measured: one that is read in quadratic time ends this test by the limit of all tests."""
    parser = PARSERS[name]
    for size, units in ((EACH, UNITS), (MIB_4, UNITS[:1])):
        for unit in units:
            holds(partial(parser.read, unit * (size // len(unit))), *parser.refuses)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_guard_looks_at_the_start_of_a_line_only(engine: str) -> None:
    """What is behind it changes nothing: no stage, figure, failure or cause."""
    ends = [
        *("Application startup complete", "The server is fired up and ready to roll!", "llama_server: model loaded"),
        *("CUDA out of memory", "exiting due to model loading error", "Model loading took 1.5 GiB"),
        *("Loading safetensors checkpoint shards: 50% Completed", "host:1:1 [0] NCCL INFO NET/IB : Using"),
        *("NET/Socket : Using [0]eth0", "ValueError: bad", "No space left on device"),
    ]
    start = "x" * LINE_CHARACTERS

    assert {log(engine, f"{start} {end}") for end in ends} == {log(engine, start)}
    assert any(log(engine, end) != log(engine, start) for end in ends)


KINDS = (Journal, Order, messages.Envelope, messages.Orders, messages.GuardReply)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(value=JSON, text=st.binary(max_size=100))
def test_a_value_of_a_swap(kind: type, value: Any, text: bytes) -> None:
    holds(lambda: wire.load(kind, text), WireError)
    holds(lambda: wire.load(kind, json.dumps(value).encode()), WireError)
    holds(lambda: wire.load_value(kind, value), WireError)


@given(packed=st.binary(max_size=200))
def test_a_message(packed: bytes) -> None:
    holds(lambda: messages.verify(b"k", packed), messages.MessageRefused)
    holds(lambda: messages.unpack(packed), WireError)
