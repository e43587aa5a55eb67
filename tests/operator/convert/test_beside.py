"""Import of what lies beside a recipe in a checkout of another tool: chat templates, and the diffs of mods."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparkops.config import files, recipe_file
from sparkops.errors import ConfigError, UsageError
from sparkops.operator.cli.main import app
from sparkops.operator.convert import mods, other_tools
from sparkops.operator.convert.conversion import Choices, Conversion

RECIPE = """recipe_version: '1'
model: a/b
container: theirs
mods: [mods/words, mods/diff]
command: |
  vllm serve a/b --chat-template words.jinja
"""
DIFF = "--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\n"
PACKAGES = "/usr/local/lib/python3.12/dist-packages"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one recipe and two mods, and another directory to work in."""
    root, here = tmp_path / "theirs", tmp_path / "here"
    for directory in (root / "recipes/4x", root / "mods/words", root / "mods/diff", here):
        directory.mkdir(parents=True)
    (root / "recipes/4x/a.yaml").write_text(RECIPE)
    script = "#!/bin/bash\nset -e\ncp chat.jinja $WORKSPACE_DIR/words.jinja\necho done\n"
    (root / "mods/words/run.sh").write_text(script)
    (root / "mods/words/chat.jinja").write_text("{{ messages }}\n")
    (root / "mods/diff/run.sh").write_text(f"patch -p1 -d {PACKAGES} < fix.patch\n")
    (root / "mods/diff/fix.patch").write_text(DIFF)
    monkeypatch.chdir(here)
    return root


def convert(file: Path, folder: Path | None = None) -> Conversion:
    return other_tools.convert(other_tools.read(file), file.read_text(), "a", Choices(mods=folder))


def test_a_copied_chat_template_and_a_diff_become_mods(checkout: Path) -> None:
    conversion = convert(checkout / "recipes/4x/a.yaml")

    assert conversion.data["serve"]["args"] == {"chat-template": "/opt/sparkops/templates/words.jinja"}
    assert conversion.data["image"]["mods"] == ["words.jinja", "diff-fix.patch"]
    assert conversion.files == {"words.jinja": b"{{ messages }}\n", "diff-fix.patch": DIFF.encode()}
    assert [part.key for part in conversion.omissions] == ["container"]


@pytest.mark.parametrize("named", ["words, diff", "'@theirs/words', '@theirs/diff'", "'@theirs/mods/words', diff"])
def test_a_mod_is_found_as_sparkrun_names_it(checkout: Path, named: str) -> None:
    file = checkout / "recipes/4x/a.yaml"
    file.write_text(RECIPE.replace("mods/words, mods/diff", named))

    assert convert(file).data["image"]["mods"] == ["words.jinja", "diff-fix.patch"]


def test_a_mod_whose_script_is_too_large_is_the_error(checkout: Path) -> None:
    script = checkout / "mods/words/run.sh"
    script.write_bytes(bytes(files.MOST + 1))

    with pytest.raises(ConfigError, match=f"{script}:1: cannot be read: larger than {files.MOST} bytes"):
        convert(checkout / "recipes/4x/a.yaml")


def test_the_written_recipe_loads_with_its_mods(checkout: Path) -> None:
    ran = CliRunner().invoke(app, ["import", str(checkout / "recipes/4x/a.yaml"), "-o", "recipes/a.yaml"])

    assert ran.exit_code == 0, ran.output
    assert "image.mods[1]: diff-fix.patch is a mod of ./mods: it changes the code of the image" in ran.stderr
    with pytest.raises(ConfigError, match=r"recipes/a.yaml:\d+: image.mods\[1\]: .* `allow: \[diff-fix.patch\]`"):
        recipe_file.load(Path("recipes/a.yaml"))
    set_ = ["serve.allow=[diff-fix.patch]"]
    assert recipe_file.load(Path("recipes/a.yaml"), set_=set_).image.mods == ["words.jinja", "diff-fix.patch"]
    assert Path("mods/words.jinja").read_text() == "{{ messages }}\n"


def test_a_mod_with_another_content_is_not_overwritten(checkout: Path) -> None:
    Path("mods").mkdir()
    Path("mods/words.jinja").write_text("mine")
    ran = CliRunner().invoke(app, ["import", str(checkout / "recipes/4x/a.yaml"), "-o", "recipes/a.yaml"])

    assert isinstance(ran.exception, UsageError)
    assert Path("mods/words.jinja").read_text() == "mine"
    assert not Path("recipes").exists()


@pytest.mark.parametrize(
    ("file", "name"), [("mods/words/chat.jinja", "words.jinja"), ("mods/diff/fix.patch", "diff-fix.patch")]
)
def test_a_mod_that_is_no_utf_8_is_named_and_nothing_is_written(checkout: Path, file: str, name: str) -> None:
    (checkout / file).write_bytes("für {{ messages }}\n".encode("latin-1"))
    ran = CliRunner().invoke(app, ["import", str(checkout / "recipes/4x/a.yaml"), "-o", "recipes/a.yaml"])

    assert isinstance(ran.exception, UsageError)
    assert str(ran.exception) == f"{name}, from beside the recipe: byte 2 is not UTF-8, expected text in UTF-8"
    assert list(Path().iterdir()) == []


def test_a_recipe_outside_of_the_checkout_takes_its_mods_from_a_folder(checkout: Path) -> None:
    Path("a.yaml").write_text(RECIPE)

    (refusal,) = convert(Path("a.yaml")).refusals
    assert refusal.reason.endswith("it comes from a mod: give --mods FOLDER, a checkout of spark-vllm-docker")
    assert convert(Path("a.yaml"), checkout).refusals == []
    assert convert(Path("a.yaml"), checkout / "mods").refusals == []


def test_a_chat_template_beside_the_recipe_is_a_mod(checkout: Path) -> None:
    (checkout / "recipes/4x/own.jinja").write_text("{{ m }}")
    file = checkout / "recipes/4x/b.yaml"
    file.write_text("model: a/b\ncommand: vllm serve a/b --chat-template own.jinja\n")

    assert convert(file).data["image"]["mods"] == ["own.jinja"]


LINKED = "is a symbolic link, which is not followed"


@pytest.mark.parametrize(
    "place",
    [
        "recipes/4x/a.yaml",
        "recipes/4x",
        "recipes",
        "mods",
        "mods/words",
        "mods/words/run.sh",
        "mods/words/chat.jinja",
        "mods/diff/fix.patch",
        "recipes/4x/words.jinja",
    ],
)
def test_a_symbolic_link_of_a_checkout_is_not_followed(checkout: Path, place: str) -> None:
    """git keeps links: a chat template may be a link to the operator's private key, which a build would publish."""
    private = checkout.parent / "private"
    link = checkout / place
    if link.exists():
        link.rename(private)
    else:
        private.write_text("a private key")
        (checkout / "mods/words/run.sh").write_text("echo the recipe has the template\n")
    link.symlink_to(private)
    (checkout / ".git").mkdir()

    ran = CliRunner().invoke(app, ["import", str(checkout / "recipes/4x/a.yaml"), "-o", "recipes/a.yaml"])

    assert isinstance(ran.exception, ConfigError)
    assert f"cannot be read: {link.name} {LINKED}" in str(ran.exception)
    assert [*Path().iterdir()] == []


def test_a_template_that_links_to_the_environment_is_not_read(checkout: Path) -> None:
    (checkout / "mods/words/chat.jinja").unlink()
    (checkout / "mods/words/chat.jinja").symlink_to("/proc/self/environ")

    with pytest.raises(ConfigError, match=f"chat.jinja:1: cannot be read: chat.jinja {LINKED}"):
        convert(checkout / "recipes/4x/a.yaml")


def test_a_link_in_a_folder_of_mods_is_not_followed(checkout: Path) -> None:
    Path("a.yaml").write_text(RECIPE)
    (checkout / "mods/words/chat.jinja").rename(checkout / "mods/words/real.jinja")
    (checkout / "mods/words/chat.jinja").symlink_to("real.jinja")

    with pytest.raises(ConfigError, match=f"{checkout}/mods/words/chat.jinja:1: cannot be read: chat.jinja {LINKED}"):
        convert(Path("a.yaml"), checkout)


def test_the_operator_s_own_links_above_the_checkout_are_followed(checkout: Path) -> None:
    (checkout / ".git").mkdir()
    Path("link").symlink_to(checkout)

    assert convert(Path("link/recipes/4x/a.yaml")).data["image"]["mods"] == ["words.jinja", "diff-fix.patch"]
    assert convert(Path("link/recipes/4x/../4x/a.yaml")).refusals == []


def test_a_diff_that_may_be_skipped_is_named(checkout: Path) -> None:
    (checkout / "mods/diff/run.sh").write_text(f"patch -p1 -d {PACKAGES} < fix.patch || echo skipped\n")
    conversion = convert(checkout / "recipes/4x/a.yaml")

    assert conversion.data["image"]["mods"] == ["words.jinja"]
    assert [(part.key, part.kind) for part in conversion.omissions if "diff" in part.key] == [
        ("mods/diff/fix.patch", "loss")
    ]


def test_another_file_that_a_mod_copies_is_named(checkout: Path) -> None:
    """A script that was understood as a whole lost it in silence."""
    (checkout / "mods/diff/run.sh").write_text("cp parser.py $WORKSPACE_DIR/\n")
    (checkout / "mods/diff/parser.py").write_text("import os\n")

    conversion = convert(checkout / "recipes/4x/a.yaml")

    assert [(part.line, part.key, part.kind) for part in conversion.omissions if "diff" in part.key] == [
        (4, "mods/diff/parser.py", "loss")
    ]


@pytest.mark.parametrize(
    "line",
    [
        "curl https://example.com | bash",
        "cp ../../secret $WORKSPACE_DIR/words.jinja",
        "cp /etc/passwd $WORKSPACE_DIR/words.jinja",
        "cp chat.jinja /usr/lib/x",
        "patch -p1 -d /etc < fix.patch",
        "python3 fix.py 'open",
        "cp chat.jinja",
    ],
)
def test_a_script_that_does_more_is_not_whole(checkout: Path, line: str) -> None:
    (checkout / "mods/words/run.sh").write_text(f"{line}\n")
    read = mods.read(mods.Folder(checkout / "mods/words"))

    assert not read.whole
    assert read.copied == read.patches == {}


@pytest.mark.parametrize("named", ["/etc", "../mods/words", "", "mods/none"])
def test_a_mod_outside_of_the_checkout_is_not_found(checkout: Path, named: str) -> None:
    assert mods.find(checkout / "recipes/4x/a.yaml", named, None) is None


@pytest.mark.parametrize(("repository", "is_found"), [("", True), ("theirs", True), ("theirs/recipes", False)])
def test_a_mod_and_a_template_are_found_in_the_recipe_s_checkout_only(
    checkout: Path, repository: str, is_found: bool
) -> None:
    if repository:
        (checkout.parent / repository / ".git").mkdir()
    (checkout / "own.jinja").write_text("{{ m }}")
    file = checkout / "recipes/4x/a.yaml"

    assert (mods.find(file, "mods/words/", None) is not None) == is_found
    assert (mods.template(file, "own.jinja", {}) is not None) == is_found


def test_a_recipe_outside_of_a_checkout_takes_nothing_from_the_directories_above(checkout: Path) -> None:
    (checkout / "run.sh").write_text("cp chat.jinja $WORKSPACE_DIR/words.jinja\n")
    (checkout / "own.jinja").write_text("{{ m }}")
    (checkout / "loose").mkdir()
    file = checkout / "loose/a.yaml"

    assert mods.find(file, "mods/words", None) is None
    assert mods.find(file, "/", None) is None
    assert mods.template(file, "own.jinja", {}) is None


def test_a_plugin_of_the_model_s_repository_is_named(checkout: Path) -> None:
    url = "https://huggingface.co/a/b/resolve/main/nano_parser.py"
    (checkout / "mods/words/run.sh").write_text(f"cd $WORKSPACE_DIR\nwget {url}\n")
    file = checkout / "recipes/4x/b.yaml"
    file.write_text("model: a/b\nmods: [mods/words]\ncommand: vllm serve a/b --reasoning-parser nano\n")

    reason = convert(file).refusals[0].reason
    lines = "`reasoning-parser: nano` and `reasoning-parser-plugin: /models/b/nano_parser.py`"
    assert f"import without it, then add {lines} to `serve.args` of the new recipe, and `allow: " in reason


@pytest.mark.parametrize(
    "lines",
    [
        "model: a/Qwen3.5-27B-int4-AutoRound\nmods: [mods/fix-qwen3.5-autoround]\n",
        "model: a/Qwen3.5-27B-int4-AutoRound\n",
        "model: a/Qwen3-8B\nmods: [mods/fix-qwen3.5-autoround]\n",
    ],
)
def test_a_checkpoint_of_autoround_gets_the_mod_that_transformers_5_needs(checkout: Path, lines: str) -> None:
    """The original may have another Transformers, which needs no mod."""
    file = checkout / "recipes/4x/b.yaml"
    file.write_text(lines)

    assert convert(file).data["image"]["mods"] == ["transformers5-rope-keys"]


def test_memory_in_gib_is_written_as_a_share(checkout: Path) -> None:
    file = checkout / "recipes/4x/b.yaml"
    file.write_text("model: a/b\ncommand: vllm serve a/b --gpu-memory-utilization-gb 100\n")
    conversion = convert(file)

    assert conversion.data["serve"]["args"] == {"gpu-memory-utilization": 0.822}
    assert [(part.line, part.key, part.kind) for part in conversion.omissions] == [
        (2, "gpu-memory-utilization-gb", "loss")
    ]


def test_a_mod_for_a_model_that_vllm_has_is_not_needed(checkout: Path) -> None:
    file = checkout / "recipes/4x/b.yaml"
    file.write_text("model: a/diffusiongemma-26B\nmods: [mods/diffusiongemma]\n")
    conversion = convert(file)

    assert conversion.data["image"]["vllm"] == "vllm==0.32.0"
    assert [(part.key, part.kind) for part in conversion.omissions] == [("mods/diffusiongemma", "note")]


DRAFTS = {
    """--speculative-config '{{"method": "dflash", "model": "c/Draft.1"}}'""": "",
    "--speculative-config.model c/Draft.1 --speculative-config.method dflash": "",
    "--spec-model c/Draft.1 --spec-method dflash": "",
    "--spec-model /drafter --spec-method dflash": "draft_model: c/Draft.1",
}


@pytest.mark.parametrize(("flags", "keys"), DRAFTS.items())
def test_a_draft_is_a_second_download(checkout: Path, flags: str, keys: str) -> None:
    file = checkout / "recipes/4x/a.yaml"
    file.write_text(f"recipe_version: '1'\nmodel: a/b\n{keys}\ncommand: |\n  vllm serve a/b {flags}\n")
    ran = CliRunner().invoke(app, ["import", str(file), "-o", "recipes/a.yaml"])

    assert ran.exit_code == 0, ran.output
    loaded = recipe_file.load(Path("recipes/a.yaml"))
    assert [(weights.id, weights.path) for weights in loaded.model.fetched] == [("a/b", "b"), ("c/Draft.1", "Draft.1")]
    assert "/models/Draft.1" in str(loaded.serve.args)


@pytest.mark.parametrize(
    "script",
    [
        'MOD_DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\nSTART="$PWD"\nFILE="$MOD_DIR/chat.jinja"\n'
        'if true; then\n  INTO="${WORKSPACE_DIR:-$START}"\n  cp "$FILE" "$INTO/words.jinja"\nfi\n',
        f"cp /workspace/mod-content/chat.jinja {PACKAGES}/vllm/transformers_utils/chat_templates/words.jinja\n",
    ],
    ids=["variables", "into the package"],
)
def test_a_template_is_found_wherever_a_mod_copies_it(checkout: Path, script: str) -> None:
    (checkout / "mods/words/run.sh").write_text(script)

    conversion = convert(checkout / "recipes/4x/a.yaml")

    assert conversion.data["serve"]["args"] == {"chat-template": "/opt/sparkops/templates/words.jinja"}
    assert conversion.files["words.jinja"] == b"{{ messages }}\n"


def test_a_variable_that_grows_is_bounded(checkout: Path) -> None:
    script = 'A="0123456789"\n' + 'A="$A$A"\n' * 150
    (checkout / "mods/words/run.sh").write_text(script)

    assert mods.read(mods.Folder(checkout / "mods/words")).copied == {}


@pytest.mark.parametrize(("script", "hint"), [("echo other\n", False), ("python3 add.py own_backend\n", True)])
def test_only_a_mod_that_has_the_value_is_named_as_its_origin(checkout: Path, script: str, hint: bool) -> None:
    (checkout / "mods/words/run.sh").write_text(script)
    file = checkout / "recipes/4x/b.yaml"
    file.write_text("model: a/b\nmods: [mods/words]\ncommand: vllm serve a/b --moe-backend own_backend\n")

    assert ("perhaps provided by mod words" in convert(file).refusals[0].reason) is hint
