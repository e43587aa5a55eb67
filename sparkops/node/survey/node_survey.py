"""Facts of a node for `sparkops status`: engines with health and metrics, gateway, guard, memory and disk.

Guards import this module; to nodes without a guard its text is sent and run. Hence only the standard library, and
Python 3.9 as on every DGX OS.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any, cast

COMMAND_S, HTTP_S = 20.0, 5.0
INSPECT_S = 5.0
"""For the inspect of one container. It waits as long as a start does, and for ever where a shim hangs."""
RATE_S = 0.5  # between two samples of an engine of which no earlier sample exists
PAGE_BYTES = 4 * 2**20
NO_CONTAINER = "No such container: "
Facts = dict[str, Any]


def run(argv: Sequence[str], errors: int = subprocess.PIPE) -> Facts:
    """Return exit code, stdout and stderr of a command; code -1 if it did not end in time."""
    try:
        ended = subprocess.run(
            argv, timeout=COMMAND_S, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        )
    except FileNotFoundError:
        return failure(f"{argv[0]}: not found", 127)
    except subprocess.TimeoutExpired:
        return failure(f"no result within {COMMAND_S:g} s", -1)
    out, err = (text.decode(errors="replace") for text in (ended.stdout, ended.stderr or b""))
    return {"code": ended.returncode, "out": out, "err": err}


def failure(why: str, code: int = 1) -> Facts:
    """Return what `run` returns for a command that fails."""
    return {"code": code, "out": "", "err": why}


def containers(label: str) -> tuple[list[Facts], Facts, dict[str, Facts] | None]:
    """Return the inspects of all containers with a label, the result of reading them, and all labels by name.

    In place of an inspect that Docker does not give within INSPECT_S there is the container's item of Docker's list,
    which waits for nothing. From Docker's own socket: a `docker` program takes 40 ms of a core. Labels are None where
    only that program reaches Docker, which also prints why nothing does.
    """
    try:
        status, text = page(docker_socket, "/containers/json?all=1")
        if status != 200:
            return [], failure(text), None
        listed = json.loads(text)
        own = [item for item in listed if label in labels(item)]
        with ThreadPoolExecutor(16) as pool:
            pages = list(pool.map(inspected, own))
        failed = [text for status, text in pages if status not in (200, 404)]  # 404: removed since they were listed
        names = {name.lstrip("/"): labels(item) for item in listed for name in item["Names"]}
        inspects = [json.loads(text) for status, text in pages if status == 200]
    except (OSError, ValueError):
        return printed(label)
    return inspects, failure(failed[0]) if failed else {"code": 0, "out": "", "err": ""}, names


def inspected(item: Facts) -> tuple[int, str]:
    """Return status and text of the inspect of a listed container; the item itself if none comes within INSPECT_S."""
    try:
        return page(lambda: docker_socket(INSPECT_S), f"/containers/{item['Id']}/json", INSPECT_S)
    except TimeoutError:
        return 200, json.dumps(item)


def labels(container: Facts) -> Facts:
    """Return the labels of an inspect, or of an item of Docker's list."""
    return container.get("Config", container)["Labels"] or {}


def state(container: Facts) -> str:
    """Return Docker's word for the state of an inspect, or of an item of Docker's list."""
    known = container["State"]
    return str(known if isinstance(known, str) else known["Status"])


def printed(label: str) -> tuple[list[Facts], Facts, None]:
    """Return what `containers` does, by the `docker` program, which knows contexts and DOCKER_HOST."""
    listed = run(("docker", "ps", "--all", "--quiet", "--no-trunc", f"--filter=label={label}"))
    names = listed["out"].split()
    if listed["code"] or not names:
        return [], listed, None
    shown = run(("docker", "inspect", "--type=container", "--format={{json .}}", *names))
    inspects = [json.loads(line) for line in shown["out"].splitlines() if line.startswith("{")]
    gone = sum("No such container" in line for line in shown["err"].splitlines())  # removed since they were listed
    return inspects, {**shown, "code": shown["code"] or 1 if len(inspects) + gone < len(names) else 0}, None


def docker_socket(timeout_s: float = COMMAND_S) -> socket.socket:
    """Connect to Docker. Raises OSError where it listens on no socket of this node."""
    scheme, _, path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").partition("://")
    if scheme != "unix":
        raise FileNotFoundError(scheme)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout_s)
    try:
        connection.connect(path)
        return connection
    except OSError:
        connection.close()
        raise


def answers_requests(container: Facts) -> bool:
    """Return whether an engine gets requests: it runs, and as rank 0 it answers for all ranks."""
    rank = labels(container).get("sparkops.rank", "")
    follows = rank.isdecimal() and int(rank) > 0
    return not follows and state(container) in ("running", "restarting", "paused")


def engine(container: Facts, request: Mapping[str, Any], sample: Callable[[int], Facts]) -> Facts:
    """Return an engine's health with what `sample` returns for its port, or the end of its log.

    Docker does not read the log of a container that it does not inspect.
    """
    if not answers_requests(container):
        return {}
    port = labels(container).get("sparkops.port", "")
    if port.isdecimal() and get(int(port), "/health")[0] == 200:
        return {"healthy": True, **sample(int(port))}
    if "Config" not in container:
        return {"healthy": False, "log": {"code": 0, "out": "", "err": ""}}
    started, tail = f"--since={container['State']['StartedAt']}", f"--tail={request['tail']}"
    logs = ("docker", "logs", "--timestamps", started, tail, container["Id"])
    return {"healthy": False, "log": run(logs, errors=subprocess.STDOUT)}


def samples(port: int, names: Sequence[str]) -> Facts:
    """Return the figures of an engine, and with any request in progress those of RATE_S later."""
    first, began = figures(get(port, "/metrics"), names), time.monotonic()
    if not first.get(names[0]):
        return {"first": first}
    time.sleep(RATE_S)
    return {"first": first, "second": figures(get(port, "/metrics"), names), "took_s": time.monotonic() - began}


def figures(reply: tuple[int, str], names: Sequence[str]) -> dict[str, float]:
    """Return the sum of each metric over all engines of a server, from the text of Prometheus; none if malformed."""
    sums: dict[str, float] = {}
    for line in reply[1].splitlines() if reply[0] == 200 else ():
        name, value = re.split(r"[{\s]", line, maxsplit=1)[0], line.rpartition(" ")[2]
        if name in names:
            try:
                figure = float(value)
            except ValueError:  # a part of the sum would be a wrong figure
                return {}
            share = name.endswith("_perc")  # of the fullest engine; sums of shares mean nothing
            sums[name] = max(sums.get(name, 0.0), figure) if share else sums.get(name, 0.0) + figure
    return sums


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body of a page on this node; 0 where nothing replies."""
    try:
        return page(lambda: socket.create_connection(("127.0.0.1", port), HTTP_S), path, HTTP_S)
    except OSError:
        return 0, ""


def page(connect: Callable[[], socket.socket], path: str, total_s: float = COMMAND_S) -> tuple[int, str]:
    """Return status and body of a page; HTTP/1.0 ends with the connection. Raises OSError, after `total_s` as well."""
    request = f"GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with connect() as connection:
        connection.sendall(request.encode())
        read, until_s = bytearray(), time.monotonic() + total_s
        while len(read) < PAGE_BYTES:
            remaining_s = until_s - time.monotonic()
            if remaining_s <= 0:  # a page that trickles would never end
                raise TimeoutError("deadline passed")
            connection.settimeout(remaining_s)
            piece = connection.recv(2**16)
            if not piece:
                break
            read += piece
    head, _, body = read.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0, body.decode(errors="replace")


def query_guard(argv: Sequence[str], count: int, schema: int) -> Facts:
    """Return the lines with which the guard replies to a program in its container, and that program's errors."""
    pipe = subprocess.PIPE
    try:
        guard = subprocess.Popen(argv, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
    except FileNotFoundError:
        return {**replies(lambda _: "", count, schema), "errors": f"{argv[0]}: not found"}
    stdin, stdout, stderr = (cast("IO[str]", stream) for stream in (guard.stdin, guard.stdout, guard.stderr))

    def question(line: str) -> str:
        with suppress(BrokenPipeError):  # its last words can still be read
            stdin.write(line)
            stdin.flush()
        return stdout.readline()

    (watchdog := threading.Timer(COMMAND_S, guard.kill)).start()
    with guard:
        lines = replies(question, count, schema)
        with suppress(BrokenPipeError):  # it has ended
            stdin.close()
        errors = stderr.read()
    watchdog.cancel()
    return {**lines, "errors": errors}


def replies(question: Callable[[str], str], count: int, schema: int) -> Facts:
    """Return the lines with which a guard replies: its services, state and last events of each, findings and cordon.

    `schema`: the format of requests; a guard of another one refuses them.
    """

    def reply(**request: object) -> str:
        return question(json.dumps({**request, "format": schema}) + "\n")

    services = reply(op="services")
    names = json.loads(services).get("ok", ()) if services.startswith("{") else ()
    states = {name: reply(op="state", service=name) for name in names}
    since = {name: last(state) - count for name, state in states.items()}
    events = {name: reply(op="events", service=name, since=since[name], wait_s=0) for name in names}
    own = {"findings": reply(op="findings"), "cordon": reply(op="cordon")}
    return {"services": services, "states": states, "events": events, **own, "errors": ""}


def fleet_name(names: Mapping[str, Facts] | None, request: Mapping[str, Any]) -> str:
    """Return how the fleet calls this node, by the label of its guard's container; empty without a guard."""
    if names is not None:
        return str(names.get(request["guard"], {}).get(request["name"], ""))
    form = '--format={{index .Config.Labels "' + request["name"] + '"}}'
    return str(run(("docker", "inspect", "--type=container", form, request["guard"]))["out"]).strip()


def unused(request: Mapping[str, Any]) -> Facts:
    """Return what `survey` returns for a node without containers of sparkops, but for its host."""
    return {
        "docker": failure("", 0),
        "containers": [],
        "engines": [],
        "gateway": failure(NO_CONTAINER + request["gateway"]),
        "guard": {**replies(lambda _: "", 0, 0), "errors": NO_CONTAINER + request["guard"]},
        "node": "",
    }


def last(state: str) -> int:
    """Return the number of the last event in the reply to `state`; 0 in an error."""
    return int(json.loads(state).get("ok", {}).get("last", 0)) if state.startswith("{") else 0


def survey(request: Mapping[str, Any]) -> Facts:
    """Read everything at once. `request` is that of status.commands.request."""
    with ThreadPoolExecutor(16) as pool:
        facts = pool.submit(run, request["host"])
        inspects, docker, names = containers(request["label"])
        shows = names is None or request["gateway"] in names
        gateway = pool.submit(run, request["show"]) if shows else None
        queried = names is None or request["guard"] in names
        guard = pool.submit(query_guard, request["ask"], request["events"], request["format"]) if queried else None
        metrics = request["metrics"]
        engines = pool.map(lambda inspect: engine(inspect, request, lambda port: samples(port, metrics)), inspects)
        nothing = unused(request)
        asked = guard.result() if guard else nothing["guard"]
        return {
            "host": facts.result(),
            "docker": docker,
            "containers": inspects,
            "engines": list(engines),
            "gateway": gateway.result() if gateway else nothing["gateway"],
            "guard": asked,
            "node": "" if NO_CONTAINER + request["guard"] in asked["errors"] else fleet_name(names, request),
        }
