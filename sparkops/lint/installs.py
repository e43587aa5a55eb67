"""What uv and pip are asked to do: verb, requirements and options, and which torch is named there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sparkops.lint.calls import Call

PIP = re.compile(r"pip[0-9.]*")
NETWORK = {
    "uv": frozenset({"pip", "sync", "add", "run", "tool", "python", "build", "lock", "self"}),
    "pip": frozenset({"install", "download", "wheel"}),
}
LOCAL = frozenset({"check", "freeze", "list", "show", "tree", "uninstall", "find", "dir", "--help", "-h", "--version"})
INSTALLS = frozenset({"install", "sync", "add"})
VALUED = frozenset(
    {"-b", "-c", "-C", "-d", "-e", "-f", "-i", "-p", "-P", "-r", "-t", "-w", "--build-constraint", "--cache-dir"}
    | {"--cert", "--config-file", "--config-setting", "--config-settings", "--constraint", "--default-index"}
    | {"--default-timeout", "--dest", "--directory", "--editable", "--exclude-newer", "--extra", "--extra-index-url"}
    | {"--find-links", "--group", "--index", "--index-strategy", "--index-url", "--keyring-provider", "--link-mode"}
    | {"--no-binary", "--only-binary", "--override", "--platform", "--prefix", "--prerelease", "--progress-bar"}
    | {"--project", "--proxy", "--python", "--python-platform", "--python-version", "--refresh-package"}
    | {"--reinstall-package", "--requirement", "--resolution", "--retries", "--root", "--root-user-action", "--src"}
    | {"--target", "--timeout", "--torch-backend", "--trusted-host", "--upgrade-package", "--wheel-dir", "--out-dir"}
)
SHORT = {"-r": "--requirement", "-c": "--constraint", "-e": "--editable", "-i": "--index-url"}
TOOLS = frozenset(
    {"build", "cmake", "hatchling", "meson", "ninja", "packaging", "pip", "pybind11", "scikit-build-core"}
    | {"setuptools", "setuptools-rust", "setuptools-scm", "uv", "virtualenv", "wheel"}
)
"""Packages that never ask for torch."""
ENGINES = re.compile(
    r"(vllm|sglang|flashinfer|flash[-_]attn|xformers|fastsafetensors|instanttensor|lmcache|deep[-_]?(ep|gemm)"
    r"|bitsandbytes|tensorrt[-_]llm|compressed[-_]tensors|auto[-_]round|sgl[-_]kernel)\b.*",
    re.IGNORECASE,
)
"""Packages that ask for a torch, with whatever follows the name."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
PIN = re.compile(r"(?<![\w.-])torch(?:\[[^]]*\])?\s*===?\s*([^\s;,\"'&|]+)|(?<![\w.-])torch-([0-9][^-]*)-[^/\s]*\.whl")
BACKEND = re.compile(r"cu[0-9]{2,3}|cpu")
INDEX = re.compile(r"/(cu[0-9]{2,3}|cpu)/?$")


@dataclass(frozen=True)
class Install:
    """A call of uv or pip in a directory. Options have their long, singular names; some have an empty value."""

    call: Call
    directory: str
    tool: str
    verb: str
    requirements: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    @property
    def line(self) -> int:
        """Where it is called."""
        return self.call.line

    def option(self, *names: str) -> list[str]:
        """Every value of these options."""
        return [value for name, value in self.options if name in names]

    def setting(self, name: str) -> str:
        """A variable of its environment; empty where it is not set."""
        return self.call.environment.get(name) or ""

    @property
    def asks_network(self) -> bool:
        """Whether it fetches anything."""
        offline = self.option("--no-index", "--offline") or self.setting("UV_OFFLINE") or self.setting("PIP_NO_INDEX")
        return not offline and not LOCAL & set(self.call.argv[1:4])

    @property
    def may_bring_torch(self) -> bool:
        """Whether it installs anything that may ask for torch."""
        names = {_name(each) for each in self.requirements}
        named = names - TOOLS or self.option("--requirement", "--editable")
        return self.verb in INSTALLS and bool(named) and not self.option("--no-deps")

    @property
    def engines(self) -> list[str]:
        """The wheels and engine packages among its requirements."""
        return [each for each in self.requirements if ".whl" in each or ENGINES.fullmatch(each)]

    @property
    def pins(self) -> list[str]:
        """Each version that it pins torch to, such as 2.11.0+cu130."""
        return pins("\n".join(self.requirements))

    @property
    def backend(self) -> str:
        """The build of torch that it asks for, such as cu130, by uv's option or by an index of one build."""
        named = [*self.option("--torch-backend"), self.setting("UV_TORCH_BACKEND")]
        indexes = self.option("--index-url", "--default-index", "--index", "--extra-index-url")
        settings = ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
        urls = " ".join([*indexes, *map(self.setting, settings)]).split()
        found = [*filter(BACKEND.fullmatch, named), *(each[1] for each in map(INDEX.search, urls) if each)]
        return next(iter(found), "")


def pins(text: str) -> list[str]:
    """The versions in `torch==VERSION`, and in names of torch's own wheels."""
    return [(found[1] or found[2]).replace("%2B", "+") for found in PIN.finditer(text)]


def installs(calls: Iterable[Call], directory: str) -> Iterator[Install]:
    """Those of the calls that let uv or pip fetch, build or install something."""
    for call in calls:
        tool = "pip" if PIP.fullmatch(call.program) else call.program
        if tool == "uvx":
            yield Install(call, directory, "uv", "run", (), ())
        elif tool in NETWORK:
            verbs, words = _verbs(call.argv[1:])
            if verbs and verbs[0] in NETWORK[tool]:
                requirements, options = _parsed(words)
                yield Install(call, directory, tool, verbs[-1], tuple(requirements), tuple(options))


def _verbs(argv: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """`pip install` of `uv --quiet pip install x`, and what follows it."""
    verbs: list[str] = []
    for number, word in enumerate(argv):
        if word.startswith("-") or (number and argv[number - 1] in VALUED):
            continue
        verbs.append(word)
        if word != "pip":
            return verbs, argv[number + 1 :]
    return verbs, ()


def _parsed(words: tuple[str, ...]) -> tuple[list[str], list[tuple[str, str]]]:
    requirements: list[str] = []
    options: list[tuple[str, str]] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            requirements.append(word)
            continue
        name, sign, value = word.partition("=")
        name = SHORT.get(name, name)
        name = name.removesuffix("s") if name.removesuffix("s") in VALUED else name
        if not sign and name in VALUED and left:
            value = left.pop(0)
        options.append((name, value))
    return requirements, options


def _name(requirement: str) -> str:
    """The package's name in lower case; anything else, such as a path or a URL, as it is."""
    found = NAME.match(requirement)
    plain = found and not re.search(r"[/$]|\.whl", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found and plain else requirement
