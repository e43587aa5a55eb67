"""Replies of the gateway itself: the list of models, errors, and metrics of waiting requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus

import disk

UNAVAILABLE = "No release of this service answers. Retry after the seconds in the Retry-After header."
NO_MODEL = "The body is not a JSON object with a model. Add one, or use the path /SERVICE/v1/... instead of /v1/..."
BY_PATH = "use the path /SERVICE/v1/... instead of /v1/...; GET /v1/models lists the services."
TOO_LARGE = f"The gateway reads the model from bodies up to {{}} MiB only. For larger ones, {BY_PATH}"
TOO_MANY = f"The gateway has no memory left for large requests. Retry, or {BY_PATH}"
TOO_SLOW = f"The body did not arrive within {{:g}} s. Retry, or {BY_PATH}"
UNKNOWN = "The model is not a service of this gateway."
FIGURES = {
    "waiting_requests": "Requests that wait for a release.",
    "longest_wait_seconds": "Wait of the oldest request so far.",
    "refused_requests_total": "Requests refused at once or after the longest wait.",
    "waiting_limit_requests": "Limit of waiting requests.",
    "wait_limit_seconds": "Longest wait of a request.",
    "remaining_seconds": "Predicted seconds until a release answers.",
}


def error(message: str, kind: str, code: str, param: str | None = None) -> str:
    """Return the body of an error in OpenAI's format."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def models() -> list[dict[str, object]]:
    """Return each name of a service as a model, with its release and state. An alias names its service as `root`."""
    active, holds = disk.active(), disk.holds()
    return [
        {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "sparkops",
            "root": service,
            "release": disk.pointed(active[service])["release"] if active.get(service) in disk.backends() else None,
            "state": state(service, active.get(service, disk.DOWN), holds),
        }
        for service in disk.services()
        for name in (service, *disk.aliases(service))
    ]


def state(service: str, backend: str, holds: Mapping[str, object]) -> str:
    """Return the state of a service, as the list of models has it."""
    if backend in disk.backends():
        return "serving"
    return "waiting" if service in holds else "stopped" if backend == disk.STOPPED else "down"


def answer(method: str, path: str) -> tuple[int, str]:
    """Return status and body of a reply on the one address to a request without a service."""
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
        names = f"{UNKNOWN} Expected one of: {', '.join(models_by_name) or 'none'}."
        return 404, error(names, "invalid_request_error", "model_not_found", "model")
    return 400, error(NO_MODEL, "invalid_request_error", "invalid_request", "model")


def http(status: int, body: str, kind: str = "application/json", more: tuple[str, ...] = ()) -> str:
    """Return a response with its headers."""
    headers = (f"Content-Type: {kind}", f"Content-Length: {len(body.encode())}", "Connection: close")
    lines = (f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *headers, *more)
    return "\r\n".join((*lines, "", body))


def unavailable(message: str, retry_s: float) -> str:
    """Return a response with status 503 and Retry-After."""
    return http(503, error(message, "server_error", "unavailable"), more=(f"Retry-After: {max(1, round(retry_s))}",))


def metrics(figures: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the figures of every service in Prometheus' text format."""
    for name, text in FIGURES.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        yield f"# HELP sparkops_gateway_{name} {text}\n# TYPE sparkops_gateway_{name} {kind}\n"
        yield from (f'sparkops_gateway_{name}{{service="{of}"}} {values[name]:g}\n' for of, values in figures.items())
