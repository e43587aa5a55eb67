"""Check commands of RUN: apt lists in layers, scripts run from the network, git without a fixed commit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sparkops.lint.calls import SHELLS, Call
from sparkops.lint.finding import Violation
from sparkops.lint.stages import BuildStage, BuildStep, StagedBuild
from sparkops.lint.text import expand
from sparkops.lint.written import mounted

APT = frozenset({"apt", "apt-get", "aptitude"})
APT_LISTS = "/var/lib/apt/lists"
APT_CLEANS = frozenset({"distclean", "dist-clean"})
APT_FIX = f"&& rm -rf {APT_LISTS}/* at the end of the same RUN"

FETCHERS = frozenset({"curl", "wget", "aria2c"})
EVALUATES = SHELLS | {"eval", "source", "."}
INTERPRETERS = re.compile(r"python[0-9.]*|perl|ruby|node")
STDIN = frozenset({"-", "/dev/stdin"})
PIPE_FIX = "download a release to a file, verify it with sha256sum -c, then run it"

COMMIT = re.compile(r"[0-9a-f]{7,40}")
RELEASE = re.compile(r"[0-9]\.[0-9]|[0-9]{8}|^[bv]?[0-9]+$")
"""A tag with a version, a number or a date; a branch may have such a name too."""
NAMESPACE = re.compile(r"(refs/)?(tags|heads|remotes)/|origin/")
PIP_URL = re.compile(r"git\+[a-z0-9]+://[^/\s]+/([^\s#;\"']+)")
ADD_URL = re.compile(r"(?:https?://\S+?\.git|git@[^\s#]+|(?:git|ssh)://[^\s#]+)(?:#([^\s:]*)\S*)?")
GLOBAL_VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree"})
"""Options of git before its verb that take a value."""
CHOOSES_COMMIT = frozenset({"checkout", "fetch", "reset", "switch", "worktree"})
GIT_FIX = "git clone --branch TAG, or git checkout COMMIT after it; git+URL@COMMIT; ADD URL#COMMIT"


def check_apt(build: StagedBuild) -> Iterator[Violation]:
    """Yield each RUN that leaves apt's lists in its layer."""
    for step in (step for stage in build.stages for step in stage.steps):
        if update := _unclean_update(step):
            problem = f"{update.program} update leaves its lists in the layer"
            yield Violation(update.line, f"{problem}, expected `rm -rf {APT_LISTS}/*` in the same RUN", APT_FIX)


def _unclean_update(step: BuildStep) -> Call | None:
    update: Call | None = None
    for call in step.calls:
        if call.program in APT and "update" in call.argv:
            update = call
        elif any(word.startswith(APT_LISTS) for word in call.argv[1:]) or APT_CLEANS & set(call.argv):
            update = None
    return None if any(APT_LISTS.startswith(target) for target in mounted(step)) else update


def check_pipe(build: StagedBuild) -> Iterator[Violation]:
    """Yield each call that runs the output of curl or wget."""
    for call in (call for stage in build.stages for call in stage.calls):
        fetcher = _fetcher(call.before) if _reads_script(call) else None
        if not fetcher and call.program in EVALUATES:
            fetcher = _fetcher(call.inside)
        if fetcher:
            runs = f"{call.program} runs unverified output of {fetcher.program}"
            yield Violation(fetcher.line, f"{runs}, expected a file whose hash is checked before it runs", PIPE_FIX)


def _reads_script(call: Call) -> bool:
    """Return whether a call runs its standard input."""
    operands = [word for word in call.argv[1:] if word in STDIN or not word.startswith("-")]
    if INTERPRETERS.fullmatch(call.program):
        return len(call.argv) == 1 or bool(STDIN & set(operands))
    return call.program in SHELLS and (not operands or operands[0] in STDIN or "-s" in call.argv)


def _fetcher(calls: Iterable[Call]) -> Call | None:
    return next((call for call in calls if call.program in FETCHERS), None)


def check_git(build: StagedBuild) -> Iterator[Violation]:
    """Yield each repository without a fixed commit or tag."""
    for stage in build.stages:
        for call in _loose_clones(stage):
            yield _loose(call.line, " ".join(call.argv[:2]) + f" {_source(call)}")
        for step in stage.steps:
            for line, url, ref in _urls(step):
                if not _fixed(ref):
                    yield _loose(line, url)


def _fixed(ref: str) -> bool:
    """Return whether the ref is fixed. A ref that is known only at build time counts as fixed."""
    plain = NAMESPACE.sub("", ref)
    return "$" in ref or bool(COMMIT.fullmatch(plain) or RELEASE.search(plain))


def _loose(line: int, source: str) -> Violation:
    return Violation(line, f"{source} uses the newest commit of a branch, expected a commit or a tag", GIT_FIX)


def _loose_clones(stage: BuildStage) -> Iterator[Call]:
    """Yield the clones without a checkout of a commit before the next clone or the end."""
    loose: Call | None = None
    for call in (call for call in stage.calls if call.program == "git"):
        verb, words = _verb(call)
        if verb == "clone":
            if loose:
                yield loose
            local = _source(call).startswith(("/", "."))
            loose = None if local or any(map(_fixed, _refs(words))) else call
        elif verb in CHOOSES_COMMIT and any(map(_fixed, words)):
            loose = None
    if loose:
        yield loose


def _verb(call: Call) -> tuple[str, tuple[str, ...]]:
    words = list(call.argv[1:])
    while words and words[0].startswith("-"):
        words = words[2 if words[0] in GLOBAL_VALUED else 1 :]
    return (words[0], tuple(words[1:])) if words else ("", ())


def _refs(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the refs that `git clone` checks out."""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        name, sign, value = word.partition("=")
        if name in ("-b", "--branch", "--revision"):
            yield value if sign else following


def _source(call: Call) -> str:
    return next((word for word in _verb(call)[1] if re.match(r"[./]|\S+[:@/$]", word)), "")


def _urls(step: BuildStep) -> Iterator[tuple[int, str, str]]:
    """Yield line, URL and ref of each repository that pip, uv or ADD fetches."""
    for install in step.installs:
        for word in (*install.requirements, *install.option("--editable")):
            for match in PIP_URL.finditer(word):
                yield install.line, match[0], match[1].partition("@")[2]
    if step.instruction.keyword == "ADD":
        for word in step.instruction.rest.text.split()[:-1]:
            if added := ADD_URL.fullmatch(expand(word, step.values)):
                yield step.instruction.line, added[0], added[1] or ""
