"""No key, token or password stands where everybody who has the image can read it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkops.lint.dockerfile import Instruction
from sparkops.lint.finding import Found
from sparkops.lint.stages import StagedBuild, variables
from sparkops.lint.words import split
from sparkops.redact import KEY, KINDS, names_secret, redacted

FILE_FIX = "RUN --mount=type=secret,id=NAME,target=PATH for a build, and the name in .dockerignore"
HARMLESS = re.compile(r"[0-9.]*|true|false|/\S*|<\S*>", re.IGNORECASE)
SHORT_NAMES = re.compile(r"(?i).*_(PAT|PASS|PWD|CREDS)")
"""Names of secrets that are no whole word elsewhere."""
ASSIGNED = re.compile(r"(?<![\w$-])([A-Za-z_]\w*)=(\"[^\"$`]+\"|'[^'$`]+'|[^\s\"'$`;&|)]+)(?=[\s;&|)\"']|$)")
KEY_FILES = re.compile(
    r"(?i)\.env(\.(?!example|sample|template|dist|tmpl)[\w.-]+)?|id_(rsa|dsa|ecdsa|ed25519)|.*\.(key|p12|pfx|jks|kdbx)"
    r"|(?!.*(ca|cert|chain|bundle|pub)).*\.pem|\.netrc|\.npmrc|\.pypirc|\.git-credentials|kubeconfig"
    r"|(gcp-|google-)?credentials(\.json)?|service[-_]account.*\.json|\.ssh|\.aws|\.dockercfg"
)
"""Files that hold keys, by the last part of their path."""
FIX = "RUN --mount=type=secret,id=NAME,env=NAME for a build; for a server, a key that its node keeps"


def check(build: StagedBuild) -> Iterator[Found]:
    """Each ENV and ARG that holds a secret, and each text that looks like a key, wherever it stands."""
    for instruction in build.dockerfile.instructions:
        named = list(_named(instruction, build.dockerfile.escape)) or list(_assigned(instruction))
        yield from named or _written(instruction)
        yield from _copied(instruction)


def named_secret(name: str, value: str | None) -> bool:
    """Whether the name says that its value is a secret. None: the value is given at build time."""
    secret = names_secret(name) or SHORT_NAMES.fullmatch(name)
    return bool(secret) and (value is None or not HARMLESS.fullmatch(value.strip("\"'")))


def looks_secret(text: str) -> tuple[int, str] | None:
    """Where in the text a key begins, and its kind."""
    match = KEY.search(text)
    return (match.start(), list(KINDS)[(match.lastindex or 1) - 1]) if match else None


def hidden(text: str) -> str:
    """The text without what may be a secret in it: findings are printed and kept."""
    return KEY.sub("...", redacted(text))


def _named(instruction: Instruction, escape: str) -> Iterator[Found]:
    if instruction.keyword not in ("ARG", "ENV"):
        return
    lines = {word.text({}).partition("=")[0]: word.line for word in split(instruction.rest, escape)}
    given = dict.fromkeys(lines) if instruction.keyword == "ARG" else {}
    for name, value in (given | dict(variables(instruction, escape, {}))).items():
        if named_secret(name, value or given.get(name, "")):
            line = lines.get(name, instruction.line)
            problem = f"{instruction.keyword} {name} holds a secret, and the image's history shows it to whoever has it"
            yield Found(line, f"{problem}, expected a secret mount", FIX)


def _assigned(instruction: Instruction) -> Iterator[Found]:
    """Yield each variable of a RUN that holds a secret as text."""
    if instruction.keyword != "RUN":
        return
    for text in (instruction.rest, *(heredoc.body for heredoc in instruction.heredocs)):
        for match in ASSIGNED.finditer(text.text):
            if named_secret(match[1], match[2]):
                problem = f"RUN sets {match[1]}, and the image's history shows it to whoever has it"
                yield Found(text.line(match.start()), f"{problem}, expected a secret mount", FIX)


def _copied(instruction: Instruction) -> Iterator[Found]:
    """Yield each file of keys that a COPY or ADD takes from the build context."""
    if instruction.keyword not in ("ADD", "COPY") or any(name == "from" for name, _ in instruction.flags):
        return
    for source in (instruction.words or tuple(instruction.rest.text.split()))[:-1]:
        if KEY_FILES.fullmatch(source.rstrip("/").rpartition("/")[2]):
            problem = f"{instruction.keyword} {source} puts a file of keys into a layer, where it stays"
            yield Found(instruction.line, f"{problem}, expected a secret mount", FILE_FIX)


def _written(instruction: Instruction) -> Iterator[Found]:
    for text in (instruction.rest, *(heredoc.body for heredoc in instruction.heredocs)):
        if match := looks_secret(text.text):
            problem = f"{match[1]} stands in this {instruction.keyword}, and whoever has the image can read it"
            yield Found(text.line(match[0]), f"{problem}, expected a secret mount", FIX)
