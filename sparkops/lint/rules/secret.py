"""No key, token or password is in an image, where everybody who has it can read it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkops.lint.dockerfile import Instruction
from sparkops.lint.finding import Violation
from sparkops.lint.stages import StagedBuild, variables
from sparkops.lint.text import split
from sparkops.redact import KEY, KINDS, names_secret, redacted

FILE_FIX = "RUN --mount=type=secret,id=NAME,target=PATH for a build, and the name in .dockerignore"
HARMLESS = re.compile(r"[0-9.]*|true|false|/\S*|<\S*>", re.IGNORECASE)
SHORT_NAMES = re.compile(r"(?i).*_(PAT|PASS|PWD|CREDS)")
"""Names of secrets by an ending that is no word of its own."""
ASSIGNED = re.compile(r"(?<![\w$-])([A-Za-z_]\w*)=(\"[^\"$`]+\"|'[^'$`]+'|[^\s\"'$`;&|)]+)(?=[\s;&|)\"']|$)")
KEY_FILES = re.compile(
    r"(?i)\.env(\.(?!example|sample|template|dist|tmpl)[\w.-]+)?|id_(rsa|dsa|ecdsa|ed25519)|.*\.(key|p12|pfx|jks|kdbx)"
    r"|(?!.*(ca|cert|chain|bundle|pub)).*\.pem|\.netrc|\.npmrc|\.pypirc|\.git-credentials|kubeconfig"
    r"|(gcp-|google-)?credentials(\.json)?|service[-_]account.*\.json|\.ssh|\.aws|\.dockercfg"
)
"""Files that hold keys, by the last part of their path."""
FIX = "RUN --mount=type=secret,id=NAME,env=NAME for a build; for a server, a key that its node keeps"


def check(build: StagedBuild) -> Iterator[Violation]:
    """Yield each variable that holds a secret, each text that looks like a key, and each file of keys."""
    for instruction in build.dockerfile.instructions:
        secrets = [*_declared(instruction, build.dockerfile.escape), *_assigned(instruction)]
        yield from secrets or _keys(instruction)
        yield from _copied(instruction)


def _is_secret(name: str, value: str | None) -> bool:
    """Return whether the name says that its value is a secret. None: the value is set at build time."""
    secret = names_secret(name) or SHORT_NAMES.fullmatch(name)
    return bool(secret) and (value is None or not HARMLESS.fullmatch(value.strip("\"'")))


def looks_secret(text: str) -> tuple[int, str] | None:
    """Return the offset of the first key in the text, and its kind."""
    match = KEY.search(text)
    return (match.start(), list(KINDS)[(match.lastindex or 1) - 1]) if match else None


def hidden(text: str) -> str:
    """Return the text with possible secrets hidden: findings are printed and kept."""
    return KEY.sub("...", redacted(text))


def _declared(instruction: Instruction, escape: str) -> Iterator[Violation]:
    """Yield each ENV and ARG that holds a secret."""
    if instruction.keyword not in ("ARG", "ENV"):
        return
    lines = {word.text({}).partition("=")[0]: word.line for word in split(instruction.rest, escape)}
    unset = dict.fromkeys(lines) if instruction.keyword == "ARG" else {}
    for name, value in (unset | dict(variables(instruction, escape, {}))).items():
        if _is_secret(name, value or unset.get(name, "")):
            line = lines.get(name, instruction.line)
            problem = f"{instruction.keyword} {name} holds a secret, and the image's history shows it to whoever has it"
            yield Violation(line, f"{problem}, expected a secret mount", FIX)


def _assigned(instruction: Instruction) -> Iterator[Violation]:
    """Yield each variable of a RUN that holds a secret as text."""
    if instruction.keyword != "RUN":
        return
    for text in (instruction.rest, *(heredoc.body for heredoc in instruction.heredocs)):
        for match in ASSIGNED.finditer(text.text):
            if _is_secret(match[1], match[2]):
                problem = f"RUN sets {match[1]}, and the image's history shows it to whoever has it"
                yield Violation(text.line(match.start()), f"{problem}, expected a secret mount", FIX)


def _copied(instruction: Instruction) -> Iterator[Violation]:
    """Yield each file of keys that a COPY or ADD takes from the build context."""
    if instruction.keyword not in ("ADD", "COPY") or any(name == "from" for name, _ in instruction.flags):
        return
    for source in instruction.paths[:-1]:
        if KEY_FILES.fullmatch(source.rstrip("/").rpartition("/")[2]):
            problem = f"{instruction.keyword} {source} puts a file of keys into a layer, where it stays"
            yield Violation(instruction.line, f"{problem}, expected a secret mount", FILE_FIX)


def _keys(instruction: Instruction) -> Iterator[Violation]:
    """Yield each text that looks like a key."""
    for text in (instruction.rest, *(heredoc.body for heredoc in instruction.heredocs)):
        if match := looks_secret(text.text):
            problem = f"{match[1]} stands in this {instruction.keyword}, and whoever has the image can read it"
            yield Violation(text.line(match[0]), f"{problem}, expected a secret mount", FIX)
