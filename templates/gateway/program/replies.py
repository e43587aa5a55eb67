"""What the gateway answers itself: the list of models, errors, and the figures of what waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus

import disk

UNAVAILABLE = "No release of this service answers at the moment. Try again later."
NO_MODEL = "The body is no JSON object with a model: send one, or use the path /SERVICE/v1/... in place of /v1/..."
BY_PATH = "send this one to /SERVICE/v1/... in place of /v1/...; GET /v1/models lists the services."
TOO_LARGE = f"The gateway reads the model of a request only in a JSON body of up to {{}} MiB: {BY_PATH}"
TOO_MANY = f"The gateway reads as many large requests as its memory takes. Try again, or {BY_PATH}"
TOO_SLOW = f"The body of this request did not arrive in time. Try again, or {BY_PATH}"
UNKNOWN = "This gateway has no service of the name that the request has as its model."
FIGURES = {
    "waiting_requests": "Requests that wait for a release.",
    "longest_wait_seconds": "How long the oldest of them has waited.",
    "refused_requests_total": "Requests that were not let wait, or no longer.",
    "waiting_limit_requests": "How many may wait.",
    "wait_limit_seconds": "How long a request may wait.",
    "remaining_seconds": "Predicted seconds until a release answers.",
}


def error(message: str, kind: str, code: str, param: str | None = None) -> str:
    """An error as OpenAI's servers write it."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def models() -> list[dict[str, object]]:
    """Every name of a service as a model, with its release and whether it answers. An alias names its `root`."""
    active, holds = disk.rows(disk.read(disk.ACTIVE)), disk.holds()
    return [
        {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "sparkops",
            "root": service,
            "release": disk.pointed(active[service])["release"] if active.get(service) in disk.backends() else None,
            "state": "serving" if active.get(service) in disk.backends() else "waiting" if service in holds else "down",
        }
        for service in disk.services()
        for name in (service, *disk.aliases(service))
    ]


def answer(method: str, path: str) -> tuple[int, str]:
    """What is answered on the one address where no service is asked: status and body."""
    models_by_name = {str(model["id"]): model for model in models()}
    path = path.partition("?")[0]
    if (method, path) == ("GET", "/health"):
        return 200, "{}"
    if (method, path) == ("GET", "/v1/models"):
        return 200, json.dumps({"object": "list", "data": [*models_by_name.values()]})
    if method == "GET" and path.startswith("/v1/models/") and (name := path[len("/v1/models/") :]) in models_by_name:
        return 200, json.dumps(models_by_name[name])
    if path.startswith("/too-large/"):
        return 413, error(TOO_LARGE.format(path.rpartition("/")[2]), "invalid_request_error", "request_too_large", "model")
    if path == "/unknown-model" or path.startswith("/v1/models/"):
        names = f"{UNKNOWN} It has: {', '.join(models_by_name) or 'none'}."
        return 404, error(names, "invalid_request_error", "model_not_found", "model")
    return 400, error(NO_MODEL, "invalid_request_error", "invalid_request", "model")


def http(status: int, body: str, kind: str = "application/json", more: tuple[str, ...] = ()) -> str:
    """A whole response."""
    headers = (f"Content-Type: {kind}", f"Content-Length: {len(body.encode())}", "Connection: close")
    lines = (f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *headers, *more)
    return "\r\n".join((*lines, "", body))


def unavailable(message: str, retry_s: float) -> str:
    """A whole response that refuses a request for now."""
    return http(503, error(message, "server_error", "unavailable"), more=(f"Retry-After: {max(1, round(retry_s))}",))


def metrics(figures: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the figures of every service as Prometheus reads them."""
    for name, text in FIGURES.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        yield f"# HELP sparkops_gateway_{name} {text}\n# TYPE sparkops_gateway_{name} {kind}\n"
        yield from (f'sparkops_gateway_{name}{{service="{of}"}} {values[name]:g}\n' for of, values in figures.items())
