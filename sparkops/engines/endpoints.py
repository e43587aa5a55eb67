"""/health and /metrics of an engine, read through a session that is connected to it."""

from __future__ import annotations

from http import HTTPStatus

from requests import Session
from requests.exceptions import RequestException, Timeout

from sparkops.swap.model import Answer

HEALTH_TIMEOUT_S = 5.0


def health(session: Session, timeout_s: float = HEALTH_TIMEOUT_S) -> Answer:
    """Return whether /health returns 200, which proves only that a server listens; UNKNOWN without a reply in time.

    An engine that loads refuses the connection; one that is busy accepts it and is late.
    """
    try:
        status = session.get("http://node/health", timeout=timeout_s).status_code
    except Timeout:
        return Answer.UNKNOWN
    except (RequestException, OSError):
        return Answer.NO
    return Answer.YES if status == HTTPStatus.OK else Answer.NO


def metrics_page(session: Session) -> str | None:
    """Return the page of /metrics, empty where there is none; None if the server does not answer."""
    try:
        reply = session.get("http://node/metrics", timeout=HEALTH_TIMEOUT_S)
    except (RequestException, OSError):
        return None
    return reply.text if reply.status_code == 200 else ""
