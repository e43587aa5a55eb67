"""The guard's image: what it is made of, and when it is another one."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from sparkops.config import assets
from sparkops.config.inventory import Build, Fleet, Gateway
from sparkops.operator.build.gateway import files, image
from sparkops.operator.build.guard import image as guard
from sparkops.operator.build.guard.image import PACKAGES, guard_context, guard_dockerfile
from sparkops.operator.build.hub import pull
from sparkops.operator.deploy.agents import agents
from tests.examples import node as a_node
from tests.places import ROOT

TEMPLATES, PACKAGE = assets.load_templates(), assets.load_package()
COMMITTED = ROOT / "Dockerfiles/guard.Dockerfile"
DEBIAN = {
    "docker": "python3-docker",
    "paramiko": "python3-paramiko",
    "prometheus_client": "python3-prometheus-client",
    "pydantic": "python3-pydantic",
    "pydantic_core": "python3-pydantic",
    "requests": "python3-requests",
    "tenacity": "python3-tenacity",
    "urllib3": "python3-requests",
    "yaml": "python3-yaml",
}
OPERATORS = (
    *("operator/", "__main__.py", "engines/gates.py", "engines/image_facts.py", "engines/vllm/gate.py"),
    *("engines/sglang/gate.py", "engines/llama_cpp/gate.py"),
    *("engines/calculators.py", "engines/needs.py", "engines/vllm/memory/"),
)
"""Rooms and modules of the operator's program: no change there replaces a guard."""
NOT_PYTHON = {"ca-certificates", "docker-cli", "nftables", "python3", "tini"}


def imported(path: str) -> Iterator[str]:
    """Every module that a file may mean by its imports."""
    for node in ast.walk(ast.parse(PACKAGE[path])):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names))


def needs(path: str, visited: set[str]) -> Iterator[str]:
    """What a file and all of ours that it imports need from others."""
    if path in visited or path not in PACKAGE:
        return
    visited.add(path)
    for module in imported(path):
        first, _, rest = module.partition(".")
        if first != "sparkops":
            yield first
        for end in (".py", "/__init__.py"):
            yield from needs(rest.replace(".", "/") + end, visited)


def test_the_committed_dockerfile_is_as_rendered() -> None:
    assert COMMITTED.read_text() == guard_dockerfile(TEMPLATES)


def test_the_image_holds_exactly_the_libraries_that_the_guard_imports() -> None:
    foreign = set(needs("guard/__main__.py", set())) - sys.stdlib_module_names

    assert {DEBIAN[name] for name in foreign} == set(PACKAGES) - NOT_PYTHON


def test_exactly_what_the_guard_imports_is_sent() -> None:
    visited: set[str] = set()
    for program in guard.PROGRAMS:
        list(needs(program, visited))
    sent = {path.removeprefix("files/sparkops/") for path, _ in guard_context(TEMPLATES, PACKAGE).files}
    modules = {path for path in sent if path.endswith(".py")}

    assert {path for path in visited if not path.endswith("__init__.py")} == {
        path for path in modules if not path.endswith("__init__.py")
    }
    assert {str(Path(path).parent / "__init__.py") for path in modules} <= modules


def test_the_source_is_the_package_without_what_is_shipped_beside_it() -> None:
    assert {"__init__.py", "guard/__main__.py", "operator/deploy/preconditions.py"} <= PACKAGE.keys()
    assert [path for path in PACKAGE if path.startswith("shipped/") or not path.endswith(".py")] == []


def test_a_context_is_sorted_and_names_its_directories() -> None:
    program = b"from sparkops.config.plan import (\n    x,\n)\n"
    package = {"guard/ask.py": program, "config/plan.py": b"D", "__init__.py": b"I", "operator/cli/main.py": b"C"}
    context = guard_context(TEMPLATES, package)

    assert [(path, content) for path, content in context.files if path != "Dockerfile"] == [
        ("files/", b""),
        ("files/sparkops/", b""),
        ("files/sparkops/__init__.py", b"I"),
        ("files/sparkops/config/", b""),
        ("files/sparkops/config/plan.py", b"D"),
        ("files/sparkops/guard/", b""),
        ("files/sparkops/guard/ask.py", program),
    ]
    assert context.build_args == {}


@pytest.mark.parametrize(
    ("package", "same"),
    [
        ({**PACKAGE, "guard/daemon.py": b"# other"}, False),
        ({**PACKAGE, "swap/leader.py": b"# other"}, False),
        ({**PACKAGE, "operator/deploy/more.py": b""}, True),
        ({path: b"# other" if path.startswith(OPERATORS) else file for path, file in PACKAGE.items()}, True),
        *(({**PACKAGE, path: b"# other"}, True) for path in PACKAGE if path.startswith(OPERATORS)),
        (dict(reversed(PACKAGE.items())), True),
    ],
)
def test_the_digest_follows_what_the_guard_can_import(package: Mapping[str, bytes], same: bool) -> None:
    before, after = (guard_context(TEMPLATES, files).digest for files in (PACKAGE, package))

    assert (before == after) is same


def test_no_agent_has_anything_of_the_operator_s_program() -> None:
    """The gateway's image has no module of sparkops at all."""
    guards = {path for path, _ in guard_context(TEMPLATES, PACKAGE).files}
    gateways = {path for path, _ in image.gateway_context(TEMPLATES, files.load_program()).files}

    assert [path for path in guards if path.startswith("files/sparkops/operator")] == []
    assert [path for path in gateways if "sparkops" in path] == []


def test_the_digest_follows_the_template() -> None:
    other = {**TEMPLATES, "guard/Dockerfile.j2": TEMPLATES["guard/Dockerfile.j2"] + "USER 1\n"}

    assert guard_context(other, PACKAGE).digest != guard_context(TEMPLATES, PACKAGE).digest


@pytest.mark.parametrize(
    ("pinned", "dockerfile"),
    [(image.IMAGE, image.gateway_dockerfile), (guard.DEBIAN, guard_dockerfile), (pull.IMAGE, pull.hub_dockerfile)],
    ids=["gateway", "guard", "hub"],
)
def test_a_base_is_pinned_by_digest_unless_the_inventory_names_another(
    pinned: str, dockerfile: Callable[..., str]
) -> None:
    name, _, pin = pinned.partition("@")
    build = Build(parent_images={name: "mirror.lan/debian:1"})

    assert re.fullmatch(r"sha256:[0-9a-f]{64}", pin)
    assert f"\nFROM {pinned}\n" in dockerfile(TEMPLATES)
    assert (Build().parent(pinned), build.parent(pinned)) == (pinned, "mirror.lan/debian:1")
    assert "\nFROM mirror.lan/debian:1\n" in dockerfile(TEMPLATES, "mirror.lan/debian:1")


def test_what_runs_on_nodes_is_built_on_the_inventory_s_base() -> None:
    given = {guard.DEBIAN.partition("@")[0]: "mine:1", image.IMAGE.partition("@")[0]: "mine:2"}
    known = Path("known_hosts")
    nodes = {"n1": a_node()}
    at = Gateway(node="n1", address="10.0.0.1")
    fleet = Fleet(file=Path("i"), nodes=nodes, build=Build(parent_images=given), gateway=at, known_hosts=known)
    specs = agents.load(fleet)

    assert specs.gateway
    assert b"FROM mine:1\n" in dict(specs.guard.context.files)["Dockerfile"]  # type: ignore[operator]
    assert b"FROM mine:2\n" in dict(specs.gateway.order.context.files)["Dockerfile"]  # type: ignore[operator]
