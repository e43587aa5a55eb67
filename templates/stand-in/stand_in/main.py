"""The process: read knobs and arguments, start, serve, stop on SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence

from stand_in import console, knobs, lines, ranks
from stand_in.arguments import Arguments, BadArguments, parse
from stand_in.http1 import Connection
from stand_in.knobs import BadKnob, Knobs
from stand_in.server import Engine, die
from stand_in.startup import Crashed, Start

BACKLOG = 2048
WATCHDOG_S = 5.0  # until a server ends after its engine core: watchdog_loop in vllm/entrypoints/launcher.py of 0.23.0
DRAIN_TICK_S = 0.02


def main(argv: Sequence[str]) -> int:
    """Run until SIGTERM. Exit code 1 after a crash, 2 for an invalid knob or argument."""
    try:
        wanted, arguments = knobs.read(os.environ), parse(argv)
    except (BadKnob, BadArguments) as error:
        console.write(f"vllm: error: {error}")
        return 2
    return asyncio.run(live(wanted, arguments))


async def live(wanted: Knobs, arguments: Arguments) -> int:
    """Start, serve and stop. Returns the exit code."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, ignore if wanted.ignore_term and each == signal.SIGTERM else told.set)
    try:
        taken = None if arguments.headless else bind(arguments)
    except OSError as error:
        console.tell_script(f"A|Traceback (most recent call last):\nA|OSError: [Errno {error.errno}] {error.strerror}")
        return 1
    start = Start(wanted, arguments)
    try:
        if await _started(start, arguments, told):
            await (_serve(wanted, arguments, taken, told) if taken else told.wait())
    except Crashed as crashed:
        console.tell_script(lines.CRASHED.format(error=crashed))
        return 1
    await asyncio.sleep(wanted.keep_memory_s)  # `start` keeps the memory until here
    console.tell_script(lines.SHUTTING.format(pid=os.getpid()))
    return 0


def ignore() -> None:
    """Ignore SIGTERM, for STAND_IN_IGNORE_TERM."""


def bind(arguments: Arguments) -> socket.socket:
    """Bind the port. As in vLLM it is bound early and refuses connections until the start has ended."""
    family = socket.AF_INET6 if ":" in arguments.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((arguments.host, arguments.port))
    return made


async def _started(start: Start, arguments: Arguments, told: asyncio.Event) -> bool:
    """Return whether the start ended before SIGTERM. Raises Crashed."""
    starting, stopping = asyncio.create_task(_start(start, arguments)), asyncio.create_task(told.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    return False


async def _start(start: Start, arguments: Arguments) -> None:
    start.watching = asyncio.create_task(ranks.watch(await ranks.meet(arguments)))
    await start.run()


async def _serve(wanted: Knobs, arguments: Arguments, taken: socket.socket, told: asyncio.Event) -> None:
    engine = Engine(wanted, arguments, os.environ.get("VLLM_API_KEY") or arguments.flags.get("api-key", ""))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, engine.hang)
    loop.add_signal_handler(signal.SIGUSR2, engine.resume)
    listening = await loop.create_server(lambda: Connection(engine.server), sock=taken, backlog=BACKLOG)
    console.tell_script(lines.SERVING.format(pid=os.getpid()))
    if wanted.core_dies_after_s is not None:
        loop.call_later(wanted.core_dies_after_s, engine.lose_core)
        loop.call_later(wanted.core_dies_after_s + WATCHDOG_S, told.set)
    if wanted.die_after_s is not None:
        loop.call_later(wanted.die_after_s, die, f"{wanted.die_after_s:g} s after serving began")
    if wanted.answers_after_s:
        loop.call_later(wanted.answers_after_s, engine.turn)
    if wanted.slow_after_s is not None:
        loop.call_later(wanted.slow_after_s, engine.core.slow)
    if wanted.hang_after_s is not None:
        loop.call_later(wanted.hang_after_s, engine.hang)
    stats = asyncio.create_task(engine.tell_stats())
    await told.wait()
    listening.close()
    await _drain(engine)
    stats.cancel()


async def _drain(engine: Engine) -> None:
    """Wait for open requests, and cancel hanging ones."""
    engine.server.drain()
    if engine.hangs:
        for connection in tuple(engine.server.connections):
            if connection.task:
                connection.task.cancel()
    while any(connection.task for connection in engine.server.connections):
        await asyncio.sleep(DRAIN_TICK_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
