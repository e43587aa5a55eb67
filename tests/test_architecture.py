"""Layers, cycles, input and output, and quoting, checked on the source. docs/decisions.md gives the reasons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.places import ROOT

PACKAGE = ROOT / "sparkops"
FILES = sorted(PACKAGE.rglob("*.py"))
NODES = {file: list(ast.walk(ast.parse(file.read_text()))) for file in FILES}

IO_PACKAGES = {"asyncio", "subprocess", "socket", "paramiko", "docker", "requests", "urllib3", "tenacity"}
PURE = (
    *("__future__.", "collections.abc.", "dataclasses.", "enum.", "json", "math.", "typing.", "pydantic."),
    *("sparkops.swap.", "sparkops.notices.", "sparkops.names.", "sparkops.errors."),
)
"""What the swap machine imports: values, text and the error tree."""
REACHING = {
    "agents",
    "cli",
    "demo.counting",
    "deploy.drain",
    "deploy.fitting",
    "deploy.leads",
    "deploy.node_checks",
    "deploy.observe",
    "deploy.operation",
    "deploy.provision",
    "deploy.sending",
    "doctor.bundle",
    "doctor.run",
    "engines.endpoints",
    "guard",
    "guard_client.following",
    "guard_client.leader",
    "guard_client.leases",
    "guard_client.membership",
    "hub.pull",
    "images.build",
    "images.delivery",
    "images.distribute",
    "images.login",
    "lock.locking",
    "network.preflight",
    "network.routes",
    "nodes.connect",
    "nodes.connected",
    "nodes.docker_api",
    "nodes.host_keys",
    "nodes.http",
    "nodes.local",
    "nodes.member",
    "nodes.ssh",
    "nodes.waiting",
    "prune.run",
    "prune.uninstalling",
    "smoke.client",
    "smoke.probing",
    "smoke.suite",
    "startup.watch",
    "status.node_survey",
    "status.read",
    "traffic",
    "transfer.rendezvous",
    "transfer.transfer",
    "weights.models",
    "weights.prepare",
}
"""Packages and modules that reach the world: they import one of IO_PACKAGES, or a module that does."""


def relative(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


def module_of(file: Path) -> str:
    return ".".join(("sparkops", *file.relative_to(PACKAGE).with_suffix("").parts))


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and module of every import; `from sparkops.images import gate` imports sparkops.images.gate."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole way"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


IMPORTS = [(file, line, imported) for file, nodes in NODES.items() for line, imported in imports(nodes)]
OURS = [(file, line, imported) for file, line, imported in IMPORTS if imported.startswith("sparkops.")]


def test_the_swap_machine_imports_only_what_does_no_io() -> None:
    machine = [file for file in FILES if file.parent.name == "swap"]
    wrong = [
        f"{relative(file)}:{line}: {imported}"
        for file, line, imported in IMPORTS
        if file in machine and not imported.startswith(PURE)
    ]
    opened = [
        f"{relative(file)}:{node.lineno}: {node.func.id}"
        for file in machine
        for node in NODES[file]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in ("open", "print", "input", "exec", "eval", "__import__")
    ]

    assert machine
    assert (wrong, opened) == ([], [])


def cycle(needs: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return what is left of a graph of imports after everything that leads into no cycle is removed."""
    left = dict(needs)
    while free := {name for name, needed in left.items() if not needed & set(left)}:
        left = {name: needed for name, needed in left.items() if name not in free}
    return left


def module_graph() -> dict[str, set[str]]:
    """Return the modules of sparkops, each with those that it imports. A name of a package is in its __init__."""
    known = {module_of(file) for file in FILES}
    needs: dict[str, set[str]] = {name: set() for name in known}
    for file, _, imported in OURS:
        parent = imported.rpartition(".")[0]
        own = parent if imported in known or parent in known | {"sparkops"} else f"{parent}.__init__"
        targets = {imported, own}
        needs[module_of(file)] |= (targets & known) - {module_of(file)}
    return needs


def test_no_module_imports_a_cycle() -> None:
    assert cycle(module_graph()) == {}


def test_no_package_imports_a_cycle() -> None:
    needs: dict[str, set[str]] = {}
    for module, imported in module_graph().items():
        package = module.split(".")[1]
        needs.setdefault(package, set()).update({name.split(".")[1] for name in imported} - {package})

    assert cycle(needs) == {}


def test_a_package_imports_only_packages_of_earlier_rows() -> None:
    """ARCHITECTURE.md lists every package, in the order of their imports."""
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("## Packages")[2].partition("## ")[0]
    rows = [
        re.findall(r"`([a-z_]+)(?:/|\.py)`", line.split("|")[1]) for line in table.splitlines() if line[:3] == "| `"
    ]
    rank = {package: number for number, row in enumerate(rows) for package in row}
    edges = {
        (module.split(".")[1], name.split(".")[1])
        for module, imported in module_graph().items()
        for name in imported
        if "." in name
    }

    assert {file.relative_to(PACKAGE).with_suffix("").parts[0] for file in FILES} - set(rank) == {
        "__init__",
        "__main__",
    }
    assert [(user, used) for user, used in sorted(edges) if user != used and rank[user] <= rank[used]] == []


def test_only_listed_modules_reach_the_world() -> None:
    reaching = {module_of(file) for file, _, imported in IMPORTS if imported.split(".")[0] in IO_PACKAGES}
    needs = module_graph()
    while more := {module for module, imported in needs.items() if imported & reaching} - reaching:
        reaching |= more
    names = {module.removeprefix("sparkops.") for module in reaching}
    packages = {name.split(".")[0] for name in names}

    assert {name for name in names if not {name, name.split(".")[0]} & REACHING} == set()
    assert REACHING - names - packages == set(), "listed, but reaches nothing"


def test_only_the_command_line_imports_the_command_line() -> None:
    wrong = [
        f"{relative(file)}:{line}: {imported}"
        for file, line, imported in OURS
        if imported.startswith("sparkops.cli") and not relative(file).startswith(("cli/", "__main__.py"))
    ]

    assert wrong == []


def test_no_module_imports_inside_a_function_or_a_condition() -> None:
    nested = [
        f"{relative(file)}:{line}: {imported}"
        for file, (module, *nodes) in NODES.items()
        for line, imported in imports(set(nodes) - set(ast.iter_child_nodes(module)))
    ]

    assert nested == []


def test_no_import_has_an_alias() -> None:
    aliases = [
        f"{relative(file)}:{node.lineno}: {name.name} as {name.asname}"
        for file, nodes in NODES.items()
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
        if name.asname
    ]

    assert aliases == []


def test_one_module_waits() -> None:
    """cli/watch.py redraws until Ctrl-C. The others run outside the package, with the standard library only."""
    patient = {relative(file) for file, _, imported in IMPORTS if imported.split(".")[0] == "tenacity"}
    sleeping = {
        relative(file)
        for file, nodes in NODES.items()
        for node in nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep"
    }

    assert (patient, sleeping) == ({"nodes/waiting.py"}, {"cli/watch.py", "guard/ask.py", "status/node_survey.py"})


def test_only_command_py_quotes_for_a_shell() -> None:
    quoting = {relative(file) for file, _, imported in IMPORTS if imported.split(".")[0] == "shlex"}

    assert quoting == {"command.py"}


def test_a_remote_shell_gets_only_quoted_text() -> None:
    given = [
        ast.unparse(call.args[0].func) if isinstance(call.args[0], ast.Call) else ast.unparse(call.args[0])
        for nodes in NODES.values()
        for call in nodes
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "exec_command"
    ]

    assert given == ["quote"]


def test_no_local_shell_gets_a_string() -> None:
    wrong = [
        f"{relative(file)}:{call.lineno}"
        for file, nodes in NODES.items()
        for call in nodes
        if isinstance(call, ast.Call)
        and (
            any(keyword.arg == "shell" for keyword in call.keywords)
            or ast.unparse(call.func) in ("os.system", "os.popen")
        )
    ]

    assert wrong == []


def test_no_module_draws_from_a_predictable_generator() -> None:
    """Keys, tokens and challenges come from the system's generator: only the stand-in's prose may import `random`."""
    programs = [*PACKAGE.rglob("*.py"), *(ROOT / "templates").rglob("*.py")]
    importing = re.compile(r"^\s*(import random|from random)\b", re.MULTILINE)

    assert [str(file) for file in programs if importing.search(file.read_text())] == [
        str(ROOT / "templates/stand-in/stand_in/prose.py")
    ]


ENGINE_ROOMS = ("engines/", "convert/")
"""What knows engines by name: convert reads recipes of their tools."""
NAMES_VLLM = {
    "cli/demo.py": "the option --vllm",
    "cli/recipes.py": "a column, and its key in JSON",
    "config/families.py": "the order by release",
    "config/image.py": "the key image.vllm",
    "config/lock.py": "the same, and what a finished image contains",
    "config/recipe_file.py": "a template of an earlier version",
    "demo/scene.py": "what --vllm deploys",
    "lock/finished.py": "what a finished image contains",
}
"""Other files whose code names vLLM, with the reason. Sources of a figure and descriptions do not count."""
CITED = re.compile(r"\S*spark-vllm-docker\S*|vllm-project\S*")


class Undescribed(ast.NodeTransformer):
    """Removes descriptions."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def test_few_files_outside_the_engines_name_vllm() -> None:
    code = {relative(file): ast.unparse(Undescribed().visit(ast.parse(file.read_text()))) for file in FILES}
    found = {file for file, text in code.items() if "vllm" in CITED.sub("", text).lower()}

    assert {file for file in found if not file.startswith(ENGINE_ROOMS)} == set(NAMES_VLLM)
