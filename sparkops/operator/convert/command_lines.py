"""Parse command lines in recipes of other tools: slots, shell words, flags and values."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from posixpath import basename
from typing import Any

from sparkops.command import unquote
from sparkops.operator.convert.flag_types import TEXTS, Words

SLOT = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
SLOT_OR_BRACE = re.compile(r"\{\{|\}\}|" + SLOT.pattern)
QUOTED = re.compile(r"""('[^']*'?|"(?:[^"\\]|\\.)*"?)""", re.DOTALL)
"""A quoted text of a shell, also one that does not end: another start would read the rest again."""
COMMENT = re.compile(r"""\\.|"(?:[^"\\]|\\.)*"?|'[^']*'?|(?<!\S)#[^\n]*""", re.DOTALL)
"""A comment of a shell, or what has none: an escaped character, or a quoted text."""
FLAG = re.compile(r"--(?P<flag>[A-Za-z][\w-]*(?:\.[\w-]+)*)(?:=(?P<value>.*))?", re.DOTALL)
INTEGER = re.compile(r"-?[0-9]+")
DECIMAL = re.compile(r"-?[0-9]*\.[0-9]+")
SHORT_FLAG = re.compile(r"-(?P<short>[a-z]{1,3})(?P<path>\.[\w.-]+)?(?:=(?P<value>.*))?", re.DOTALL)
LEVEL = re.compile(r"-O=?(?P<value>.+)", re.DOTALL)
LETTER = re.compile(r"-(?P<short>[nqr])(?P<value>.+)", re.DOTALL)
"""A short flag of one letter with its value: argparse reads -n2 as -n 2."""
OTHER_FLAG = re.compile(r"-(?![0-9]*(?:\.[0-9]+)?$)[^\s=]+(?:=.*)?", re.DOTALL)
"""Any other word that argparse reads as a flag: it begins with a dash, and is no number and no text with spaces."""
SHORT = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "dpa": "data-parallel-address",
    "dpb": "data-parallel-backend",
    "dpe": "data-parallel-external-lb",
    "dph": "data-parallel-hybrid-lb",
    "dpl": "data-parallel-size-local",
    "dpm": "data-parallel-multi-port-external-lb",
    "dpn": "data-parallel-rank",
    "dpp": "data-parallel-rpc-port",
    "dpr": "data-parallel-start-rank",
    "dcp": "decode-context-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "ep": "enable-expert-parallel",
    "n": "nnodes",
    "r": "node-rank",
    "q": "quantization",
    "ac": "attention-config",
    "asc": "api-server-count",
    "cc": "compilation-config",
    "sc": "speculative-config",
}
"""Flags of vLLM that have a short form (vllm/engine/arg_utils.py and entrypoints/openai/cli_args.py of 0.23.0)."""
OPTIMIZATION, LEVELS = "optimization-level", ("0", "1", "2", "3")
"""-O3 and -O 3 of vLLM (vllm/utils/argparse_utils.py of 0.23.0); -O with another word is no flag."""
MOST_DIGITS = 4300
"""Longest number that Python parses."""
OPERATOR = re.compile(r"\|\|?|&&?|;|[0-9]*(>>?|<)(&?[0-9]|[^{}]*)")
"""Words that end a command or redirect its output."""
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
VARIABLE = re.compile(r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<default>[^${}]*))?\})")
TYPOGRAPHIC = re.compile("[\u201c-\u201f\u2018-\u201b]")
"""Quotes of a word processor, which a shell takes for letters."""
SHELLS = frozenset({"sh", "bash"})
SERVERS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main", "vllm"),
    "sglang": ("sglang.launch_server",),
}
"""Modules that `python -m` starts as a server, by engine; the first one takes flags without `serve`."""
MOST_CHARACTERS = 64 * 1024
"""Limit for a command with filled slots, which may repeat a long value. Real commands have about 1000."""
TOO_LARGE = f"larger than {MOST_CHARACTERS} characters with its slots filled"


def filled(text: str, values: Mapping[str, Any], *, escapes: bool = True) -> tuple[str, list[str]]:
    """Return a command with its {slots} filled, and the names of slots without a value.

    `escapes`: {{ and }} mean braces, as in version 1; version 2 has no escapes, so JSON may end in }}. A quoted text
    without {{ has none in version 1 either: JSON with escaped braces begins with {{, and plain JSON never has it.

    Raises ValueError for a command that would exceed MOST_CHARACTERS.
    """
    unknown: dict[str, None] = {}
    size = len(text)

    def fill(match: re.Match[str]) -> str:
        nonlocal size
        if match[1] is None:
            return match[0][0]
        if match[1] not in values:
            if not match.string[: match.start()].endswith("$"):  # ${NAME} is a variable of the shell
                unknown[match[1]] = None
            return match[0]
        value = str(values[match[1]])
        size += len(value)
        if size > MOST_CHARACTERS:
            raise ValueError(TOO_LARGE)
        return value

    if size > MOST_CHARACTERS:
        raise ValueError(TOO_LARGE)
    parts = QUOTED.split(text) if escapes else [text]
    return "".join((SLOT_OR_BRACE if escapes and "{{" in part else SLOT).sub(fill, part) for part in parts), [*unknown]


def words(command: str) -> list[str]:
    """Return the words of a command over several lines, without its comments. Raises ValueError for an open quote.

    A line that does not begin with a dash is a command of its own, after `;`, unless the line before ends with a
    backslash: some recipes lack one before a flag.
    """
    command = COMMENT.sub(lambda match: "" if match[0].startswith("#") else match[0], command)
    lines = (line.rstrip() for line in command.splitlines())
    joined = re.sub(r"\\\s*\n", " ", "\n".join(lines) + "\n")
    split = unquote(_separated(joined))
    return [part for word in split for part in ((word[:-1], ";") if len(word) > 1 and word.endswith(";") else (word,))]


def _separated(text: str) -> str:
    """Return the lines of a command with ` ; ` before each that begins a command, outside of quotes."""
    parts = [part for part in re.split(r"""(\\.|"(?:[^"\\]|\\.)*"?|'[^']*'?|\n)""", text, flags=re.DOTALL) if part]
    begun = False
    for number, part in enumerate(parts):
        rest = "".join(parts[number + 1 : number + 3]).lstrip(" \t")
        if begun and part == "\n" and rest.strip() and not rest.startswith(("-", "\n")):
            parts[number] = "\n;\n"
        begun = begun or bool(part.strip())
    return "".join(parts)


def serve(argv: Sequence[str], engine: str = "vllm") -> tuple[list[str], list[str], list[str]]:
    """Return the words before `vllm serve`, its arguments, and the words of the commands after it.

    The server is `vllm serve` with any path, `python -m` with one of SERVERS, or either of them in `bash -c`; for
    SGLang, `sglang serve` likewise.
    Raises ValueError for an open quote in `bash -c`.
    """
    for at, word in enumerate(argv):
        if basename(word) in SHELLS and (script := _script(argv[at + 1 :])) is not None:
            before, arguments, after = serve(words(script), engine)
            if arguments:
                return [*argv[:at], *before], arguments, after
        if length := _server(argv[at : at + 4], engine):
            rest = list(argv[at + length :])
            end = next((n for n, word in enumerate(rest) if OPERATOR.fullmatch(word)), len(rest))
            return list(argv[: at - (at > 0 and argv[at - 1] == "exec")]), rest[:end], rest[end:]
    return list(argv), [], []


def variables(argv: Sequence[str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return what the words before a server set: its environment, all variables of the shell, and other commands.

    `set` with its options changes nothing for the server.
    """
    env, shell, others = dict[str, str](), dict[str, str](), list[str]()
    command = list[str]()
    for word in (*argv, ""):
        if word and not OPERATOR.fullmatch(word):
            command.append(word)
            continue
        exports = command[:1] in (["export"], ["env"]) or (bool(command) and not word)
        assigned = [ASSIGNMENT.fullmatch(part) for part in command[command[:1] in (["export"], ["env"]) :]]
        if all(assigned):
            named = {match[1]: expanded(match[2], {**env, **shell}) for match in assigned if match}
            shell |= named
            env |= named if exports else {}
        elif command[0] != "set":
            others += [*command, *([word] if word else [])]
        command = []
    return env, shell, others


def expanded(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the variables that have a value, or a default as in ${NAME:-0}; all others stay.

    Raises ValueError for values of more than MOST_CHARACTERS: each could double the one before.
    """
    size = 0

    def value(match: re.Match[str]) -> str:
        nonlocal size
        default = match["default"]
        found = values.get(match["name"] or match["braced"], match[0] if default is None else default)
        size += len(found)
        if size > MOST_CHARACTERS:
            raise ValueError(f"larger than {MOST_CHARACTERS} characters with its variables")
        return found

    return VARIABLE.sub(value, text)


def all_expanded(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return words with their variables. Raises ValueError for more than MOST_CHARACTERS that they add together."""
    all_words, added = list[str](), 0
    for word in words:
        all_words.append(expanded(word, values))
        added += max(len(all_words[-1]) - len(word), 0)
        if added > MOST_CHARACTERS:
            raise ValueError(f"larger than {MOST_CHARACTERS} characters with its variables")
    return all_words


def _script(argv: Sequence[str]) -> str | None:
    """Return the script of `-c`, as in `bash -lc SCRIPT`."""
    for at, word in enumerate(argv[:-1]):
        if re.fullmatch(r"-[a-z]*c", word):
            return argv[at + 1]
        if not word.startswith("-"):
            return None
    return None


def _server(argv: Sequence[str], engine: str) -> int:
    """Return the number of words that start the engine's server; 0 for another program."""
    modules = SERVERS[engine]
    match argv:
        case [program, "serve", *_] if basename(program) == engine:
            return 2
        case [program, "-m", module, *rest] if basename(program).startswith("python") and module in modules:
            serves = rest[:1] == ["serve"]
            return 3 + serves if serves or module == modules[0] else 0
    return 0


def flags(argv: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield each flag without dashes and its value: true for a bare one, a list for several words.

    Words before the first flag have an empty name.
    """
    name, words = "", list[str]()
    for word in argv:
        if (flag := _flag(word)) is None:
            if name == "-O" and word in LEVELS:
                name = OPTIMIZATION
            words.append(word)
            continue
        if name or words:
            yield name, value_of(name, words)
        name, words = flag
    if name or words:
        yield name, value_of(name, words)


def value_of(flag: str, words: Sequence[str]) -> Any:
    """Return the value of a flag: names as they are written, all others as `value` reads them.

    A beginning of such a flag counts, too: which one it means is known later.
    """
    if words and any(name.startswith(flag) for name in TEXTS):
        return words[0] if len(words) == 1 else Words(words)
    return value(words)


def _flag(word: str) -> tuple[str, list[str]] | None:
    """Return a flag and its value after =, if any; None for any other word. A flag that vLLM lacks keeps its dash."""
    if match := FLAG.fullmatch(word):
        name = normal(match["flag"])
    elif (match := SHORT_FLAG.fullmatch(word)) and (full := _short(match["short"])):
        name = full + (match["path"] or "")
    elif match := LEVEL.fullmatch(word):
        name = OPTIMIZATION
    elif match := LETTER.fullmatch(word):
        name = SHORT[match["short"]]
    elif OTHER_FLAG.fullmatch(word):
        name, equals, value = word.partition("=")
        return name, [value] if equals else []
    else:
        return None
    return name, [] if match["value"] is None else [match["value"]]


def _short(short: str) -> str:
    """Return the flag of vLLM with a short form, or with the beginning of only one; empty if none."""
    named = [short] if short in SHORT else [name for name in SHORT if name.startswith(short)]
    return SHORT[named[0]] if len(named) == 1 else ""


def full(flag: str, accepted: Collection[str]) -> list[str]:
    """Return the flags that argparse reads a flag as: itself, or those of `accepted` that begin with it.

    One is what it means; several are an error there, and none is a flag that the parser does not know.
    """
    first, dot, rest = flag.partition(".")
    if first in accepted:
        return [flag]
    return sorted(name + dot + rest for name in accepted if name.startswith(first)) if first else []


def normal(flag: str) -> str:
    """Return a flag in the spelling of vLLM's documentation. A key after a dot keeps its underscores."""
    first, dot, rest = flag.partition(".")
    return first.replace("_", "-").lower() + dot + rest


def value(words: Sequence[str]) -> Any:
    """Return numbers and JSON as YAML values, other words as text. Raises ValueError for too large values."""
    if len(words) != 1:
        return Words(value([word]) for word in words) or True
    text = words[0]
    if INTEGER.fullmatch(text):
        if len(text) > MOST_DIGITS:
            raise ValueError(f"a number of {len(text)} digits is too long")
        return int(text)
    if DECIMAL.fullmatch(text):
        return float(text)
    try:
        return json.loads(text) if text[:1] in ("{", "[") else text
    except RecursionError:
        raise ValueError("JSON is nested too deep") from None
    except ValueError:
        # Some recipes of version 2 double their braces as in version 1.
        single = text.replace("{{", "{").replace("}}", "}")
        return text if single == text or not text.startswith("{{") else value([single])
