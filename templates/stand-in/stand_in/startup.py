"""The start: the stages of a real one, spread over STAND_IN_START_S."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from stand_in import VERSION, console, lines
from stand_in.arguments import Arguments
from stand_in.knobs import Knobs

SHARDS = 20
KV_TOKENS = 2_097_152
MIB = 1024 * 1024
BUSY_S, IDLE_S = 0.03, 0.06  # a compiling engine uses more than a core; a third of one suffices to show progress

# Share of the time, and its log lines. A start of 12 minutes loads weights for about 9 of them.
BEFORE = ((0.10, lines.STARTING), (0.03, lines.JOINING), (0.02, lines.LOADING))
WEIGHTS = 0.62
COMPILING = ((0.05, lines.COMPILING),)
AFTER = ((0.04, lines.COMPILED), (0.02, lines.SIZING), (0.05, lines.TUNING))
OPENING = ((0.03, lines.GRAPHS), (0.02, lines.WARMING), (0.02, lines.OPENING))


class Crashed(Exception):
    """The engine core crashed while it started."""


class Start:
    """One start, with the memory of the loaded weights."""

    def __init__(self, knobs: Knobs, arguments: Arguments) -> None:
        self.knobs = knobs
        self.moving_s = knobs.start_s - knobs.silent_s
        self.memory: list[bytearray] = []
        self.watching: asyncio.Task[None] | None = None  # without a reference a task may end
        self.facts: dict[str, Any] = {
            "version": VERSION,
            "model": arguments.model,
            "name": arguments.served_names[0],
            "model_len": arguments.model_len,
            "concurrency": KV_TOKENS / arguments.model_len,
            "given": given(arguments),
            "host": arguments.host,
            "port": arguments.port,
            "seconds": knobs.start_s / 4,
        }

    async def run(self) -> None:
        """Run all stages. Raises Crashed; never returns with STAND_IN_HANG_AT."""
        await self._say(BEFORE)
        await self._load()
        await self._say(COMPILING)
        await silence(self.knobs.silent_s, busy=self.knobs.silent_cpu)
        await self._say(AFTER)
        await self._say(OPENING)

    async def _say(self, script: tuple[tuple[float, str], ...]) -> None:
        for share, text in script:
            said = text.format(**self.facts).splitlines()
            for line in said:
                console.tell_script(line)
                await asyncio.sleep(share * self.moving_s / len(said))

    async def _load(self) -> None:
        whole_s = WEIGHTS * self.moving_s
        for done in range(SHARDS + 1):
            percent = done * 100 // SHARDS
            console.write(shard(done, whole_s))
            await self._trouble(percent)
            if done < SHARDS:
                self.memory.append(taken(self.knobs.memory_mib, done))
                await asyncio.sleep(whole_s / SHARDS)
        console.write("")
        console.tell(lines.LOADED.format(seconds=whole_s))

    async def _trouble(self, percent: int) -> None:
        hang_at, crash_at = self.knobs.hang_at, self.knobs.crash_at
        if crash_at is None and self.knobs.fatal:
            crash_at = 100
        if crash_at is not None and percent >= crash_at:
            raise Crashed(self.knobs.fatal or f"RuntimeError: the stand-in crashes at {crash_at} % of the weights")
        if hang_at is not None and percent >= hang_at:
            await asyncio.Event().wait()


def given(arguments: Arguments) -> dict[str, Any]:
    """Return the arguments with vLLM's names."""
    hidden = ("host", "port", "served-model-name")
    flags = {name.replace("-", "_"): value or True for name, value in arguments.flags.items() if name not in hidden}
    model = {"model_tag": arguments.model, "model": arguments.model}
    return {**model, **flags, "served_model_name": [*arguments.served_names]}


def shard(done: int, whole_s: float) -> str:
    """Return the line of progress after `done` shards."""
    past_s = whole_s * done / SHARDS
    rate = f"{SHARDS / whole_s:.2f}it/s" if done and whole_s else "?it/s"
    left = _clock(whole_s - past_s) if done else "?"
    return lines.SHARD.format(
        percent=done * 100 // SHARDS, done=done, all=SHARDS, past=_clock(past_s), left=left, rate=rate
    )


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def taken(memory_mib: int, part: int) -> bytearray:
    """Allocate the memory of one shard and write to every page."""
    size = (memory_mib * (part + 1) // SHARDS - memory_mib * part // SHARDS) * MIB
    block = bytearray(size)
    block[:: os.sysconf("SC_PAGESIZE")] = b"\1" * (size // os.sysconf("SC_PAGESIZE"))
    return block


async def silence(seconds: float, *, busy: bool) -> None:
    """Wait without a log line."""
    if not busy:
        await asyncio.sleep(seconds)
        return
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        until = time.process_time() + min(BUSY_S, left)
        while time.process_time() < until and time.monotonic() < end:
            pass
        await asyncio.sleep(min(IDLE_S, left))
