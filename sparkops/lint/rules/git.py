"""A repository is taken at a commit or a tag."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkops.lint.calls import Call
from sparkops.lint.finding import Found
from sparkops.lint.stages import BuildStage, BuildStep, StagedBuild
from sparkops.lint.words import expand

COMMIT = re.compile(r"[0-9a-f]{7,40}")
RELEASE = re.compile(r"[0-9]\.[0-9]|[0-9]{8}|^[bv]?[0-9]+$")
"""A tag that names a version, a number or a day. A branch of such a name cannot be told from it."""
NAMESPACE = re.compile(r"(refs/)?(tags|heads|remotes)/|origin/")
PIP_URL = re.compile(r"git\+[a-z0-9]+://[^/\s]+/([^\s#;\"']+)")
ADD_URL = re.compile(r"(?:https?://\S+?\.git|git@[^\s#]+|(?:git|ssh)://[^\s#]+)(?:#([^\s:]*)\S*)?")
GLOBAL_VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree"})
SETTLES = frozenset({"checkout", "fetch", "reset", "switch", "worktree"})
FIX = "git clone --branch TAG, or git checkout COMMIT behind it; git+URL@COMMIT; ADD URL#COMMIT"


def check(build: StagedBuild) -> Iterator[Found]:
    """Each repository that is taken at whatever commit it has today."""
    for stage in build.stages:
        for call in _loose_clones(stage):
            yield _found(call.line, " ".join(call.argv[:2]) + f" {_source(call)}")
        for step in stage.steps:
            for line, url, ref in _urls(step):
                if not fixed(ref):
                    yield _found(line, url)


def fixed(ref: str) -> bool:
    """Whether the ref will be the same tomorrow. One that is only known at build time counts as such."""
    plain = NAMESPACE.sub("", ref)
    return "$" in ref or bool(COMMIT.fullmatch(plain) or RELEASE.search(plain))


def _found(line: int, what: str) -> Found:
    return Found(line, f"{what} takes whatever commit is there today, expected a commit or a tag", FIX)


def _loose_clones(stage: BuildStage) -> Iterator[Call]:
    """The clones behind which nothing chooses a commit before the next clone, or the end."""
    loose: Call | None = None
    for call in (call for call in stage.calls if call.program == "git"):
        verb, words = _verb(call)
        if verb == "clone":
            if loose:
                yield loose
            local = _source(call).startswith(("/", "."))
            loose = None if local or any(map(fixed, _chosen(words))) else call
        elif verb in SETTLES and any(map(fixed, words)):
            loose = None
    if loose:
        yield loose


def _verb(call: Call) -> tuple[str, tuple[str, ...]]:
    words = list(call.argv[1:])
    while words and words[0].startswith("-"):
        words = words[2 if words[0] in GLOBAL_VALUED else 1 :]
    return (words[0], tuple(words[1:])) if words else ("", ())


def _chosen(words: tuple[str, ...]) -> Iterator[str]:
    """What `git clone` is told to check out."""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        name, sign, value = word.partition("=")
        if name in ("-b", "--branch", "--revision"):
            yield value if sign else following


def _source(call: Call) -> str:
    return next((word for word in _verb(call)[1] if re.match(r"[./]|\S+[:@/$]", word)), "")


def _urls(step: BuildStep) -> Iterator[tuple[int, str, str]]:
    """Each URL of a repository that pip, uv or ADD is given: line, URL and ref."""
    for install in step.installs:
        for word in (*install.requirements, *install.option("--editable")):
            for match in PIP_URL.finditer(word):
                yield install.line, match[0], match[1].partition("@")[2]
    if step.instruction.keyword == "ADD":
        for word in step.instruction.rest.text.split()[:-1]:
            if added := ADD_URL.fullmatch(expand(word, step.values)):
                yield step.instruction.line, added[0], added[1] or ""
