"""Streams of a fixed number of tokens to a server, from processes of their own, and what they came to.

    python -m tests.lab.gpu.streams '{"url": ..., "model": ..., ...}'

Each process prints a line once it is ready, reads when to end, keeps some streams open until then, and prints a line
for each and its own processor time.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sparkops.operator.demo.traffic.report import quantile
from sparkops.operator.demo.traffic.sender import Connection, Failed, ServerAddress
from tests.fleet.shell import run
from tests.places import ROOT

PATH = "/v1/chat/completions"
PROCESSES = 8
READY = "ready\n"
WARM_S = 4.0
"""Seconds of streams before the window, in which the engine sees the batch for the first time."""
WINDOW_S = 10.0
TIMEOUT_S = 60.0
WORDS = ("capital", "France", "Paris", "single", "word", "ready", "user", "system")
BUSY = 0.3
"""Cores that a process uses at least to be named."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Work:
    """Streams of one process."""

    url: str
    model: str
    streams: int
    seed: int
    tokens: int = 128
    """Tokens of every answer."""
    words: int = 0
    """Random words of every prompt."""


@dataclass(frozen=True)
class Ended:
    """One stream: when it ended, its time to the first part and as a whole in seconds, its tokens, its error."""

    end: float
    first_s: float = 0.0
    took_s: float = 0.0
    tokens: int = 0
    error: str = ""


@dataclass(frozen=True)
class Result:
    """Figures of a window."""

    streams: int
    """Complete streams."""
    failures: Mapping[str, int]
    rate: float
    """Tokens of complete streams per second."""
    first_s: tuple[float, float]
    """Time to the first part, p50 and p99."""
    token_s: float
    """Time from token to token at p50."""
    own: float
    """Highest share of a core that a process of the load took."""
    busy: Sequence[str]
    """Processes of this machine by the cores that they used."""
    gpus: Sequence[float]
    """Mean utilization of each GPU in percent, as nvidia-smi prints it."""

    def __str__(self) -> str:
        failed = ", ".join(f"{count} {error}" for error, count in self.failures.items()) or "none"
        first, late = (value * 1000 for value in self.first_s)
        gpus = ", ".join(f"{one:.0f} %" for one in self.gpus)
        return (
            f"{self.rate:.0f} tokens/s, {self.streams} complete streams, first token p50 {first:.0f} ms and "
            f"p99 {late:.0f} ms, from token to token {self.token_s * 1000:.2f} ms, failures: {failed}; "
            f"GPU utilization {gpus}; cores: {', '.join(self.busy)}; each process of the load at most {self.own:.2f}"
        )


async def stream(work: Work, target: ServerAddress, connection: Connection, prompt: str) -> Ended:
    """Send one request and read its stream to the end. Raises Failed, TimeoutError."""
    body = {
        "model": work.model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": work.tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    start, first, tail = time.monotonic(), 0.0, b""
    async with asyncio.timeout(TIMEOUT_S):
        head = await connection.send(target.post(PATH, json.dumps(body).encode(), close=False))
        if head.status != 200:
            raise Failed(f"status {head.status}", (await connection.body(head)).decode(errors="replace"))
        async for part in connection.parts(head):
            first = first or time.monotonic()
            tail = (tail + part)[-1500:]
    end = time.monotonic()
    tokens = used(tail)
    error = "" if tokens == work.tokens else f"answer of {tokens} tokens"
    return Ended(end, first - start, end - start, tokens, error)


def used(tail: bytes) -> int:
    """Return the tokens of an answer from the end of its stream; 0 if that is incomplete."""
    events = [event.removeprefix(b"data: ") for event in tail.split(b"\n\n") if event.startswith(b"data: ")]
    if len(events) < 2 or events[-1] != b"[DONE]":
        return 0
    return int((json.loads(events[-2]).get("usage") or {}).get("completion_tokens", 0))


async def keep_open(work: Work, number: int, until: float) -> None:
    """Send one request after another until that time of the monotonic clock, and print a line for each."""
    target, chosen = ServerAddress.of(work.url, ""), random.Random(f"{work.seed} {number}")
    connection: Connection | None = None
    sent = 0
    while time.monotonic() < until:
        sent += 1
        prompt = " ".join((f"Tell me about journey {work.seed}-{number}-{sent}.", *chosen.choices(WORDS, k=work.words)))
        try:
            if connection is None or connection.gone:
                connection = await Connection.open(target.host, target.port)
            ended = await stream(work, target, connection, prompt)
        except (Failed, TimeoutError) as error:
            kind = error.kind if isinstance(error, Failed) else "timeout"
            ended = Ended(time.monotonic(), error=kind)
        if ended.error and connection is not None:
            connection.close()
        print(json.dumps(asdict(ended)))
        if ended.error:
            await asyncio.sleep(0.1)


async def work_all(work: Work, until: float) -> None:
    """Keep all streams of this process open until the end."""
    await asyncio.gather(*(keep_open(work, number, until) for number in range(work.streams)))


def start(work: Work) -> subprocess.Popen[str]:
    """Start a process of the load, which waits for the time of its end."""
    words = (sys.executable, "-m", "tests.lab.gpu.streams", json.dumps(asdict(work)))
    return subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def measure(url: str, model: str, count: int, seed: int, *, tokens: int = 128, words: int = 0) -> Result:
    """Keep `count` streams open for a window, and return what it came to. Raises CalledProcessError."""
    processes = min(PROCESSES, count)
    works = [Work(url, model, count // processes, seed * 100 + number, tokens, words) for number in range(processes)]
    started = [start(work) for work in works]
    for process in started:
        assert process.stdout
        assert process.stdout.readline() == READY, "a process of the load did not start"
    begin = time.monotonic() + WARM_S
    for process in started:
        assert process.stdin
        process.stdin.write(f"{begin + WINDOW_S}\n")
        process.stdin.flush()
    time.sleep(max(0.0, begin - time.monotonic()))
    before, utilization = processor_times(), list[list[float]]()
    while time.monotonic() < begin + WINDOW_S - 1:
        utilization.append(gpu_utilization())
        time.sleep(0.5)
    time.sleep(max(0.0, begin + WINDOW_S - time.monotonic()))
    busy = busiest(before, processor_times(), WINDOW_S)
    outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in started]
    for process in started:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, "tests.lab.gpu.streams")
    rows = [json.loads(line) for output in outputs for line in output.splitlines()]
    own = max(row["own"] for row in rows if "own" in row)
    ended = [Ended(**row) for row in rows if "own" not in row]
    gpus = [sum(one) / len(one) for one in zip(*utilization, strict=True)]
    return summary(ended, begin, begin + WINDOW_S, own, busy, gpus)


def summary(
    ended: Sequence[Ended], begin: float, end: float, own: float, busy: Sequence[str], gpus: Sequence[float]
) -> Result:
    """Return the figures of the streams that ended in a window; failures count whenever they were."""
    good = [one for one in ended if not one.error and begin <= one.end <= end]
    firsts = sorted(one.first_s for one in good)
    between = sorted((one.took_s - one.first_s) / max(one.tokens - 1, 1) for one in good)
    return Result(
        len(good),
        dict(Counter(one.error for one in ended if one.error)),
        sum(one.tokens for one in good) / (end - begin),
        (quantile(firsts, 0.5), quantile(firsts, 0.99)),
        quantile(between, 0.5),
        own,
        busy,
        gpus,
    )


def gpu_utilization() -> list[float]:
    """Return the utilization of each GPU in percent. Raises FleetError."""
    rows = run("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits").splitlines()
    return [float(row) for row in rows]


def processor_times() -> dict[int, tuple[str, float]]:
    """Return name and processor time in seconds of every process of this machine, those in containers included."""
    return dict(_times())


def _times() -> Iterator[tuple[int, tuple[str, float]]]:
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = file.read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            yield int(file.parent.name), (name, (int(fields[11]) + int(fields[12])) / TICKS)


def busiest(
    before: Mapping[int, tuple[str, float]], after: Mapping[int, tuple[str, float]], seconds: float
) -> list[str]:
    """Return name and cores of each process that used BUSY cores or more, the busiest first."""
    used_s = {number: after[number][1] - before[number][1] for number in before.keys() & after.keys()}
    chosen = sorted((number for number in used_s if used_s[number] >= BUSY * seconds), key=lambda one: -used_s[one])
    return [f"{after[number][0]} {used_s[number] / seconds:.2f}" for number in chosen]


def main() -> None:
    """Do the work of the command line."""
    work = Work(**json.loads(sys.argv[1]))
    sys.stdout.write(READY)
    sys.stdout.flush()
    until = float(sys.stdin.readline())
    began, used_s = time.monotonic(), time.process_time()
    asyncio.run(work_all(work, until))
    print(json.dumps({"own": (time.process_time() - used_s) / (time.monotonic() - began)}))


if __name__ == "__main__":
    main()
