"""/health and /metrics of vLLM, read through a session that is connected to it."""

from __future__ import annotations

from requests import Session
from requests.exceptions import RequestException

HEALTH_TIMEOUT_S = 5.0


def healthy(session: Session) -> bool:
    """Return whether /health returns 200. It proves only that a server listens."""
    try:
        return session.get("http://node/health", timeout=HEALTH_TIMEOUT_S).status_code == 200
    except (RequestException, OSError):
        return False


def metrics_page(session: Session) -> str | None:
    """Return the page of /metrics, empty where there is none; None if the server does not answer."""
    try:
        reply = session.get("http://node/metrics", timeout=HEALTH_TIMEOUT_S)
    except (RequestException, OSError):
        return None
    return reply.text if reply.status_code == 200 else ""
