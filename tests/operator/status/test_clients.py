"""The configuration of each client: what it names, and that the real clients get an answer with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.operator.status.clients import CLIENTS, KEY, Model, configuration, facts
from tests.fleet import engine
from tests.standin.program import Program

URL, OTHER_URL = "http://10.0.0.1:8000/v1", "http://10.0.0.1:8010/v1"
CHAT, CODE = Model("chat", URL, 32_768), Model("code", OTHER_URL)
KEY_FILE = "/home/me/my keys/team.key"
SECRET = "sk-of-the-test"


def parsed(client: str, *services: Model, key_file: str = "") -> Any:
    """The configuration of a client that reads YAML or JSON."""
    text = configuration(client, services, key_file)
    if client == "opencode":
        return json.loads("\n".join(line for line in text.splitlines() if not line.startswith("//")))
    return yaml.safe_load(text)


@pytest.mark.parametrize("client", CLIENTS)
def test_each_piece_names_url_and_model_and_the_length_of_the_context(client: str) -> None:
    text = configuration(client, [CHAT, CODE], "")

    assert {URL, OTHER_URL, "chat", "code", "32768"} <= {word for word in WORDS if word in text}
    assert KEY not in text


WORDS = (URL, OTHER_URL, "chat", "code", "32768")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_key_is_named_by_its_file_and_read_from_the_environment(client: str) -> None:
    text = configuration(client, [CHAT], KEY_FILE)

    assert f"export {KEY}=$(cat '{KEY_FILE}')" in text
    assert text.count(KEY) > 1


def test_opencode_has_one_provider_for_one_address_and_one_for_each_service_otherwise() -> None:
    one = parsed("opencode", CHAT, Model("code", URL), key_file=KEY_FILE)["provider"]
    two = parsed("opencode", CHAT, CODE)["provider"]

    assert one["sparkops"]["options"] == {"baseURL": URL, "apiKey": "{env:SPARKOPS_API_KEY}"}
    assert one["sparkops"]["models"]["chat"]["limit"] == {"context": 32_768, "output": 8192}
    assert [*one["sparkops"]["models"]] == ["chat", "code"]
    assert {name: provider["options"]["baseURL"] for name, provider in two.items()} == {
        "sparkops-chat": URL,
        "sparkops-code": OTHER_URL,
    }


def test_continue_and_litellm_list_every_service() -> None:
    of_continue = parsed("continue", CHAT, CODE, key_file=KEY_FILE)
    of_litellm = parsed("litellm", CHAT, CODE, key_file=KEY_FILE)

    assert of_continue["schema"] == "v1"
    assert [model["apiBase"] for model in of_continue["models"]] == [URL, OTHER_URL]
    assert of_continue["models"][0]["defaultCompletionOptions"] == {"contextLength": 32_768}
    assert of_continue["models"][0]["apiKey"] == "${{ secrets.SPARKOPS_API_KEY }}"
    assert of_litellm["model_list"][0] == {
        "model_name": "chat",
        "litellm_params": {"model": "openai/chat", "api_base": URL, "api_key": "os.environ/SPARKOPS_API_KEY"},
        "model_info": {"max_input_tokens": 32_768},
    }
    assert "model_info" not in of_litellm["model_list"][1]


def test_open_webui_gets_a_key_for_each_address_in_its_environment_only() -> None:
    text = configuration("open-webui", [CHAT, CODE], KEY_FILE)

    assert f"OPENAI_API_BASE_URLS='{URL};{OTHER_URL}'" in text
    assert f'OPENAI_API_KEYS="${KEY};${KEY}"' in text
    assert " --env=OPENAI_API_BASE_URLS --env=OPENAI_API_KEYS " in text


def test_the_facts_for_other_clients_have_the_same_values() -> None:
    assert facts([CHAT, CODE], "") == {
        "api_key_file": None,
        "services": [
            {"model": "chat", "url": URL, "context_tokens": 32_768},
            {"model": "code", "url": OTHER_URL, "context_tokens": None},
        ],
    }
    assert facts([CHAT], KEY_FILE)["api_key_file"] == KEY_FILE


@pytest.fixture(params=["", SECRET], ids=["without keys", "with a key"])
def keyed(request: pytest.FixtureRequest) -> Iterator[tuple[Program, str]]:
    with Program(key=request.param) as program:
        yield program.serves(), request.param


@pytest.mark.local
@pytest.mark.parametrize("client", ["curl", "python"])
def test_a_real_client_gets_an_answer(keyed: tuple[Program, str], client: str, tmp_path: Path) -> None:
    """The stand-in answers with 401 where it has a key and the client sends another one."""
    program, secret = keyed
    model = Model(program.model, f"{program.url}/v1", 1000)
    file = tmp_path / "a key"
    file.write_text(f"{secret}\n")
    piece = tmp_path / "piece"
    piece.write_text(configuration(client, [model], str(file) if secret else ""))
    engine.require({"curl": "curl"})
    argv = {"curl": ("sh", "-e"), "python": (sys.executable,)}[client]
    environment = {**os.environ, **({KEY: secret} if secret else {}), "NO_PROXY": "127.0.0.1"}

    ran = subprocess.run([*argv, str(piece)], env=environment, check=True, capture_output=True, text=True, timeout=120)

    assert "Paris" in ran.stdout
