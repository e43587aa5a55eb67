"""Layers, cycles, input and output, and quoting, checked on the source. docs/decisions.md gives the reasons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.places import ROOT

PACKAGE = ROOT / "sparkops"
FILES = sorted(PACKAGE.rglob("*.py"))
NODES = {file: list(ast.walk(ast.parse(file.read_text()))) for file in FILES}

IO_PACKAGES = {"asyncio", "subprocess", "socket", "paramiko", "docker", "requests", "urllib3", "tenacity"}
PURE = (
    *("__future__.", "collections.abc.", "dataclasses.", "enum.", "json", "math.", "typing.", "pydantic."),
    *("sparkops.swap.", "sparkops.names.", "sparkops.errors."),
)
"""What the swap machine imports: values, text and the error tree."""
REACHING = {
    "engines.endpoints",
    "guard",
    "guard.follow.start_watch",
    "node.agents.container",
    "node.docker_api",
    "node.http",
    "node.local",
    "node.member",
    "node.survey.node_survey",
    "node.waiting",
    "operator.bench.measure",
    "operator.build.hub",
    "operator.build.images.build",
    "operator.build.images.delivery",
    "operator.build.images.distribute",
    "operator.build.images.login",
    "operator.build.lock.locking",
    "operator.build.weights.models",
    "operator.build.weights.prepare",
    "operator.cli",
    "operator.demo.counting",
    "operator.demo.traffic",
    "operator.deploy.agents",
    "operator.deploy.comparing",
    "operator.deploy.drain",
    "operator.deploy.fitting",
    "operator.deploy.leads",
    "operator.deploy.move",
    "operator.deploy.node_checks",
    "operator.deploy.configuration",
    "operator.deploy.observe",
    "operator.deploy.operation",
    "operator.deploy.provision",
    "operator.deploy.prune.run",
    "operator.deploy.prune.uninstalling",
    "operator.deploy.sending",
    "operator.fleet.connect",
    "operator.fleet.connected",
    "operator.fleet.guards.following",
    "operator.fleet.guards.leader",
    "operator.fleet.guards.leases",
    "operator.fleet.guards.membership",
    "operator.fleet.host_keys",
    "operator.fleet.network.preflight",
    "operator.fleet.network.routes",
    "operator.fleet.ssh",
    "operator.fleet.transfer.rendezvous",
    "operator.fleet.transfer.transfer",
    "operator.status.doctor.bundle",
    "operator.status.doctor.run",
    "operator.status.hour",
    "operator.status.read",
    "serving.comparison.asking",
    "serving.smoke.client",
    "serving.smoke.probing",
    "serving.smoke.suite",
}
"""Packages and modules that reach the world: they import one of IO_PACKAGES, or a module that does."""


def relative(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


def module_of(file: Path) -> str:
    return ".".join(("sparkops", *file.relative_to(PACKAGE).with_suffix("").parts))


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and module of every import; `from sparkops.engines import ray` imports sparkops.engines.ray."""
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


ROOMS = ("swap", "engines", "config", "node", "serving", "gateway", ("guard", "operator"))
"""Each imports from those before it, and from the modules beside them. Guard and operator are programs of their own."""
COMMAND_LINE = ("operator/cli/", "__main__.py")
OPERATOR = ("fleet", "build", "deploy", "status", "bench", "convert", "demo", "cli")


def in_order(modules: Mapping[str, set[str]], order: Iterable[str | tuple[str, ...]], at: int) -> list[str]:
    """Return each import of a room, which is part `at` of a name, that is not of its own or an earlier room."""
    groups = ((names,) if isinstance(names, str) else names for names in order)
    rank = {name: number for number, names in enumerate(groups) for name in names}
    wrong = []
    for module, name in ((module, name) for module, imported in sorted(modules.items()) for name in sorted(imported)):
        user, used = room(module, at), room(name, at)
        if user != used and used in rank and rank.get(user, -1) <= rank[used]:
            wrong.append(f"{module} -> {name}")
    return wrong


def room(module: str, at: int) -> str:
    """Return part `at` of a module's name if that is a package, else nothing."""
    parts = module.split(".")
    return parts[at] if len(parts) > at + 1 else ""


def test_a_room_imports_only_from_those_before_it() -> None:
    graph = module_graph()
    beside = {module for module in graph if not room(module, 1)} - {"sparkops.__init__", "sparkops.__main__"}

    assert {room(module, 1) for module in graph} - {""} == {*ROOMS[:-1], *ROOMS[-1]}
    assert in_order(graph, ROOMS, 1) == []
    assert {name for module in beside for name in graph[module]} <= beside | {"sparkops.__init__"}


def test_within_the_operator_too() -> None:
    modules = {name: imported for name, imported in module_graph().items() if room(name, 1) == "operator"}
    inner = {name: {one for one in imported if one in modules} for name, imported in modules.items()}

    assert {room(name, 2) for name in modules} - {""} == set(OPERATOR)
    assert in_order(inner, OPERATOR, 2) == []


def folder(module: str) -> str:
    """Return the folder of a module. Those of the engines are one, as each is in their list; those of the guard too."""
    return f"sparkops.{room(module, 1)}" if room(module, 1) in ("engines", "guard") else module.rpartition(".")[0]


def test_no_folder_imports_a_cycle() -> None:
    needs: dict[str, set[str]] = {}
    for module, imported in module_graph().items():
        needs.setdefault(folder(module), set()).update({folder(name) for name in imported} - {folder(module)})

    assert set(cycle(needs)) == set()


def test_only_listed_modules_reach_the_world() -> None:
    reaching = {module_of(file) for file, _, imported in IMPORTS if imported.split(".")[0] in IO_PACKAGES}
    needs = module_graph()
    while more := {module for module, imported in needs.items() if imported & reaching} - reaching:
        reaching |= more
    names = {module.removeprefix("sparkops.") for module in reaching}
    within = {name: {name, *(name[:at] for at, sign in enumerate(name) if sign == ".")} for name in names}

    assert {name for name, packages in within.items() if not packages & REACHING} == set()
    assert REACHING - set().union(*within.values()) == set(), "listed, but reaches nothing"


def test_only_the_command_line_imports_the_command_line() -> None:
    wrong = [
        f"{relative(file)}:{line}: {imported}"
        for file, line, imported in OURS
        if imported.startswith("sparkops.operator.cli") and not relative(file).startswith(COMMAND_LINE)
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
    """watch.py redraws until Ctrl-C. The others run outside the package, with the standard library only."""
    patient = {relative(file) for file, _, imported in IMPORTS if imported.split(".")[0] == "tenacity"}
    sleeping = {
        relative(file)
        for file, nodes in NODES.items()
        for node in nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep"
    }

    alone = {"operator/cli/watch.py", "guard/ask.py", "node/survey/node_survey.py"}
    assert (patient, sleeping) == ({"node/waiting.py"}, alone)


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


ENGINE_ROOMS = ("engines/", "operator/convert/", "serving/startup/")
"""What knows engines by name: convert reads recipes of their tools, and causes of failed starts name their flags."""
NAMES_VLLM = {
    "operator/cli/demo.py": "the option --vllm",
    "operator/cli/recipes.py": "a column, and its key in JSON",
    "config/families.py": "the order by release",
    "config/image.py": "the key image.vllm",
    "config/lock.py": "the same, and what a finished image contains",
    "config/recipe_file.py": "a template of an earlier version",
    "operator/deploy/configuration.py": "the key image.vllm",
    "operator/demo/scene.py": "what --vllm deploys",
    "operator/build/lock/finished.py": "what a finished image contains",
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


def test_pytest_passes_over_no_folder_of_tests(pytestconfig: pytest.Config) -> None:
    """Its default passes over each `build`."""
    patterns = pytestconfig.getini("norecursedirs")
    folders = {part for file in (ROOT / "tests").rglob("test_*.py") for part in file.relative_to(ROOT).parts[:-1]}

    assert [folder for folder in sorted(folders) if any(fnmatch(folder, pattern) for pattern in patterns)] == []
