"""Does the simulation bite? Delete each condition of the machine and swap each pair of effects, one at a time.

Every such change, and every handwritten fault, must break a law or a scenario. `python -m tests.simulation.bite` prints
those that do not; `bite_list.py` says why some cannot. It takes long, so it is no part of `make test`.
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
from typing import Any

from tests.simulation.bite_list import EQUIVALENT, HANDWRITTEN

ROOT = Path(__file__).parents[2]
MACHINE = ("leader", "phases", "follower", "orders", "journal", "intents", "seen")
JUDGE_S = 900
WORKERS = int(os.environ.get("BITE_WORKERS", "2"))
MOVABLE = (ast.If, ast.For, ast.Expr)


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Each change of a module: where it is, and the module's new text."""
    tree = ast.parse(source)
    functions = {
        child: node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for child in ast.walk(node)
    }
    for number, node in enumerate(ast.walk(tree)):
        for what, change in _changes(node):
            changed = copy.deepcopy(tree)
            target = next(other for index, other in enumerate(ast.walk(changed)) if index == number)
            change(target)
            yield f"{functions[node]}: {what}", ast.unparse(ast.fix_missing_locations(changed))


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
        alike = isinstance(first, ast.If) and isinstance(second, ast.If) and same(first.body, second.body)
        if isinstance(first, MOVABLE) and isinstance(second, MOVABLE) and not documents and not alike:
            text = " ".join(ast.unparse(first).split())
            yield f"after the next: `{text[:60]}`", partial(_swap, index=index)


def same(first: list[ast.stmt], second: list[ast.stmt]) -> bool:
    """Whether two bodies do the same, so that it makes no difference which condition is asked first."""
    return [ast.dump(statement) for statement in first] == [ast.dump(statement) for statement in second]


def _drop(target: ast.BoolOp, index: int) -> None:
    target.values.pop(index)


def _decide(target: ast.If | ast.IfExp, answer: bool) -> None:
    target.test = ast.Constant(answer)


def _swap(function: ast.FunctionDef, index: int) -> None:
    function.body[index], function.body[index + 1] = function.body[index + 1], function.body[index]


def judge(module: str, text: str) -> str:
    """The law or scenario that a change breaks; empty if it breaks none."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(text)
        file.flush()
        run = (sys.executable, "-m", "tests.simulation.changed", f"sparkops.swap.{module}", file.name)
        ran = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=JUDGE_S, check=False)
    return (ran.stderr.strip().splitlines() or ["failed"])[-1] if ran.returncode else ""


def faults(module: str, source: str) -> Iterator[tuple[str, str]]:
    """The handwritten faults of a module, one or more for each rule of the machine."""
    for fault in HANDWRITTEN:
        if fault.module == module:
            if source.count(fault.old) != 1:
                raise ValueError(f"{module}: `{fault.old}` occurs {source.count(fault.old)} times, expected 1")
            yield f"rule {fault.rule}: {fault.what}", source.replace(fault.old, fault.new)


def main() -> int:
    """Judge every change, several at a time, and print what is not found and has no reason."""
    chosen = sys.argv[1:] or MACHINE
    sources = {module: (ROOT / "sparkops" / "swap" / f"{module}.py").read_text() for module in chosen}
    work = [
        (module, where, text)
        for module, source in sources.items()
        for where, text in (*faults(module, source), *mutants(source))
    ]
    with ThreadPoolExecutor(WORKERS) as threads:
        verdicts = threads.map(lambda item: judge(item[0], item[2]), work)
        missed = 0
        for (module, where, _), verdict in zip(work, verdicts, strict=True):
            reason = EQUIVALENT.get(f"{module}.{where}")
            missed += not (verdict or reason)
            print(f"{module}.{where}: {verdict or (f'equivalent: {reason}' if reason else 'NOT FOUND')}", flush=True)
    print(f"{len(work)} changes, {missed} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
