"""Read every node for status: one connection each, and the report of its guard or else one command.

A node without containers of sparkops is read without a program: that of node/survey/node_survey.py loads Python on the
node, 40 ms of a core, where Docker's list and a few lines of shell take 10.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from sparkops import foreign
from sparkops.config import programs
from sparkops.errors import ConnectionLost, SparkopsError
from sparkops.node import host
from sparkops.node.docker.places import REPORT
from sparkops.node.node import Node, Routes, Stream
from sparkops.node.program import python
from sparkops.node.survey.commands import FORMAT, request
from sparkops.node.survey.node_survey import Facts, page, unused
from sparkops.node.waiting import START_FAILED, retry_start
from sparkops.operator.fleet.connect import Connector
from sparkops.operator.fleet.parallel import on_each

DOCKER_SOCKET = "/var/run/docker.sock"
REPLY_S = 5.0
PATIENCE_S = 0.0  # one attempt: status shows the present state
TIMEOUT_S = 60.0
REPORT_S = 5.0  # a guard that takes longer is asked in its container, where an error shows
REPORT_BYTES = 16 * 2**20


@dataclass
class Reader:
    """The nodes of a fleet. A connection stays open until a node could not be read over it, or until `close`."""

    routes: Routes
    names: Collection[str]
    gpus: bool = False
    """Whether each node is also asked what its GPUs do, by a command: no guard can read that."""
    report: str = REPORT
    """Where the guard of a node reports it."""
    docker: str = DOCKER_SOCKET
    cancel: threading.Event = field(default_factory=threading.Event)
    nodes: dict[str, Node] = field(default_factory=dict, init=False)

    def read(self) -> dict[str, str | SparkopsError]:
        """Return a line of JSON from every node, with lines on its GPUs, or the error that prevents it.

        Raises Interrupted.
        """
        return on_each(self.names, self._read, self.cancel)

    def close(self) -> None:
        """Close all connections."""
        for name in tuple(self.nodes):
            self._close(name)

    def _read(self, name: str) -> str:
        if name not in self.nodes:
            self.nodes[name] = Connector(self.routes, patience_s=PATIENCE_S, cancel=self.cancel).node(name)
        node = self.nodes[name]
        try:
            text = _reported(node, self.report) or self._surveyed(name, node)
            return text + node.run(host.GPU_STATE).stdout if self.gpus else text
        except SparkopsError:
            self._close(name)
            raise

    def _surveyed(self, name: str, node: Node) -> str:
        """Return what the program prints on a node. A node without containers of sparkops needs no program."""
        survey_request = request()
        if facts := survey_unused(node, self.docker, survey_request):
            return f"{json.dumps(facts)}\n"
        command = python(programs.load_survey(), survey_request, timeout_s=TIMEOUT_S)
        return retry_start(lambda: _begun(name, node.run(command).stdout), raised=(ConnectionLost,))

    def _close(self, name: str) -> None:
        with suppress(OSError):  # the connection may be gone already
            self.nodes.pop(name).close()


def _reported(node: Node, socket: str) -> str:
    """Return the report of a node's guard; empty where there is none, or one of another format."""
    try:
        with closing(node.dial(socket)) as stream:
            stream.settimeout(REPORT_S)
            text = bytes(stream.makefile("rb").read(REPORT_BYTES)).decode()
    except (OSError, ValueError):
        return ""
    return text if text.startswith(f'{{"format": {FORMAT},') and text.endswith("}\n") else ""


def _begun(name: str, text: str) -> str:
    """Return the text. Raises ConnectionLost where Docker could not begin a question to the gateway or the guard."""
    survey = foreign.loads(text)
    gateway, guard = survey["gateway"], survey["guard"]
    for printed in (gateway["out"] + gateway["err"], guard["services"] + guard["errors"]):
        if all(words in printed for words in START_FAILED):
            raise ConnectionLost(name, printed)
    return text


def survey_unused(node: Node, docker: str, request: Mapping[str, Any]) -> Facts | None:
    """Return what node_survey.survey returns for the request; None where a container exists, or that is unknown."""

    def connect() -> Stream:
        stream = node.dial(docker)
        stream.settimeout(REPLY_S)
        return stream

    try:
        status, text = page(connect, "/containers/json?all=1", REPLY_S)
        if status != 200 or _any_of_sparkops(foreign.loads(text), request):
            return None
    except (OSError, ValueError):  # the program finds the reason
        return None
    facts = node.run(host.status()).stdout
    ran = {"code": 0, "out": facts, "err": ""}
    return {"host": ran, **unused(request)} if host.DEFAULT_DOCKER in facts.splitlines() else None


def _any_of_sparkops(containers: list[Facts], request: Mapping[str, Any]) -> bool:
    agents = {f"/{request['gateway']}", f"/{request['guard']}"}
    return any(request["label"] in (item["Labels"] or {}) or agents & {*item["Names"]} for item in containers)
