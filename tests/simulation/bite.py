"""Does the simulation bite? Delete each condition of the machine and swap each pair of effects, one at a time.

Every such change must break a law. `python -m tests.simulation.bite` prints those that do not; EQUIVALENT says why
some cannot. It takes long, so it is no part of `make test`.
"""

from __future__ import annotations

import ast
import copy
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from shutil import copytree
from typing import Any

ROOT = Path(__file__).parents[2]
MACHINE = ("leader", "phases", "follower", "orders", "journal", "intents", "seen")
JUDGE_S = 900
WORKERS = int(os.environ.get("BITE_WORKERS", "2"))
MOVABLE = (ast.If, ast.For, ast.Expr)


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Each change of a module: where it is, and the module's new text."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for what, change in _changes(node):
            changed = copy.deepcopy(tree)
            target = next(other for index, other in enumerate(ast.walk(changed)) if index == number)
            change(target)
            yield f"{getattr(node, 'lineno', 0)}: {what}", ast.unparse(ast.fix_missing_locations(changed))


Change = tuple[str, Callable[[Any], object]]


def _changes(node: ast.AST) -> Iterator[Change]:
    """The changes of one node, each as a function that edits its copy."""
    match node:
        case ast.BoolOp(values=values):
            for index, value in enumerate(values):
                yield f"without `{ast.unparse(value)}`", partial(_drop, index=index)
        case ast.If(test=test):
            yield f"never `{ast.unparse(test)}`", partial(_decide, answer=False)
        case ast.IfExp(test=test):
            yield f"always `{ast.unparse(test)}`", partial(_decide, answer=True)
            yield f"never `{ast.unparse(test)}`", partial(_decide, answer=False)
        case ast.comprehension(ifs=[_, *_]):
            yield "any item", lambda target: target.ifs.clear()
        case ast.FunctionDef(body=body):
            yield from _orders(body)
        case _:
            return


def _orders(body: list[ast.stmt]) -> Iterator[Change]:
    """Each pair of neighbours that could stand the other way round."""
    for index, (first, second) in enumerate(pairwise(body)):
        documents = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        if isinstance(first, MOVABLE) and isinstance(second, MOVABLE) and not documents:
            yield f"after the next: `{ast.unparse(first)[:60]}`", partial(_swap, index=index)


def _drop(target: ast.BoolOp, index: int) -> None:
    target.values.pop(index)


def _decide(target: ast.If | ast.IfExp, answer: bool) -> None:
    target.test = ast.Constant(answer)


def _swap(function: ast.FunctionDef, index: int) -> None:
    function.body[index], function.body[index + 1] = function.body[index + 1], function.body[index]


def judge(module: str, text: str) -> str:
    """The law that a change breaks; empty if it breaks none."""
    with tempfile.TemporaryDirectory() as home:
        for name in ("sparkops", "tests"):
            copytree(ROOT / name, Path(home) / name, ignore=lambda *_: ["__pycache__"])
        (Path(home) / "sparkops" / "swap" / f"{module}.py").write_text(text)
        run = (sys.executable, "-m", "tests.simulation.levels")
        ran = subprocess.run(
            run,
            cwd=home,
            env={**os.environ, "PYTHONPATH": home},
            capture_output=True,
            text=True,
            timeout=JUDGE_S,
            check=False,
        )
    lines = ran.stderr.strip().splitlines()
    return (lines[-1] if lines else "failed") if ran.returncode else ""


def main() -> int:
    """Judge every change, two at a time, and print what is not found."""
    chosen = sys.argv[1:] or MACHINE
    work = [
        (module, where, text)
        for module in chosen
        for where, text in mutants((ROOT / "sparkops" / "swap" / f"{module}.py").read_text())
    ]
    with ThreadPoolExecutor(WORKERS) as threads:
        verdicts = threads.map(lambda item: judge(item[0], item[2]), work)
        missed = 0
        for (module, where, _), verdict in zip(work, verdicts, strict=True):
            missed += not verdict
            print(f"{module}.py:{where}: {verdict or 'NOT FOUND'}", flush=True)
    print(f"{len(work)} changes, {missed} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
