"""The arguments of `vllm serve` that the stand-in uses. Others are accepted and listed in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MODEL_LEN = 32768
MOST_AT_ONCE = 256


class BadArguments(Exception):
    """A command line that vLLM rejects as well."""


@dataclass(frozen=True)
class Arguments:
    """The parsed arguments. `flags`: all flags by name."""

    model: str
    flags: dict[str, str] = field(default_factory=dict)
    host: str = "0.0.0.0"  # noqa: S104 - as vLLM does
    port: int = 8000
    served_names: tuple[str, ...] = ()
    model_len: int = MODEL_LEN
    most_at_once: int = MOST_AT_ONCE

    @property
    def access_log(self) -> bool:
        """Whether each request is logged."""
        return "disable-uvicorn-access-log" not in self.flags

    @property
    def headless(self) -> bool:
        """Whether this rank has no HTTP server."""
        return "headless" in self.flags


def parse(argv: Sequence[str]) -> Arguments:
    """Parse the arguments after `vllm`. Raises BadArguments."""
    if not argv or argv[0] != "serve":
        raise BadArguments("expected: vllm serve MODEL [--FLAG=VALUE ...]")
    places, flags = _split(argv[1:])
    model = places[0] if places else flags.get("model", "")
    if not model:
        raise BadArguments("expected a model: vllm serve MODEL")
    return Arguments(
        model=model,
        flags=flags,
        host=flags.get("host", "0.0.0.0"),  # noqa: S104
        port=_whole(flags, "port", 8000),
        served_names=tuple(flags.get("served-model-name", model).split()),
        model_len=_whole(flags, "max-model-len", MODEL_LEN),
        most_at_once=_whole(flags, "max-num-seqs", MOST_AT_ONCE),
    )


def _split(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return positional arguments and flags: `--flag=value`, `--flag value` and `--flag` alone."""
    places: list[str] = []
    flags: dict[str, str] = {}
    waiting = ""
    for each in argv:
        if each.startswith("--"):
            name, _, value = each[2:].partition("=")
            flags[name.replace("_", "-")] = value
            waiting = "" if "=" in each else name.replace("_", "-")
        elif waiting:
            flags[waiting] = f"{flags[waiting]} {each}".strip()
        else:
            places.append(each)
    return places, flags


def _whole(flags: dict[str, str], name: str, default: int) -> int:
    text = flags.get(name, str(default))
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise BadArguments(f"argument --{name}: invalid value: {text!r}")
    return int(text)
