"""Rules about what a build takes from elsewhere, so that every build gets the same, and its layers keep no more.

Versions of images, scripts run from the network, commits of repositories, lists of apt, timeouts of uv and pip.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import zip_longest

from sparkops.lint.dockerfile import BuildStage, BuildStep, StagedBuild
from sparkops.lint.files import located, mounted, written_files
from sparkops.lint.finding import Violation
from sparkops.lint.installs import Install, only_tools
from sparkops.lint.shell import SHELLS, Call
from sparkops.lint.text import expand

MOVING = frozenset({"latest", "nightly"})
ROLLING = frozenset(
    {"canary", "current", "develop", "edge", "head", "lts", "main", "master", "next", "rolling", "sid", "stable"}
    | {"testing", "trunk", "unstable", "dev"}
)
"""Words of a moving tag without a number."""
SMALL = frozenset({"alpine", "slim"})
"""Variants of an image; alone such a tag means the newest version."""


def check_image(build: StagedBuild) -> Iterator[Violation]:
    """Yield each image of FROM, COPY --from and RUN --mount=from whose tag can move."""
    names = {stage.name for stage in build.stages}
    for stage in build.stages:
        if not stage.parent and (problem := _moving(stage.image)):
            yield Violation(stage.line, problem, f"FROM {_untagged(stage.image)}:VERSION, or @sha256:DIGEST")
        for line, image in _borrowed(build, stage, names):
            # A bare name may be a named build context.
            if ("/" in image or ":" in image) and (problem := _moving(image)):
                yield Violation(line, problem, f"from={_untagged(image)}:VERSION, or @sha256:DIGEST")


def _moving(image: str) -> str:
    """Return why the name can move to another image; empty if it cannot, or if unknown."""
    if "@sha256:" in image or "$" in image or image in ("", "scratch"):
        return ""
    tag = image.removeprefix(_untagged(image)).removeprefix(":")
    if not tag:
        return f"image {image} has no tag and means `latest`, expected a version or a digest"
    parts = set(re.split(r"[-_.]", tag))
    rolls = parts <= SMALL or (ROLLING & parts and not re.search(r"[0-9]", tag))
    if (MOVING & parts or rolls) and not any(map(COMMIT.fullmatch, parts)):
        return f"the tag of {image} can move, expected a version or a digest"
    return ""


def _untagged(image: str) -> str:
    path, slash, name = image.rpartition("/")
    return path + slash + name.partition(":")[0]


def _borrowed(build: StagedBuild, stage: BuildStage, names: Collection[str]) -> Iterator[tuple[int, str]]:
    for step in stage.steps:
        for flag, value in step.instruction.flags:
            match = re.search(r"(?:^|,)from=([^,]+)", value) if flag == "mount" else None
            image = expand(match[1] if match else value if flag == "from" else "", {**build.arguments, **step.values})
            if image and image.lower() not in names:
                yield step.instruction.line, image


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
    for word, following in zip_longest(words, words[1:], fillvalue=""):
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


UV = {"UV_HTTP_TIMEOUT": 30, "UV_HTTP_RETRIES": 3}
"""Defaults of uv 0.13.8, measured: seconds without a byte, and retries."""
PIP = {"PIP_DEFAULT_TIMEOUT": 15, "PIP_RETRIES": 5}
"""Defaults of pip, from its documentation."""
DEFAULTS: Mapping[str, Mapping[str, int]] = {"uv": UV, "pip": PIP}
PIP_OPTIONS = {"PIP_DEFAULT_TIMEOUT": ("--timeout", "--default-timeout"), "PIP_RETRIES": ("--retries",)}
FIXES = {
    "uv": "ENV UV_HTTP_TIMEOUT=600 UV_HTTP_RETRIES=10 in this stage, before this line",
    "pip": "ENV PIP_DEFAULT_TIMEOUT=600 PIP_RETRIES=10 in this stage, before this line",
}


def check_downloads(build: StagedBuild) -> Iterator[Violation]:
    """Yield, for each stage and program, the first call that lacks one of the variables."""
    for stage in build.stages:
        for tool in DEFAULTS:
            installs = (install for install in stage.installs if install.tool == tool and _lacking(install))
            install = next((install for install in installs if tool != "pip" or not _small(stage, install)), None)
            if install is None:
                continue
            names = _lacking(install)
            runs = f"stage {stage.name} runs {tool} without {' and '.join(names)}, expected them in the stage itself"
            yield Violation(install.line, runs + _cause(build, stage, names[0], tool), FIXES[tool])


def _lacking(install: Install) -> list[str]:
    """Return the variables that a call lacks."""
    if not install.downloads:
        return []
    return [name for name, least in DEFAULTS[install.tool].items() if not _raised(install, name, least)]


def _small(stage: BuildStage, install: Install) -> bool:
    """Return whether pip installs only tools such as uv: their wheels are small, so pip's defaults are enough."""
    if install.only_tools:
        return True
    contents = written_files(stage).contents
    texts = [contents.get(located(install.directory, path)) for path in install.option("--requirement")]
    return bool(texts) and all(text and only_tools(text) for text in texts) and not install.requirements


def _raised(install: Install, name: str, default: int) -> bool:
    options = install.option(*PIP_OPTIONS.get(name, ()))
    value = options[-1] if options else install.setting(name)
    return bool(value) and not (value.isdecimal() and int(value) <= default)


def _cause(build: StagedBuild, stage: BuildStage, name: str, tool: str) -> str:
    """Return why a variable of the file has no effect on this call; empty if the file does not set it."""
    if stage.values.get(name):
        least = DEFAULTS[tool][name]
        return f": {name} is set after this line, or to at most {least}, the default of {tool}"
    for other in build.stages:
        if other.values.get(name):
            return f": stage {other.name} sets {name}, and FROM {stage.root} does not inherit it"
    if name in build.arguments:
        return f": ARG before the first FROM has no effect in a stage, expected `ARG {name}` in the stage"
    return ""
