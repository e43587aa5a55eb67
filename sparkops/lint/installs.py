"""Parse calls of uv and pip: verb, requirements, options and pins of torch."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sparkops.lint.shell import Call
from sparkops.lint.torch_needs import COMPILED, NEEDS_TORCH, NO_TORCH

PIP = re.compile(r"pip[0-9.]*")
VERBS = {
    "uv": frozenset({"pip", "sync", "add", "run", "tool", "python", "build", "lock", "self"}),
    "pip": frozenset({"install", "download", "wheel", "uninstall"}),
}
LOCAL = frozenset({"check", "freeze", "list", "show", "tree", "uninstall", "find", "dir", "--help", "-h", "--version"})
INSTALLS = frozenset({"install", "sync", "add"})
VALUED = frozenset(
    {"-b", "-c", "-C", "-d", "-e", "-f", "-i", "-o", "-p", "-P", "-r", "-t", "-w", "--abi", "--allow-insecure-host"}
    | {"--build-constraint", "--cache-dir", "--cert", "--client-cert", "--color", "--config-file", "--config-setting"}
    | {"--config-settings", "--config-settings-package", "--constraint", "--default-index", "--default-timeout"}
    | {"--dest", "--directory", "--editable", "--exclude-newer", "--exclude-newer-package", "--excludes"}
    | {"--exists-action", "--extra", "--extra-index-url", "--find-links", "--fork-strategy", "--global-option"}
    | {"--group", "--implementation", "--index", "--index-strategy", "--index-url", "--keyring-provider", "--link-mode"}
    | {"--log", "--no-binary", "--no-binary-package", "--no-build-isolation-package", "--no-build-package"}
    | {"--no-editable-package", "--no-extra", "--no-group", "--no-install-package", "--no-sources-package"}
    | {"--only-binary", "--only-group", "--out-dir", "--outdir", "--output-format", "--override", "--package"}
    | {"--platform", "--prefix", "--prerelease", "--prerelease-package", "--progress-bar", "--project", "--proxy"}
    | {"--python", "--python-platform", "--python-version", "--refresh-package", "--reinstall-package", "--report"}
    | {"--requirement", "--resolution", "--retries", "--root", "--root-user-action", "--script", "--src", "--target"}
    | {"--timeout", "--torch-backend", "--trusted-host", "--upgrade-group", "--upgrade-package", "--upgrade-strategy"}
    | {"--use-deprecated", "--use-feature", "--wheel-dir"}
)
"""Options of uv and pip that take a value, as their `--help` lists them."""
SHORT = {
    **{"-c": "--constraint", "-e": "--editable", "-i": "--index-url", "-o": "--out-dir", "-P": "--upgrade-package"},
    **{"-r": "--requirement", "-U": "--upgrade", "-w": "--wheel-dir"},
}
TOOLS = frozenset(
    {"build", "cmake", "hatchling", "meson", "ninja", "packaging", "pip", "pybind11", "scikit-build-core"}
    | {"setuptools", "setuptools-rust", "setuptools-scm", "uv", "virtualenv", "wheel"}
)
"""Packages that never require torch."""
OTHER_PACKAGES = NO_TORCH | TOOLS | {"torch"}
SOURCE = re.compile(r"(?!.*\.whl)\.{0,2}(/.*)?|\.+(\[.*)?|.*git\+.*|.*\.tar\.gz")
"""A requirement that must be built: a directory, a repository, a source archive."""
COMPUTED = re.compile(r"\$\{[^{}]*\}|\$\((?:[^()]|\([^()]*\))*\)")
"""An expansion that only a shell can make, with any signs in it."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
PIN = re.compile(
    r"(?<![\w.-])torch(?:\[[^]]*\])?\s*===?\s*([^\s;,\"'&|]+)|(?<![\w.-])torch-([0-9][^-/\s]*)-[^/\s]*\.whl"
)
ENGINE_EXTRA = re.compile(r"(?!vllm|sglang|.*\.whl)[^\[]*\[(?:[^]]*,)?\s*(vllm|sglang|lmdeploy)\s*(?:,[^]]*)?\]")
"""An engine as an extra of another package, such as `trl[vllm]`; it then counts as that engine."""
VERSION = re.compile(r"===?\s*([^\s;,]+)|-([0-9][^-/]*)-[^/\s]*\.whl|git\+.*@(v[0-9.]+)")
BACKEND = re.compile(r"cu[0-9]{2,3}|cpu")
INDEX = re.compile(r"/(cu[0-9]{2,3}|cu\$.*|\$[^/]*|cpu)/?$")
WITHOUT_TORCH = re.compile(r"flashinfer\.ai|vllm\.ai")
"""Indexes of other packages."""


@dataclass(frozen=True)
class Install:
    """A call of uv or pip. Options have their long, singular names; some have an empty value."""

    call: Call
    tool: str
    verb: str
    requirements: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    @property
    def line(self) -> int:
        """The line of the call."""
        return self.call.line

    @property
    def directory(self) -> str:
        """The directory of the call."""
        return self.call.directory

    def option(self, *names: str) -> list[str]:
        """Return every value of these options."""
        return [value for name, value in self.options if name in names]

    def setting(self, name: str) -> str:
        """Return a variable of its environment; empty if unset."""
        return self.call.environment.get(name) or ""

    @property
    def downloads(self) -> bool:
        """Whether it may use the network."""
        offline = self.option("--no-index", "--offline") or self.setting("UV_OFFLINE") or self.setting("PIP_NO_INDEX")
        return not offline and not LOCAL & set(self.call.argv[1:4])

    @property
    def only_tools(self) -> bool:
        """Whether it installs only tools that never require torch."""
        return {_name(requirement) for requirement in self.requirements} <= TOOLS and not self.option(
            "--requirement", "--editable"
        )

    @property
    def adds(self) -> bool:
        """Whether it installs packages."""
        return self.verb in INSTALLS and not self.option("--dry-run")

    @property
    def engines(self) -> list[str]:
        """The requirements that need torch: engines by name, path or repository, and wheels that may be one."""
        if not self.takes_engines:
            return []
        companions = ("torchaudio", "torchvision") if self.names_torch else ()
        named = needing_torch((*self.requirements, *self.option("--editable")), self.directory)
        return [requirement for requirement in named if _name(requirement) not in companions]

    @property
    def takes_engines(self) -> bool:
        """Whether it installs what its requirements require."""
        return self.adds and not self.option("--no-deps")

    def changes(self, name: str) -> str:
        """Return the option by which it installs a package anew, even if an installed version would do; or nothing."""
        named = {"--reinstall-package": name, "--upgrade-package": name}
        return next(
            (
                option
                for option, value in self.options
                if option in ("--reinstall", "--force-reinstall", "--upgrade")
                or (option in named and value.partition("=")[0] == name)
            ),
            "",
        )

    @property
    def names_torch(self) -> bool:
        """Whether torch itself is among its requirements; then the versions of torchaudio and torchvision follow it."""
        computed = any("torch" in text and text.startswith("$(") for text in self.requirements)  # $(cat torch.txt)
        return computed or any(package(text, self.directory) in ("torch", "pytorch") for text in self.requirements)

    @property
    def compiles(self) -> bool:
        """Whether it compiles code for CUDA from source."""
        sources = [*self.option("--editable"), *filter(SOURCE.fullmatch, self.requirements)]
        sources += self.requirements if self.option("--no-build-isolation", "--no-binary") else []
        return self.adds and any(package(source, self.directory) in COMPILED for source in sources)

    @property
    def may_install_torch(self) -> bool:
        """Whether it installs torch or a package that requires it."""
        return bool(self.engines) or (self.names_torch and self.adds and not self.option("--no-deps"))

    @property
    def pins(self) -> list[str]:
        """The versions that it pins torch to, such as 2.11.0+cu130."""
        return pins("\n".join(self.requirements))

    @property
    def builds(self) -> list[str]:
        """The builds of CUDA code that it selects, such as cu130, by uv's option or by an index."""
        named = [*self.option("--torch-backend"), self.setting("UV_TORCH_BACKEND")]
        return [*filter(BACKEND.fullmatch, named), *(match[1] for match in map(INDEX.search, self._indexes) if match)]

    @property
    def backend(self) -> str:
        """The build of torch that it selects. An index without torch selects none."""
        without = [match[1] for url in self._indexes if WITHOUT_TORCH.search(url) and (match := INDEX.search(url))]
        return next((build for build in self.builds if build not in without), "")

    @property
    def for_cpus(self) -> bool:
        """Whether it selects a build of torch for CPUs."""
        return self.backend == "cpu" or any(pin.endswith("+cpu") for pin in self.pins)

    @property
    def _indexes(self) -> list[str]:
        indexes = self.option("--index-url", "--default-index", "--index", "--extra-index-url", "--find-links")
        settings = ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
        return " ".join([*indexes, *map(self.setting, settings)]).split()


def pins(text: str) -> list[str]:
    """Return the versions in `torch==VERSION`, and in names of torch's own wheels."""
    return [(match[1] or match[2]).replace("%2B", "+") for match in PIN.finditer(text)]


def lines(text: str) -> list[str]:
    """Return the requirements in a requirements file, without its options and comments."""
    plain = (re.sub(r"(^|\s)#.*|\s+--.*|\s*;.*", "", line).strip() for line in text.splitlines())
    return [line for line in plain if line and not line.startswith("-")]


def needing_torch(requirements: Iterable[str], directory: str) -> Iterator[str]:
    """Yield the requirements that need torch, and the wheels that may."""
    return (requirement for requirement in requirements if _needs_torch(requirement, directory))


def only_tools(text: str) -> bool:
    """Return whether a requirements file has only tools."""
    words = [line.split()[0] for line in text.splitlines() if line.strip() and line.strip()[0] not in "#-"]
    return bool(words) and {_name(word) for word in words} <= TOOLS


def installs(calls: Iterable[Call]) -> Iterator[Install]:
    """Yield the calls of uv or pip that download, build or install packages."""
    for call in calls:
        tool = "pip" if PIP.fullmatch(call.program) else call.program
        if tool == "uvx":
            yield Install(call, "uv", "run", (), ())
        elif tool in VERBS:
            verbs, words = _verbs(call.argv[1:])
            if verbs and verbs[0] in VERBS[tool]:
                requirements, options = _parsed(words)
                yield Install(call, tool, verbs[-1], tuple(requirements), tuple(options))


def _verbs(argv: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """Return the verbs of a call, such as pip and install of `uv --quiet pip install x`, and the words after them."""
    verbs: list[str] = []
    for number, word in enumerate(argv):
        if word.startswith("-") or (number and argv[number - 1] in VALUED):
            continue
        verbs.append(word)
        if word != "pip":
            return verbs, argv[number + 1 :]
    return verbs, ()


def _parsed(words: tuple[str, ...]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the requirements and the options of a call, from the words after its verb."""
    requirements: list[str] = []
    options: list[tuple[str, str]] = []
    unread = list(words)
    while unread:
        word = unread.pop(0)
        if not word.startswith("-"):
            requirements.append(f"{word}.whl" if word.endswith("/*") else word)
            continue
        name, sign, value = word.partition("=")
        name = SHORT.get(name, name)
        name = name.removesuffix("s") if name.removesuffix("s") in VALUED else name
        if not sign and name in VALUED and unread:
            value = unread.pop(0)
        options.append((name, value))
    return requirements, options


def _needs_torch(requirement: str, directory: str) -> bool:
    """Return whether a requirement needs torch. A wheel with an unknown name may be an engine."""
    name = package(requirement, directory)
    return name in NEEDS_TORCH or (".whl" in requirement and name not in OTHER_PACKAGES)


def package(requirement: str, directory: str) -> str:
    """Return the package name of a requirement, also from the name of a wheel, repository or directory."""
    if requirement.startswith("$("):  # such as $(find /w -name "vllm*.whl" | head -1)
        words = re.split(r"[\s\"']", requirement.rstrip(")"))
        requirement = next((word for word in words if ".whl" in word), requirement)
    requirement = COMPUTED.sub("$", requirement)
    if extra := ENGINE_EXTRA.match(requirement):
        return extra[1]
    name, at, _ = requirement.partition("@")
    if at and not re.search(r"[/:$]", name):
        return _name(name.strip())
    path = re.sub(r"[#?].*|\[[^]]*\]$", "", requirement).rstrip("/")
    path = re.sub(r"(?<=[^/])@[^/@]*$", "", path) if "git+" in path else path
    last = posixpath.basename(posixpath.join(directory, path) if path in (".", "..") else path) or directory
    last = posixpath.basename(posixpath.normpath(directory)) if last == "." else last
    if ".whl" in last:
        last = re.split(r"-[0-9$]|\*|\.whl", last)[0]
    name = re.sub(r"[-_.]+", "-", last.removesuffix(".git")).strip("-").lower() if "/" in requirement else _name(last)
    if name == "python":  # the folder of SGLang's repository that has its pyproject.toml
        name = posixpath.basename(posixpath.dirname(posixpath.normpath(posixpath.join(directory, path)))) or name
    return name


def version(requirement: str) -> str:
    """Return the version that a requirement names, also of a wheel or a tag of a repository; empty without one."""
    match = VERSION.search(requirement)
    named = bool(match) and not ENGINE_EXTRA.match(requirement)  # the version of the other package
    return next(filter(None, match.groups()), "") if match and named else ""


def _name(requirement: str) -> str:
    """Return the package's name in lower case; anything else, such as a path or a URL, unchanged."""
    match = NAME.match(requirement)
    plain = match and ".whl" not in match[0] and re.match(r"\s*($|[=<>!~;,[@])", requirement[match.end() :])
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match and plain else requirement
