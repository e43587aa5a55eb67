"""The HTTP endpoints."""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from stand_in import VERSION, asking, console, lines
from stand_in.answer import Answer, answer
from stand_in.arguments import Arguments
from stand_in.asking import Refused, Wanted
from stand_in.http1 import Connection, Request, Server
from stand_in.knobs import Knobs
from stand_in.metrics import Metrics
from stand_in.replies import DONE, Reply, dumps, event
from stand_in.work import Core

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
UNCOUNTED = frozenset(("/metrics", "/health", "/ping", "/version"))
STATS_EVERY_S = 10.0
Handler = Callable[[Request, Connection], Awaitable[None]]


class Engine:
    """The API server and its state."""

    def __init__(self, knobs: Knobs, arguments: Arguments, key: str) -> None:
        self.turned = knobs
        self.knobs = replace(knobs, answers="true") if knobs.answers_after_s else knobs
        self.arguments = arguments
        self.key = key
        other = "-other" if knobs.answers == "wrong_name" else ""
        self.names = [f"{name}{other}" for name in arguments.served_names]
        self.metrics = Metrics(self.names[0], arguments.model_len)
        self.core = Core(knobs, self.metrics, arguments.most_at_once)
        if not knobs.health_only:
            self.core.steps.set()
        self.server = Server(self.handle, self._sent, knobs.release_name)
        self.created = int(time.time())
        self.completions = 0
        self.owed_errors = 0.0
        self.core_is_dead = False
        self.routes: dict[str, dict[str, Handler]] = {
            "/health": {"GET": self._health},
            "/ping": {"GET": self._health, "POST": self._health},
            "/version": {"GET": self._version},
            "/metrics": {"GET": self._metrics},
            "/v1/models": {"GET": self._models},
            asking.CHAT: {"POST": self._complete},
            asking.TEXT: {"POST": self._complete},
        }

    async def handle(self, request: Request, by: Connection) -> None:
        """Answer one request."""
        try:
            await self._route(request)(request, by)
        except Refused as refused:
            by.respond(refused.status, dumps({"error": refused.error}))

    def _route(self, request: Request) -> Handler:
        if request.path.startswith("/v1") and not self._allowed(request):
            return _unauthorized
        methods = self.routes.get(request.path)
        if methods is None:
            raise Refused(HTTPStatus.NOT_FOUND, "Not Found", kind="NotFoundError")
        if request.method not in methods:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "Method Not Allowed", kind="Method Not Allowed")
        return methods[request.method]

    def _allowed(self, request: Request) -> bool:
        given = request.headers.get("authorization", "")
        return not self.key or hmac.compare_digest(given.encode(), f"Bearer {self.key}".encode())

    async def _health(self, _: Request, by: Connection) -> None:
        by.respond(503 if self.core_is_dead else 200, b"")

    async def _version(self, _: Request, by: Connection) -> None:
        by.respond(200, dumps({"version": VERSION, "stand_in": self.knobs.release_name or ""}))

    async def _metrics(self, _: Request, by: Connection) -> None:
        by.respond(200, self.metrics.render().encode(), PLAIN)

    async def _models(self, _: Request, by: Connection) -> None:
        card: dict[str, Any] = {
            "object": "model",
            "created": self.created,
            "owned_by": "vllm",
            "root": self.arguments.model,
            "parent": None,
            "max_model_len": self.arguments.model_len,
            "permission": [],
        }
        by.respond(200, dumps({"object": "list", "data": [{"id": name, **card} for name in self.names]}))

    async def _complete(self, request: Request, by: Connection) -> None:
        wanted = asking.read(request.path, request.body)
        if wanted.model not in ("", *self.names):
            message = f"The model `{wanted.model}` does not exist."
            raise Refused(HTTPStatus.NOT_FOUND, message, "model", "NotFoundError")
        room = asking.room(wanted, self.arguments.model_len)
        self._misbehave()
        async with self.core.admitted(wanted) as waited_s:
            said = answer(wanted.ask, self.knobs, room)
            send = self._stream if wanted.stream else self._whole
            await send(wanted, said, waited_s, by)

    @property
    def hangs(self) -> bool:
        """Whether no completion advances."""
        return not self.core.steps.is_set()

    def turn(self) -> None:
        """Answer as ANSWERS says from now on."""
        self.knobs = self.turned

    def hang(self) -> None:
        """Make no step any more: completions in progress stop, later ones wait."""
        self.core.steps.clear()

    def resume(self) -> None:
        """Make steps again."""
        self.core.steps.set()

    def lose_core(self) -> None:
        """Go on without the engine core, as vLLM's API server does until its watchdog ends it."""
        console.tell_script(lines.DIED.format(error="RuntimeError: the stand-in loses its engine core"))
        self.core_is_dead = True

    def _misbehave(self) -> None:
        if self.core_is_dead:
            raise _core_died()
        self.completions += 1
        after = self.knobs.die_after_requests
        if after is not None and self.completions > after:
            die(f"after {after} completions")
        self.owed_errors += self.knobs.error_rate
        if self.owed_errors >= 1:
            self.owed_errors -= 1
            raise _core_died()

    async def _whole(self, wanted: Wanted, said: Answer, waited_s: float, by: Connection) -> None:
        async with aclosing(self.core.run(wanted, said, waited_s)) as tokens:
            async for _ in tokens:
                pass
        by.respond(200, Reply(wanted, said, int(time.time())).whole())

    async def _stream(self, wanted: Wanted, said: Answer, waited_s: float, by: Connection) -> None:
        reply = Reply(wanted, said, int(time.time()))
        by.begin()
        if first := reply.first():
            by.send(first)
        events = reply.events()
        async with aclosing(self.core.run(wanted, said, waited_s)) as tokens:
            async for new in tokens:
                if self.core_is_dead:
                    break
                for _ in range(new):
                    by.send(next(events))
        # vLLM ends a stream that failed with [DONE] as well: chat_completion_stream_generator of 0.23.0
        by.send(event({"error": _core_died().error}) + DONE if self.core_is_dead else reply.last())
        by.end()

    def _sent(self, by: Connection, status: int, size: int, took_s: float) -> None:
        request = by.request
        if request is None:
            return
        if self.arguments.access_log:
            host, port = by.peer[:2]
            phrase = HTTPStatus(status).phrase
            said = f'"{request.method} {request.path} HTTP/{request.version[5:]}" {status} {phrase}'
            console.write(f"INFO:     {host}:{port} - {said}")
        if request.path in self.routes and request.path not in UNCOUNTED:
            self.metrics.web(request.method, request.path, status, (len(request.body), size), took_s)

    async def tell_stats(self) -> None:
        """Log the throughput every 10 s except while idle, as vLLM does."""
        counters = (("prompt_tokens", ""), ("generation_tokens", ""))
        before, quiet = [0.0, 0.0], True
        while True:
            await asyncio.sleep(STATS_EVERY_S)
            now = [self.metrics.values.get(counter, 0.0) for counter in counters]
            prompt, generated = (new - old for new, old in zip(now, before, strict=True))
            before, was_quiet, quiet = now, quiet, not (prompt or generated)
            if not (quiet and was_quiet):
                console.tell(self._stats(prompt / STATS_EVERY_S, generated / STATS_EVERY_S))

    def _stats(self, prompt: float, generated: float) -> str:
        gauges = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        running, waiting, usage = (self.metrics.values.get((name, ""), 0.0) for name in gauges)
        return lines.STATS.format(
            prompt=prompt, generated=generated, running=int(running), waiting=int(waiting), usage=usage * 100
        )


def _core_died() -> Refused:
    message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, message, kind="InternalServerError")


async def _unauthorized(_: Request, by: Connection) -> None:
    by.respond(401, dumps({"error": "Unauthorized"}))


def die(when: str) -> None:
    """Exit at once, as an engine core after a fatal error."""
    console.tell_script(lines.DIED.format(error=f"RuntimeError: the stand-in dies {when}"))
    os._exit(1)
