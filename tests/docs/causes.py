"""The page of known causes of failed starts: `python -m tests.docs.causes > docs/causes.md`."""

from __future__ import annotations

import re
import re._constants as sre  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator, Mapping
from typing import Any

from sparkops.engines import ENGINES, EngineName
from sparkops.engines.causes import Cause
from sparkops.serving.startup.causes import DOCKER, LAYERS

NAMES: Mapping[EngineName, str] = {"vllm": "vLLM", "sglang": "SGLang", "llama-cpp": "llama.cpp"}
HEAD = """\
# Causes of failed starts

Written by `python -m tests.docs.causes` from the catalogue that a guard reads. `deploy`, `status` and `history` print
cause and next step by themselves; here a message can be looked up. `...` stands for any text; after *another rank* the
reason is in the log of another rank. How often a verdict is right: [evidence](evidence/starts.md).
"""


def sections() -> Mapping[str, tuple[Cause, ...]]:
    """Return the causes by title, in the order in which they are asked."""
    own = {f"{title} itself": ENGINES[name].log.causes for name, title in NAMES.items()}
    return {**own, **LAYERS, "Docker": DOCKER}


def readable(pattern: str) -> str:
    """Return the message that a pattern matches, its first alternative, with `...` for what varies."""
    text = "".join(_parts(parser.parse(pattern)))
    return " ".join(re.sub("\0+", "...", text).split())


def _parts(tree: Any) -> Iterator[str]:
    for kind, value in tree:
        match kind:
            case sre.LITERAL:
                yield chr(value)
            case sre.SUBPATTERN:
                yield from _parts(value[3])
            case sre.BRANCH:
                yield from _parts(value[1][0])
            case sre.IN:
                letters = [chr(item) for code, item in value if code is sre.LITERAL]
                yield letters[-1] if letters and len(letters) == len(value) == 2 else "\0"
            case sre.MAX_REPEAT | sre.MIN_REPEAT | sre.POSSESSIVE_REPEAT:
                least, most, inner = value
                shown = "".join(_parts(inner))
                varies = "\0" in shown or (most > 1 and shown.strip())
                yield "\0" if varies else shown if least else ""
            case sre.ANY | sre.NOT_LITERAL | sre.CATEGORY:
                yield "\0"
            case _:
                pass


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _filled(text: str) -> str:
    """Return cause or step with `...` for what comes from the message."""
    return text.format(*["..."] * 9) if text else ""


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    for title, causes in sections().items():
        lines += [f"## {title}", "", "| message | likely cause | next step |", "| --- | --- | --- |"]
        for cause in causes:
            said = _filled(cause.cause) or "with the figures of the message"
            said += " (*another rank*)" if cause.of_others else ""
            step = _filled(cause.step) or "printed with the figures"
            lines.append(
                f"| `{_cell(readable(cause.pattern))}` | {_cell(said)} | {_cell(step)} | {_cell(cause.source)} |"
            )
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
