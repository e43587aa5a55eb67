"""A unified diff as a mod: applied, already there, or a conflict that ends the build."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparkops.config import shipped

pytestmark = pytest.mark.local  # runs the mod as a program

MODS = shipped.PACKAGE.parent / "templates/mods"
BEFORE = "one\ntwo\nthree\nfour\nfive\n"
AFTER = "one\ntwo\n3\nthree and a half\nfour\nfive\n"
CHANGE = """\
diff --git a/vllm/a.cu b/vllm/a.cu
--- a/vllm/a.cu
+++ b/vllm/a.cu
@@ -2,3 +2,4 @@ somewhere
 two
-three
+3
+three and a half
 four
"""
ADD = """\
--- /dev/null
+++ b/vllm/csrc/new.cu
@@ -0,0 +1,2 @@
+first
+second
"""
MINUSES = "--- a/vllm/a.cu\n+++ b/vllm/a.cu\n@@ -1,2 +1,1 @@\n one\n--- two\n"


@pytest.fixture(autouse=True)
def _mods(tmp_path: Path) -> None:
    """The two scripts, so that a diff can lie beside them."""
    (tmp_path / "mods").mkdir()
    for name in ("mend.py", "diff.py"):
        shutil.copy(MODS / name, tmp_path / "mods")
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("raise ImportError('it must not be imported')\n")


def source(root: Path, text: str = BEFORE) -> Path:
    file = root / "vllm/a.cu"
    file.write_text(text)
    return file


def apply(root: Path, patch: str, *, tree: bool = False) -> subprocess.CompletedProcess[str]:
    """Apply a diff to the installed package, or to the tree that it lies in."""
    (root / "mods/x.patch").write_text(patch)
    argv = [sys.executable, str(root / "mods/diff.py"), "x.patch", str(root) if tree else "", str(root / "markers")]
    env = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def outcome(root: Path, patch: str, *, tree: bool = False) -> str:
    result = apply(root, patch, tree=tree)
    assert result.returncode == 0, result.stderr
    marker = json.loads((root / "markers/x.patch.json").read_text())
    assert marker["name"] == "x.patch"
    return str(marker["outcome"])


@pytest.mark.parametrize("tree", [False, True], ids=["installed", "source"])
def test_a_diff_is_applied_once(tmp_path: Path, *, tree: bool) -> None:
    file = source(tmp_path)

    assert outcome(tmp_path, CHANGE + ADD, tree=tree) == "applied"
    assert file.read_text() == AFTER
    assert (tmp_path / "vllm/csrc/new.cu").read_text() == "first\nsecond\n"
    assert outcome(tmp_path, CHANGE + ADD, tree=tree) == "already there"
    assert file.read_text() == AFTER


def test_code_that_only_moved_takes_the_diff_as_well(tmp_path: Path) -> None:
    file = source(tmp_path, "zero\n" * 50 + BEFORE)

    assert outcome(tmp_path, CHANGE) == "applied"
    assert file.read_text() == "zero\n" * 50 + AFTER


def test_a_removed_line_may_begin_with_dashes(tmp_path: Path) -> None:
    file = source(tmp_path, "one\n-- two\nthree\n")

    assert outcome(tmp_path, MINUSES) == "applied"
    assert file.read_text() == "one\nthree\n"


def test_a_python_file_that_would_not_compile_ends_the_build(tmp_path: Path) -> None:
    source(tmp_path).rename(tmp_path / "vllm/a.py")

    result = apply(tmp_path, CHANGE.replace("a.cu", "a.py"))

    assert result.returncode != 0
    assert "SyntaxError" in result.stderr
    assert not (tmp_path / "markers").exists()


@pytest.mark.parametrize(
    ("text", "patch", "expected"),
    [
        ("other\n", CHANGE, "{root}/vllm/a.cu: expected exactly one time:\ntwo\nthree\nfour\n"),
        (BEFORE * 2, CHANGE, "{root}/vllm/a.cu: expected exactly one time:\n"),
        (BEFORE, CHANGE.replace("a.cu", "b.cu"), "{root}/vllm/b.cu: expected the file itself"),
        (BEFORE, CHANGE.replace("b/vllm/a.cu\n@", "/dev/null\n@"), "vllm/a.cu: expected a diff that deletes no file"),
        (BEFORE, "no diff\n", "{root}/mods/x.patch: expected a unified diff with at least one hunk"),
        (BEFORE, CHANGE.removesuffix(" four\n"), "{root}/mods/x.patch: expected a whole diff"),
        (BEFORE, CHANGE.replace("vllm/", "nothing/"), "nothing: expected an installed package of that name"),
    ],
    ids=["unknown", "twice", "no file", "deletes", "no diff", "torn", "no package"],
)
def test_a_conflict_ends_the_build_and_names_the_file(tmp_path: Path, text: str, patch: str, expected: str) -> None:
    file = source(tmp_path, text)

    result = apply(tmp_path, ADD + patch if "@@" in patch else patch)

    assert result.returncode != 0
    assert result.stderr.startswith(f"x.patch: conflict in {expected.format(root=tmp_path)}")
    assert file.read_text() == text
    assert not (tmp_path / "vllm/csrc").exists()
    assert not (tmp_path / "markers").exists()


def test_a_new_file_that_is_there_with_another_text_is_a_conflict(tmp_path: Path) -> None:
    (tmp_path / "vllm/csrc").mkdir()
    (tmp_path / "vllm/csrc/new.cu").write_text("mine\n")
    source(tmp_path)

    assert "vllm/csrc/new.cu: expected no such file" in apply(tmp_path, CHANGE + ADD).stderr
    assert source(tmp_path).read_text() == BEFORE


def test_a_chat_template_is_copied_and_leaves_its_marker(tmp_path: Path) -> None:
    (tmp_path / "mods/mine.jinja").write_text("{{ messages }}\n")
    argv = [
        sys.executable,
        str(tmp_path / "mods/diff.py"),
        "mine.jinja",
        str(tmp_path / "to"),
        str(tmp_path / "markers"),
    ]
    ran = subprocess.run(argv, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "to/mine.jinja").read_text() == "{{ messages }}\n"
    assert json.loads((tmp_path / "markers/mine.jinja.json").read_text())["outcome"] == "applied"
