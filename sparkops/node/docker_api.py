"""Read a node's Docker with the Docker SDK, over the node's own connection."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any
from urllib.parse import urlsplit

import docker
import docker.constants
import requests
from docker.errors import APIError, ImageNotFound, NotFound
from requests.exceptions import RequestException

from sparkops.command import Command
from sparkops.config.release import trust_mark
from sparkops.errors import ConnectionLost, NodeError, NotReady
from sparkops.names import LABEL
from sparkops.node.http import BoundedBody, StreamAdapter
from sparkops.node.node import DIAL, Node, trace

READ_TIMEOUT_S = 20.0

VERSION = re.compile(r"^/v[0-9.]+(?=/)")

MOST_BYTES, MOST_LOG_BYTES = 16 * 1024 * 1024, 128 * 1024 * 1024
"""Limits of one reply. Inspects and lists take some KiB; Docker keeps up to 100 MB of a log (docker/commands.py)."""

Facts = dict[str, Any]
"""JSON of a reply of Docker."""


class ReplyTooLong(NodeError):
    """A reply of Docker of more bytes than the limit."""


class _ApiAdapter(StreamAdapter):
    """Docker's API on one node. Logs method and path of each request, without the API's version and the query."""

    def __init__(self, node: Node) -> None:
        super().__init__(lambda: node.pipe(DIAL))
        self.node = node.name
        self.most_log = MOST_LOG_BYTES

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Log the request, then send it. Reading more than the limit raises ReplyTooLong."""
        path = VERSION.sub("", urlsplit(request.url or "").path)
        trace(self.node, f"docker API {request.method} {path}")
        response = super().send(request, *args, **options)
        most = self.most_log if path.endswith("/logs") else MOST_BYTES
        problem = f"docker API {request.method} {path}: the reply exceeds {most} bytes"
        refusal = partial(ReplyTooLong, self.node, problem, next_step="Check `sparkops doctor`.")
        response.raw = BoundedBody(response.raw, most, refusal)
        return response


class Engine:
    """A reader of one node's Docker. Changes are commands, not calls of the API."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._adapter = _ApiAdapter(node)
        versions = (self._api_version(), docker.constants.DEFAULT_DOCKER_API_VERSION)
        api = min(versions, key=lambda version: [int(part) for part in version.split(".")])
        self._client = docker.APIClient("unix:///unused", version=api, timeout=int(READ_TIMEOUT_S))
        self._client.trust_env = False  # else every request searches the environment for a proxy
        self._client.max_redirects = 0  # Docker sends none, and one of a node may lead anywhere
        self._client.mount("http+docker://", self._adapter)

    def _api_version(self) -> str:
        """Return the newest version of the API that Docker has. Unlike /version, this starts no program on the node."""
        session = requests.Session()  # not closed: that would close the adapter, which is used further
        session.trust_env = False
        session.max_redirects = 0
        session.mount("http+docker://", self._adapter)
        try:
            return session.get("http+docker://localhost/_ping", timeout=READ_TIMEOUT_S).headers["API-Version"]
        except (RequestException, OSError, KeyError) as error:
            # The docker program's message is clearer than an ended stream.
            why = self.node.run(Command(("sh", "-c", "docker version --format ok 2>&1 || true"))).stdout.strip()
            raise NotReady.without_docker(self.node.name, why or str(error)) from error

    @cached_property
    def version(self) -> Facts:
        """Docker's answer to /version: Version, Arch, and the names of its parts in Components."""
        with self._errors():
            facts: Facts = self._client.version()
            return facts

    def containers(self, **labels: str) -> list[Facts]:
        """Return the inspect of every container of sparkops, running or not, with all of `labels`.

        Raises ConnectionLost with the name of a container that Docker does not inspect: what it is is unknown.
        """
        inspects = (
            self._inspect(item["Id"], next(iter(item["Names"]), item["Id"]).lstrip("/"))
            for item in self.listed(**labels)
        )
        return [facts for facts in inspects if facts is not None]  # None: removed since it was listed

    def listed(self, **labels: str) -> list[Facts]:
        """Return what `docker ps --all` knows of the same containers: names, labels, state.

        A list waits for no container; the inspect of one that starts waits as long as its start does.
        """
        labelled = [f"{LABEL}service", *(f"{LABEL}{key}={value}" for key, value in labels.items())]
        with self._errors():
            listed: list[Facts] = self._client.containers(all=True, filters={"label": labelled})
            return listed

    def container(self, name: str, timeout_s: float = READ_TIMEOUT_S) -> Facts | None:
        """Return the inspect of one container; None without one of that name. Raises ConnectionLost after timeout_s."""
        return self._inspect(name, name, timeout_s)

    def _inspect(self, identifier: str, name: str, timeout_s: float = READ_TIMEOUT_S) -> Facts | None:
        with self._within(timeout_s), self._errors(f" about {name}"), suppress(NotFound):
            facts: Facts = self._client.inspect_container(identifier)
            return facts
        return None

    def image(self, name: str) -> Facts | None:
        """Return the inspect of an image; None without one of that name."""
        with self._errors(), suppress(ImageNotFound):
            facts: Facts = self._client.inspect_image(name)  # type: ignore[no-untyped-call]
            return facts
        return None

    def trusted(self, tag: str) -> Facts | None:
        """Return the inspect of an image that sparkops gave this tag on this node; None for any other image."""
        image = self.image(tag)
        return image if image and self.has_volume(trust_mark(tag, image["Id"])) else None

    def has_volume(self, name: str) -> bool:
        """Return whether a volume of that name exists."""
        with self._errors(), suppress(NotFound):
            self._client.inspect_volume(name)
            return True
        return False

    def images(self, **labels: str) -> list[Facts]:
        """Return the inspect of every image with all of `labels`, with a name or without."""
        labelled = [f"{LABEL}{key}={value}" for key, value in labels.items()]
        with self._errors():
            listed = self._client.images(filters={"label": labelled})
            return [facts for image in listed if (facts := self.image(image["Id"]))]

    def used_images(self) -> dict[str, str]:
        """Return the image ID of every container, running or not, by the container's name."""
        with self._errors():
            listed = self._client.containers(all=True)
            return {next(iter(item["Names"]), item["Id"]).lstrip("/"): item["ImageID"] for item in listed}

    def history(self, image: str) -> list[Facts]:
        """Return the steps of an image with the bytes that each has added, the newest first."""
        with self._errors():
            facts: list[Facts] = self._client.history(image)  # type: ignore[no-untyped-call]
            return facts

    def info(self) -> Facts:
        with self._errors():
            facts: Facts = self._client.info()
            return facts

    def volumes(self) -> list[str]:
        """Return the names of all volumes."""
        with self._errors():
            return sorted(volume["Name"] for volume in self._client.volumes()["Volumes"] or ())

    def usage(self, container: str) -> Facts:
        """Return one sample of `docker stats`, without waiting for a second one."""
        with self._errors():
            facts: Facts = self._client.stats(container, stream=False, one_shot=True)
            return facts

    def log(self, container: str, *, since: float = 0.0, tail: int | None = None) -> str:
        """Return the container's log with Docker's timestamps, from `since` (the node's clock, seconds) on."""
        with self._errors():
            raw: bytes = self._client.logs(
                container, timestamps=True, since=since or None, tail="all" if tail is None else tail
            )
            return raw.decode(errors="replace")

    def log_end(self, container: str, lines: int, most: int) -> str:
        """Return as many of the last `lines` lines of a log as a reply of `most` bytes has: all, a tenth, and so on."""
        self._adapter.most_log = most
        try:
            while lines:
                try:
                    return self.log(container, tail=lines)
                except ReplyTooLong:
                    lines //= 10
        finally:
            self._adapter.most_log = MOST_LOG_BYTES
        return ""

    @contextmanager
    def _within(self, timeout_s: float) -> Iterator[None]:
        """Give requests another timeout."""
        self._client.timeout = timeout_s  # type: ignore[assignment]
        try:
            yield
        finally:
            self._client.timeout = int(READ_TIMEOUT_S)

    @contextmanager
    def _errors(self, about: str = "") -> Iterator[None]:
        try:
            yield
        except APIError as error:
            raise NotReady(self.node.name, f"Docker refused to answer: {error.explanation or error}") from error
        except (RequestException, OSError) as error:
            raise ConnectionLost(self.node.name, f"Docker's answer{about} was cut off: {error}") from error
        except RecursionError as error:
            raise ConnectionLost(self.node.name, f"Docker's answer{about} is nested too deeply") from error

    def close(self) -> None:
        self._client.close()
        self._adapter.close()
