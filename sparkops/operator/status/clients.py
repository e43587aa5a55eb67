"""Configuration of programs that call the fleet's services, such as Open WebUI. Pure.

A secret is never part of it: each piece reads the key from the variable KEY, which `export` sets from the key's file.
Formats, as documented on 2026-11-26: https://docs.litellm.ai/docs/proxy/configs, https://docs.continue.dev/reference,
https://opencode.ai/docs/providers/ and https://docs.openwebui.com/reference/env-configuration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from sparkops.command import quote

KEY = "SPARKOPS_API_KEY"
NO_KEY = "none"
"""Key of a fleet without keys: the clients refuse an empty one, and the gateway ignores it."""
QUESTION = "What is the capital of France?"
OPENCODE_MOST = 32_000
"""Tokens of an answer that OpenCode asks for at most."""


@dataclass(frozen=True)
class Model:
    """A service as clients see it."""

    name: str
    """Name that clients pass as `model`."""
    url: str
    """Base URL, which ends in /v1."""
    context: int | None = None
    """Length of its context in tokens; None if its engine does not report one."""


def facts(services: Sequence[Model], key_file: str) -> dict[str, Any]:
    """Return what any client needs, for `--json`. `key_file`: path of the file with a key; empty without keys."""
    rows = [{"model": model.name, "url": model.url, "context_tokens": model.context} for model in services]
    return {"api_key_file": key_file or None, "services": rows}


def configuration(client: str, services: Sequence[Model], key_file: str) -> str:
    """Return the configuration of a client of CLIENTS, which begins with a comment that says where it goes.

    `services` has at least one service. `key_file`: as for `facts`. JSON has no comments: OpenCode reads JSONC.
    """
    sign, where, piece = CLIENTS[client]
    head = [where, *(f"{model.name}: {_context(model)}" for model in services)]
    if key_file:
        head.append(f"The key: export {KEY}=$(cat {quote(key_file)})")
    return "\n".join([*(f"{sign} {line}" for line in head), piece(services, key_file)])


def _context(model: Model) -> str:
    return f"context of {model.context} tokens" if model.context else "its engine reports no length of its context"


def _curl(services: Sequence[Model], key_file: str) -> str:
    key = f' -H "Authorization: Bearer ${KEY}"' if key_file else ""
    lines = []
    for model in services:
        url, body = quote(f"{model.url}/chat/completions"), quote(json.dumps(_request(model)))
        lines.append(f"curl {url}{key} -H 'Content-Type: application/json' -d {body}")
    return "\n".join(lines)


def _request(model: Model) -> dict[str, Any]:
    return {"model": model.name, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 64}


def _python(services: Sequence[Model], key_file: str) -> str:
    key = f'os.environ["{KEY}"]' if key_file else json.dumps(NO_KEY)
    lines = ["import os\n"] if key_file else []
    lines.append("from openai import OpenAI")
    for model in services:
        messages = json.dumps(_request(model)["messages"])
        lines.append(f"\nclient = OpenAI(base_url={json.dumps(model.url)}, api_key={key})")
        arguments = f"model={json.dumps(model.name)}, messages={messages}, max_tokens=64"
        lines.append(f"reply = client.chat.completions.create({arguments})")
        lines.append("print(reply.choices[0].message.content)")
    return "\n".join(lines)


def _open_webui(services: Sequence[Model], key_file: str) -> str:
    """Return a command; Open WebUI lists the models by itself. Without a value, docker passes a variable on."""
    urls = list(dict.fromkeys(model.url for model in services))
    keys = ";".join([f"${KEY}" if key_file else NO_KEY] * len(urls))
    options = (
        "--detach",
        "--name=open-webui",
        "--publish=127.0.0.1:3000:8080",
        "--volume=open-webui:/app/backend/data",
    )
    words = ("docker", "run", *options, "--env=OPENAI_API_BASE_URLS", "--env=OPENAI_API_KEYS")
    variables = f'OPENAI_API_BASE_URLS={quote(";".join(urls))} OPENAI_API_KEYS="{keys}"'
    return f"{variables} \\\n  {quote(*words)} ghcr.io/open-webui/open-webui:main"


def _opencode(services: Sequence[Model], key_file: str) -> str:
    providers = {}
    for url, named in _by_url(services).items():
        name = "sparkops" if len(_by_url(services)) == 1 else f"sparkops-{named[0].name}"
        options = {"baseURL": url, "apiKey": f"{{env:{KEY}}}" if key_file else NO_KEY}
        entries = {model.name: {"name": model.name, **_limit(model)} for model in named}
        providers[name] = {"npm": "@ai-sdk/openai-compatible", "name": name, "options": options, "models": entries}
    return json.dumps({"$schema": "https://opencode.ai/config.json", "provider": providers}, indent=2)


def _limit(model: Model) -> dict[str, Any]:
    """Return the limits of a model: a quarter of the context is left to an answer."""
    if model.context is None:
        return {}
    return {"limit": {"context": model.context, "output": min(model.context // 4, OPENCODE_MOST)}}


def _by_url(services: Sequence[Model]) -> dict[str, list[Model]]:
    return {url: [model for model in services if model.url == url] for url in (model.url for model in services)}


def _continue(services: Sequence[Model], key_file: str) -> str:
    entries = []
    for model in services:
        entry: dict[str, Any] = {"name": model.name, "provider": "openai", "model": model.name, "apiBase": model.url}
        entry["apiKey"] = f"${{{{ secrets.{KEY} }}}}" if key_file else NO_KEY
        entry["roles"] = ["chat", "edit", "apply"]
        if model.context:
            entry["defaultCompletionOptions"] = {"contextLength": model.context}
        entries.append(entry)
    return _yaml({"name": "sparkops", "version": "1.0.0", "schema": "v1", "models": entries})


def _litellm(services: Sequence[Model], key_file: str) -> str:
    entries = []
    for model in services:
        key = f"os.environ/{KEY}" if key_file else NO_KEY
        parameters = {"model": f"openai/{model.name}", "api_base": model.url, "api_key": key}
        information = {"model_info": {"max_input_tokens": model.context}} if model.context else {}
        entries.append({"model_name": model.name, "litellm_params": parameters, **information})
    return _yaml({"model_list": entries})


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, width=120)).rstrip("\n")


Piece = Callable[[Sequence[Model], str], str]
CLIENTS: Mapping[str, tuple[str, str, Piece]] = {
    "curl": ("#", "A shell:", _curl),
    "python": ("#", "Python, after `pip install openai`:", _python),
    "open-webui": ("#", "A shell of a machine with Docker; then http://127.0.0.1:3000:", _open_webui),
    "opencode": ("//", "opencode.json of a project, or ~/.config/opencode/opencode.json:", _opencode),
    "continue": ("#", "~/.continue/config.yaml; the key is one of the secrets in ~/.continue/.env:", _continue),
    "litellm": (
        "#",
        "config.yaml, for `litellm --config config.yaml`, which wants a key of its own in LITELLM_MASTER_KEY:",
        _litellm,
    ),
}
"""By name of a client: the sign of a comment, where its configuration goes, and the function that writes it."""
