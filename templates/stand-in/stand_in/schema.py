"""Values that fit a JSON schema, taken from the words of a prompt if possible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
QUOTED = re.compile(r"[\"'“‘`]([^\"'”’`\n]{1,80})[\"'”’`]")  # noqa: RUF001
NAMED = re.compile(r"(?<!^)(?<![.?!:]\s)\b[A-Z][\w-]*(?: [A-Z][\w-]*)*")
DEEPEST = 20


class Words:
    """Numbers and texts, such as names, in a prompt. Each is used once until all are used."""

    def __init__(self, prompt: str, answer: str | None = None) -> None:
        self.prompt = prompt
        found = [answer] if answer else [*QUOTED.findall(prompt), *NAMED.findall(prompt)]
        self.texts = found or re.findall(r"\w+", prompt)[-1:] or ["text"]
        self.numbers = [float(each) for each in NUMBER.findall(answer or "") or NUMBER.findall(prompt)] or [1.0]

    def text(self) -> str:
        """Return the next text."""
        return self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]

    def number(self) -> float:
        """Return the next number."""
        return self.numbers.pop(0) if len(self.numbers) > 1 else self.numbers[0]


def instance(schema: Any, words: Words, root: Any = None, depth: int = 0) -> Any:
    """Return a value of the schema; None for an empty one or one that is nested too deeply."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > DEEPEST:
        return None
    if "$ref" in schema:
        return instance(_resolve(root, str(schema["$ref"])), words, root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return _chosen(schema["enum"], words.prompt)
    for several in ("anyOf", "oneOf", "allOf"):
        if schema.get(several):
            return instance(schema[several][0], words, root, depth + 1)
    return _typed(schema, words, root, depth)


def _typed(schema: dict[str, Any], words: Words, root: Any, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    match kind:
        case "object":
            properties = schema.get("properties", {})
            wanted = schema.get("required", list(properties))
            return {name: instance(properties.get(name, {}), words, root, depth + 1) for name in wanted}
        case "array":
            count = max(1, int(schema.get("minItems", 1)))
            return [instance(schema.get("items", {}), words, root, depth + 1) for _ in range(count)]
        case "integer" | "number":
            value = _bounded(schema, words.number())
            return int(value) if kind == "integer" else value
        case "boolean" | "null":
            return True if kind == "boolean" else None
        case _:
            text = words.text().ljust(int(schema.get("minLength", 0)), ".")
            return text[: int(schema.get("maxLength", len(text)))]


def _bounded(schema: dict[str, Any], value: float) -> float:
    value = max(value, float(schema.get("minimum", value)))
    return min(value, float(schema.get("maximum", value)))


def _chosen(options: list[Any], prompt: str) -> Any:
    return next((each for each in options if str(each).lower() in prompt.lower()), options[0])


def _resolve(root: Any, reference: str) -> Any:
    for step in reference.removeprefix("#").strip("/").split("/"):
        root = root.get(step) if isinstance(root, dict) and step else root
    return root


def choose_tool(tools: list[dict[str, Any]], choice: Any, prompt: str) -> dict[str, Any] | None:
    """Return the function that a prompt requests; None without one."""
    functions = [tool["function"] for tool in tools if isinstance(tool.get("function"), dict)]
    if not functions or choice == "none":
        return None
    if isinstance(choice, dict):
        named = choice.get("function", {}).get("name")
        return next((each for each in functions if each.get("name") == named), None)
    asked = next((each for each in functions if _is_asked_for(each, prompt)), None)
    return asked or (functions[0] if choice == "required" else None)


def _is_asked_for(function: dict[str, Any], prompt: str) -> bool:
    said = set(re.findall(r"[a-z0-9]+", prompt.lower()))
    return any(word in said for word in _telling(str(function.get("name", "")))) or bool(said & {"tool", "function"})


def _telling(name: str) -> Iterator[str]:
    """Yield the words of a tool's name that describe its purpose."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    return (word for word in words if len(word) > 2 and word not in ("get", "the", "fetch", "set", "current"))
