"""Findings about the operator's token of the hub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

import requests

from sparkops.doctor.node_facts import NodeFacts, warning
from sparkops.network.finding import Finding
from sparkops.weights.checkpoint import ModelDirectory

HUB = "https://huggingface.co"
HERE = "this machine"
TIMEOUT_S = 5.0
MAKE_ONE = "Create a token (type: read) at the hub, save it in a file of mode 600, set HF_TOKEN_PATH to the file."


@dataclass(frozen=True)
class HubLogin:
    """The operator's token and the URL of another hub; empty without one."""

    token: str = field(default="", repr=False)
    endpoint: str = ""

    def findings(self, nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
        """Verify the token at the hub. Without a token, yield a finding if weights are still to be downloaded."""
        if self.token:
            yield from self._refused()
            return
        directories = [node.weights for node in nodes if isinstance(node.weights, ModelDirectory)]
        checkpoints = (checkpoint for directory in directories for checkpoint in directory.checkpoints.values())
        if nodes and len(directories) == len(nodes) and not any(item.complete for item in checkpoints):
            names = ", ".join(node.name for node in nodes)
            problem = f"no token is configured, and no node has a complete model: {names}"
            yield warning("HUB_LOGIN", HERE, problem, MAKE_ONE)

    def _refused(self) -> Iterator[Finding]:
        """Yield a finding for a refused token. Redirects are not followed: they would send the token elsewhere."""
        url = f"{(self.endpoint or HUB).rstrip('/')}/api/whoami-v2"
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            status = requests.get(url, headers=headers, timeout=TIMEOUT_S, allow_redirects=False).status_code
        except requests.RequestException as error:
            problem = f"the token could not be verified at {url}: {type(error).__name__}"
            yield warning("HUB_LOGIN", HERE, problem, f"curl -v {url}")
            return
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            problem = f"the hub refused the token: {url} answered {status}, expected 200"
            yield Finding(code="HUB_LOGIN", node=HERE, problem=problem, next_step=MAKE_ONE)
        elif status != HTTPStatus.OK:
            problem = f"the token could not be verified: {url} answered {status}, expected 200"
            yield warning("HUB_LOGIN", HERE, problem, f"curl -v {url}")
