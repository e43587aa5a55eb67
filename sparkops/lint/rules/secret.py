"""Find keys, tokens and passwords, which everyone with the image can read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkops.lint.dockerfile import Instruction, StagedBuild, variables
from sparkops.lint.finding import Violation
from sparkops.lint.text import split
from sparkops.redact import KEY, KINDS, names_secret, redacted

FILE_FIX = "RUN --mount=type=secret,id=NAME,target=PATH for a build, and the name in .dockerignore"
HARMLESS = re.compile(r"[0-9.]*|true|false|/\S*|<\S*>", re.IGNORECASE)
SHORT_NAMES = re.compile(r"(?i).*_(PAT|PASS|PWD|CREDS)")
"""Names of secrets by an abbreviated ending."""
ASSIGNED = re.compile(r"(?<![\w$-])([A-Za-z_]\w*)=(\"[^\"$`]+\"|'[^'$`]+'|[^\s\"'$`;&|)]+)(?=[\s;&|)\"']|$)")
KEY_FILES = re.compile(
    r"(?i)\.env(\.(?!example|sample|template|dist|tmpl)[\w.-]+)?|id_(rsa|dsa|ecdsa|ed25519)|.*\.(key|p12|pfx|jks|kdbx)"
    r"|(?!.*(ca|cert|chain|bundle|pub)).*\.pem|\.netrc|\.npmrc|\.pypirc|\.git-credentials|kubeconfig"
    r"|(gcp-|google-)?credentials(\.json)?|service[-_]account.*\.json|\.ssh|\.aws|\.dockercfg"
)
"""Files with keys, by the last part of their path."""
FIX = "RUN --mount=type=secret,id=NAME,env=NAME for a build; a file on the node for a server"


def check(build: StagedBuild) -> Iterator[Violation]:
    """Yield variables with a secret, text that looks like a key, and files with keys."""
    for instruction in build.dockerfile.instructions:
        secrets = [*_declared(instruction, build.dockerfile.escape), *_assigned(instruction)]
        yield from secrets or _keys(instruction)
        yield from _copied(instruction)


def _is_secret(name: str, value: str | None) -> bool:
    """Return whether the name is that of a secret and the value is not harmless. None: set at build time."""
    secret = names_secret(name) or SHORT_NAMES.fullmatch(name)
    return bool(secret) and (value is None or not HARMLESS.fullmatch(value.strip("\"'")))


def looks_secret(text: str) -> tuple[int, str] | None:
    """Return the offset of the first key in the text, and its kind."""
    match = KEY.search(text)
    return (match.start(), list(KINDS)[(match.lastindex or 1) - 1]) if match else None


def hidden(text: str) -> str:
    """Return the text with possible secrets hidden, because findings are printed and stored."""
    return KEY.sub("...", redacted(text))


def _declared(instruction: Instruction, escape: str) -> Iterator[Violation]:
    """Yield each ENV and ARG with a secret."""
    if instruction.keyword not in ("ARG", "ENV"):
        return
    lines = {word.text({}).partition("=")[0]: word.line for word in split(instruction.rest, escape)}
    unset = dict.fromkeys(lines) if instruction.keyword == "ARG" else {}
    for name, value in (unset | dict(variables(instruction, escape, {}))).items():
        if _is_secret(name, value or unset.get(name, "")):
            line = lines.get(name, instruction.line)
            problem = f"{instruction.keyword} {name} is a secret that the image's history shows"
            yield Violation(line, f"{problem}, expected a secret mount", FIX)


def _assigned(instruction: Instruction) -> Iterator[Violation]:
    """Yield each variable of a RUN with a secret as text."""
    if instruction.keyword != "RUN":
        return
    for text in (instruction.rest, *(heredoc.body for heredoc in instruction.heredocs)):
        for match in ASSIGNED.finditer(text.text):
            if _is_secret(match[1], match[2]):
                problem = f"RUN sets {match[1]}, a secret that the image's history shows"
                yield Violation(text.line(match.start()), f"{problem}, expected a secret mount", FIX)


def _copied(instruction: Instruction) -> Iterator[Violation]:
    """Yield each file with keys that COPY or ADD copies from the build context."""
    if instruction.keyword not in ("ADD", "COPY") or any(name == "from" for name, _ in instruction.flags):
        return
    for source in instruction.paths[:-1]:
        if KEY_FILES.fullmatch(source.rstrip("/").rpartition("/")[2]):
            problem = f"{instruction.keyword} {source} copies a file with keys into a layer"
            yield Violation(instruction.line, f"{problem}, expected a secret mount", FILE_FIX)


def _keys(instruction: Instruction) -> Iterator[Violation]:
    """Yield each text that looks like a key."""
    for text in (instruction.rest, *(heredoc.body for heredoc in instruction.heredocs)):
        if match := looks_secret(text.text):
            problem = f"{instruction.keyword} contains {match[1]}, readable in the image"
            yield Violation(text.line(match[0]), f"{problem}, expected a secret mount", FIX)
