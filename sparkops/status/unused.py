"""A node without containers of sparkops, read without a program.

The program of status/node_survey.py loads Python on the node: 40 ms of a core, where Docker's list and a few lines of
shell take 10.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sparkops.nodes import host
from sparkops.nodes.node import Node, Stream
from sparkops.status.node_survey import NO_CONTAINER, Facts, failure, page, replies

DOCKER_SOCKET = "/var/run/docker.sock"
REPLY_S = 5.0


def survey_unused(node: Node, docker: str, request: Mapping[str, Any]) -> Facts | None:
    """Return what node_survey.survey returns for the request; None where a container exists, or that is unknown."""

    def connect() -> Stream:
        stream = node.dial(docker)
        stream.settimeout(REPLY_S)
        return stream

    try:
        status, text = page(connect, "/containers/json?all=1")
        if status != 200 or _any_of_sparkops(json.loads(text), request):
            return None
    except (OSError, ValueError):  # the program finds the reason
        return None
    facts = node.run(host.status()).stdout
    return _survey(request, facts) if host.DEFAULT_DOCKER in facts.splitlines() else None


def _any_of_sparkops(containers: list[Facts], request: Mapping[str, Any]) -> bool:
    agents = {f"/{request['gateway']}", f"/{request['guard']}"}
    return any(request["label"] in (item["Labels"] or {}) or agents & {*item["Names"]} for item in containers)


def _survey(request: Mapping[str, Any], facts: str) -> Facts:
    return {
        "host": {"code": 0, "out": facts, "err": ""},
        "docker": {"code": 0, "out": "", "err": ""},
        "containers": [],
        "engines": [],
        "gateway": failure(NO_CONTAINER + request["gateway"]) if request["show"] else None,
        "guard": {**replies(lambda _: "", 0), "errors": NO_CONTAINER + request["guard"]},
    }
