"""Asking an OpenAI-compatible server, through a session that knows the way to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from requests import Response, Session
from requests.exceptions import RequestException

from sparkops.config.smoke import Question

HEALTH_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 300.0  # the first request may compile for minutes


@dataclass(frozen=True)
class Answer:
    """What a server answered to a question. `ok` says whether it holds what was expected."""

    ok: bool
    text: str
    tokens: int
    took_s: float
    problem: str = ""


def healthy(session: Session) -> bool:
    """Whether /health says 200. It proves that a server listens, nothing more."""
    try:
        return session.get("http://node/health", timeout=HEALTH_TIMEOUT_S).status_code == 200
    except (RequestException, OSError):
        return False


def metrics(session: Session) -> str | None:
    """What /metrics says; None if it does not answer."""
    try:
        reply = session.get("http://node/metrics", timeout=HEALTH_TIMEOUT_S)
    except (RequestException, OSError):
        return None
    return reply.text if reply.status_code == 200 else None


def ask(session: Session, model: str, question: Question) -> Answer:
    """Ask one question with a known answer, greedily."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": question.ask}],
        "max_tokens": question.max_tokens,
        "temperature": 0,
        **question.extra,
    }
    try:
        reply = session.post("http://node/v1/chat/completions", json=body, timeout=ANSWER_TIMEOUT_S)
    except (RequestException, OSError) as error:
        return Answer(ok=False, text="", tokens=0, took_s=0.0, problem=f"no answer: {error}")
    return _judge(reply, question)


def _judge(reply: Response, question: Question) -> Answer:
    took_s = reply.elapsed.total_seconds()
    if reply.status_code != 200:
        problem = f"HTTP {reply.status_code}: {reply.text[:300]}"
        return Answer(ok=False, text="", tokens=0, took_s=took_s, problem=problem)
    try:
        said = reply.json()
        text = str(said["choices"][0]["message"]["content"] or "")
        tokens = int(said["usage"]["completion_tokens"])
    except (ValueError, KeyError, IndexError, TypeError):
        problem = f"not an OpenAI answer: {reply.text[:300]}"
        return Answer(ok=False, text="", tokens=0, took_s=took_s, problem=problem)
    ok = question.expect.casefold() in text.casefold()
    problem = "" if ok else f"asked {question.ask!r}, expected {question.expect!r} in the answer, got {text[:200]!r}"
    return Answer(ok=ok, text=text.strip(), tokens=tokens, took_s=took_s, problem=problem)
