"""Programs that people use, from their package registries: each gets an answer with what `status --client` prints.

They call the gateway's program and HAProxy of this machine, with the stand-in behind it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from sparkops.gateway import commands
from sparkops.gateway.commands import Endpoint
from sparkops.names import Slot
from sparkops.operator.status.clients import KEY, QUESTION, Model, configuration
from tests.gateway.here import HereNode, configured
from tests.gateway.here import Program as Gateway
from tests.ports import free_port
from tests.standin.program import Program as Engine

pytestmark = [pytest.mark.clients, pytest.mark.timeout(3600)]

SECRET = "sk-0123456789abcdef"
CONTEXT = 32_768
RELEASE = "chat-0123456789"
WITHIN_S = 1800.0
"""For one client, with its start: Open WebUI imports for minutes on a machine that is busy."""


@dataclass(frozen=True)
class Served:
    """A service behind a gateway on this machine."""

    model: Model
    engine: Engine
    key_file: Path

    def configuration(self, client: str) -> str:
        return configuration(client, [self.model], str(self.key_file))

    @property
    def answers(self) -> float:
        """How many requests the engine has answered."""
        return self.engine.metric("vllm:request_success_total")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("gateway")
    state, run = root / "state", root / "run"
    state.mkdir()
    key_file = root / "team.key"
    key_file.write_text(f"{SECRET}\n")
    ports = free_port(), free_port()
    with ExitStack() as stack:
        arguments = ("--served-model-name=chat", f"--max-model-len={CONTEXT}")
        engine = stack.enter_context(Engine(*arguments, key=SECRET)).serves()
        gateway = Gateway(state, run)
        gateway.give(configured(state, run, ports))
        stack.enter_context(gateway.started())
        node = HereNode("n", program=gateway)
        node.run(commands.point("chat", Slot.BLUE, RELEASE, [Endpoint("127.0.0.1", engine.port, RELEASE)]))
        node.run(commands.switch("chat", Slot.BLUE, RELEASE))
        yield Served(Model("chat", f"http://127.0.0.1:{ports[0]}/v1", CONTEXT), engine, key_file)


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a client with a home of its own."""
    home.mkdir(exist_ok=True)
    return {**os.environ, "HOME": str(home), "NO_PROXY": "127.0.0.1", "CI": "true", KEY: SECRET, **more}


def npm(directory: Path, package: str) -> Path:
    """Install a package of npm, and return the directory of its programs."""
    if shutil.which("npm") is None:
        pytest.fail("npm is missing: install Node.js 20 or newer with npm")
    (directory / "package.json").write_text("{}")
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", package], cwd=directory, check=True)
    return directory / "node_modules/.bin"


def pip(directory: Path, package: str, *without: str) -> Path:
    """Install a Python package in an environment of its own, and return the directory of its programs.

    `without`: packages that it names and does not need for a chat.
    """
    overrides = directory / "overrides.txt"
    overrides.write_text("\n".join(f"{name} ; sys_platform == 'none'" for name in without))
    uv = (sys.executable, "-m", "uv", "--quiet")
    subprocess.run([*uv, "venv", "--python", sys.executable, directory / "venv"], check=True)
    install = ("pip", "install", "--python", directory / "venv/bin/python", "--overrides", overrides)
    subprocess.run([*uv, *install, package], check=True)
    return directory / "venv/bin"


def ask(argv: list[str | Path], cwd: Path, env: Mapping[str, str]) -> str:
    """Run a client and return what it prints. OpenCode takes its directory from PWD."""
    given = {"env": {**env, "PWD": str(cwd)}, "stdin": subprocess.DEVNULL, "timeout": WITHIN_S}
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False, **given)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@contextmanager
def started(argv: list[str | Path], cwd: Path, env: Mapping[str, str], url: str) -> Iterator[None]:
    """Run a server until it answers at a URL, and end it afterwards."""
    with (
        (cwd / "log").open("w") as log,
        subprocess.Popen(argv, cwd=cwd, env=env, stdout=log, stderr=log, start_new_session=True) as running,
    ):
        try:
            end = time.monotonic() + WITHIN_S
            while not reachable(url):
                assert running.poll() is None, (cwd / "log").read_text()[-4000:]
                assert time.monotonic() < end, (cwd / "log").read_text()[-4000:]
                time.sleep(1)
            yield
        finally:
            running.terminate()


def reachable(url: str) -> bool:
    try:
        return http().get(url, timeout=5).ok
    except requests.RequestException:
        return False


def http(token: str = "") -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.headers.update({"Authorization": f"Bearer {token}"} if token else {})
    return session


def completion(session: requests.Session, url: str, model: str) -> str:
    """The answer to the question over an API of OpenAI's form."""
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "stream": False}
    reply = session.post(url, json=body, timeout=120)
    assert reply.ok, reply.text
    answer: Any = reply.json()
    return str(answer["choices"][0]["message"]["content"])


def test_opencode_gets_an_answer(served: Served, tmp_path: Path) -> None:
    """It sends its tools with the question, so that the stand-in need not name the capital."""
    programs = npm(tmp_path, "opencode-ai")
    (tmp_path / "opencode.json").write_text(served.configuration("opencode"))
    before = served.answers

    answer = ask(
        [programs / "opencode", "run", "--model", "sparkops/chat", QUESTION], tmp_path, environment(tmp_path / "home")
    )

    assert answer.strip()
    assert served.answers > before


def test_continue_gets_an_answer(served: Served, tmp_path: Path) -> None:
    programs = npm(tmp_path, "@continuedev/cli")
    env = environment(tmp_path / "home")
    settings = tmp_path / "home/.continue"
    settings.mkdir()
    (settings / "config.yaml").write_text(served.configuration("continue"))
    (settings / ".env").write_text(f"{KEY}={env.pop(KEY)}\n")

    assert "Paris" in ask([programs / "cn", "--config", settings / "config.yaml", "--print", QUESTION], tmp_path, env)


def test_open_webui_gets_an_answer(served: Served, tmp_path: Path) -> None:
    """The printed command runs with a `docker` that starts the package: the image has the same program."""
    programs, port = pip(tmp_path, "open-webui", "torch"), free_port()
    (tmp_path / "docker").write_text(f'#!/bin/sh\nexec "{programs}/open-webui" serve --host 127.0.0.1 --port {port}\n')
    (tmp_path / "docker").chmod(0o755)
    alone = {
        "WEBUI_AUTH": "False",
        "ENABLE_OLLAMA_API": "False",
        "RAG_EMBEDDING_ENGINE": "openai",  # else it loads a model from a hub
        "OFFLINE_MODE": "True",
        "DATA_DIR": str(tmp_path / "data"),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    env, url = environment(tmp_path / "home", **alone), f"http://127.0.0.1:{port}"

    with started(["sh", "-ec", served.configuration("open-webui")], tmp_path, env, f"{url}/health"):
        signed_in = http().post(f"{url}/api/v1/auths/signin", json={"email": "", "password": ""}, timeout=120)
        session = http(str(signed_in.json()["token"]))
        listed = session.get(f"{url}/api/models", timeout=120).json()["data"]

        assert "chat" in [model["id"] for model in listed]
        assert "Paris" in completion(session, f"{url}/api/chat/completions", "chat")


def test_litellm_gets_an_answer(served: Served, tmp_path: Path) -> None:
    programs, port = pip(tmp_path, "litellm[proxy]"), free_port()
    (tmp_path / "config.yaml").write_text(served.configuration("litellm"))
    env, url = environment(tmp_path / "home", LITELLM_MASTER_KEY="sk-litellm"), f"http://127.0.0.1:{port}"
    argv: list[str | Path] = [
        programs / "litellm",
        "--config",
        "config.yaml",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]

    with started(argv, tmp_path, env, f"{url}/health/liveliness"):
        assert "Paris" in completion(http("sk-litellm"), f"{url}/v1/chat/completions", "chat")
