"""The layers, the budgets and the words of the code, held by reading it. ARCHITECTURE.md says why."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "sparkops"
FILES = sorted(PACKAGE.rglob("*.py"))
NODES = {file: list(ast.walk(ast.parse(file.read_text()))) for file in FILES}

LAYERS = {
    "__init__": 0,
    "__version__": 0,
    "command": 0,
    "errors": 0,
    "exchange": 0,
    "redact": 0,
    "config": 1,
    "release": 1,
    "plan": 2,
    "commands": 2,
    "facts": 2,
    "render": 2,
    "lint": 2,
    "memory": 2,
    "swap": 2,
    "nodes": 3,
    "probes": 3,
    "fleet": 4,
    "guard": 4,
    "cli": 5,
    "__main__": 5,
}
IO_PACKAGES = {"subprocess", "socket", "paramiko", "docker", "requests", "urllib3", "tenacity"}
HEAVY = ("docker", "jinja2", "paramiko", "pydantic", "requests", "rich", "yaml")
MAX_FILE, MAX_FUNCTION = 240, 50
VAGUE = {"manager", "handler", "helper", "helpers", "util", "utils", "common", "base", "cluster"}
VAGUE_BY_DESIGN = {"config/image.py": {"base"}}  # image.base, what FROM names


def relative(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


def layer(module: str) -> int:
    """The layer of `sparkops.plan.deploy`."""
    return LAYERS[module.split(".")[1]]


def module_of(file: Path) -> str:
    return ".".join(("sparkops", *file.relative_to(PACKAGE).with_suffix("").parts))


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and module of every import; `from sparkops.facts import gate` imports sparkops.facts.gate."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole way"
            yield from ((node.lineno, f"{node.module}.{each.name}") for each in node.names)


IMPORTS = [(file, line, imported) for file, nodes in NODES.items() for line, imported in imports(nodes)]
OURS = [(file, line, imported) for file, line, imported in IMPORTS if imported.startswith("sparkops.")]


def functions(nodes: Iterable[ast.AST]) -> Iterator[ast.FunctionDef]:
    return (node for node in nodes if isinstance(node, ast.FunctionDef))


def names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and name of everything that the code itself names."""
    for node in nodes:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case _:
                pass


def words(name: str) -> set[str]:
    """known_hosts and KnownHosts are both `known` and `hosts`."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def test_every_module_has_a_layer() -> None:
    assert {module_of(file).split(".")[1] for file in FILES} <= set(LAYERS)


def test_imports_point_to_the_same_or_a_lower_layer() -> None:
    wrong = [
        f"{relative(file)}:{line}: {imported}"
        for file, line, imported in OURS
        if layer(imported) > layer(module_of(file))
    ]

    assert wrong == []


def test_deciding_and_doing_never_import_each_other() -> None:
    wrong = [
        f"{relative(file)}:{line}: {imported}"
        for file, line, imported in OURS
        if {layer(imported), layer(module_of(file))} == {2, 3}
    ]

    assert wrong == []


def test_nothing_below_layer_3_can_reach_the_world() -> None:
    wrong = [
        f"{relative(file)}:{line}: {imported}"
        for file, line, imported in IMPORTS
        if layer(module_of(file)) < 3 and imported.split(".")[0] in IO_PACKAGES
    ]

    assert wrong == []


def test_only_the_command_line_imports_inside_functions() -> None:
    inside = {
        relative(file).split("/")[0]
        for file, nodes in NODES.items()
        for function in functions(nodes)
        if any(imports(ast.walk(function)))
    }

    assert inside == {"cli"}


def test_no_module_imports_a_cycle() -> None:
    known = {module_of(file) for file in FILES}
    needs: dict[str, set[str]] = {name: set() for name in known}
    for file, _, imported in OURS:
        targets = {imported, imported.rpartition(".")[0]}
        needs[module_of(file)] |= (targets & known) - {module_of(file)}
    while free := {name for name, needed in needs.items() if not needed & set(needs)}:
        needs = {name: needed for name, needed in needs.items() if name not in free}

    assert needs == {}


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


def test_a_file_fits_its_budget() -> None:
    lengths = {relative(file): len(file.read_text().splitlines()) for file in FILES}

    assert {name: length for name, length in lengths.items() if length > MAX_FILE} == {}


def test_a_function_fits_its_budget() -> None:
    long = {
        f"{relative(file)}:{function.lineno}: {function.name}": length
        for file, nodes in NODES.items()
        for function in functions(nodes)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION
    }

    assert long == {}


def test_no_name_is_vague() -> None:
    vague = [
        f"{relative(file)}:{line}: {name}"
        for file, nodes in NODES.items()
        for line, name in [*names(nodes), (1, file.stem), (1, file.parent.name)]
        if words(name) & (VAGUE - VAGUE_BY_DESIGN.get(relative(file), set()))
    ]

    assert vague == []


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv = ['sparkops', '--help']\n"
        "from sparkops.cli.main import main\n"
        "try: main()\n"
        f"except SystemExit as end: print(end.code, [name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stderr == "0 []\n"
    assert ran.stdout.startswith("Usage: sparkops")
