"""recipes, show, render."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
import yaml

from sparkops.config import recipe_file, shipped
from tests.examples import RECIPE
from tests.operator.cli.conftest import Sparkops
from tests.places import ROOT

NAMES = [*shipped.recipes()]
HEAD = "NAME SERVICE NODES GIB PER NODE TOK/S LOCK VLLM DESCRIPTION"


@pytest.fixture
def mine() -> None:
    """A recipe of the user's own, called q."""
    Path("recipes").mkdir()
    Path("recipes/q.yaml").write_text(yaml.safe_dump(RECIPE))


def test_recipes_lists_each_recipe_with_its_own_values_and_locked_and_measured_ones_first(sparkops: Sparkops) -> None:
    ran = sparkops("recipes")

    head, *rows = ran.out.splitlines()
    by_name = {row.split()[0]: row for row in rows}
    assert (ran.code, head.split()) == (0, HEAD.split())
    assert sorted(by_name) == sorted(NAMES)
    assert by_name["122b-autoround"].split()[1] == "qwen3.5-122b"
    whole = [("locked" in row.split() and row.split()[4] != "-") for row in rows]
    assert whole == sorted(whole, reverse=True)
    assert whole[0]
    assert "cpu" in rows[-1]


def test_a_broken_recipe_is_a_line_of_its_own(sparkops: Sparkops) -> None:
    Path("recipes").mkdir()
    Path("recipes/broken.yaml").write_text("name: [a\n")

    ran, as_json = sparkops("recipes"), sparkops("recipes", "--json").json

    assert (ran.code, len(ran.out.splitlines())) == (0, 1 + len(NAMES))
    assert ran.err == "not listed: recipes/broken.yaml:2: not YAML: a list or mapping in brackets is not closed\n"
    assert [row["file"] for row in as_json["broken"]] == ["recipes/broken.yaml"]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_no_name_is_cut_on_a_terminal(sparkops: Sparkops, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sparkops.operator.cli.terminal.sys.stdout.isatty", lambda: True)

    lines = sparkops("recipes").out.splitlines()

    assert {line.split()[0] for line in lines if not line.startswith((" ", "NAME"))} == set(NAMES)
    assert max(map(len, lines)) <= columns


def test_the_recipes_of_a_service_are_listed_with_what_differs(sparkops: Sparkops) -> None:
    ran = sparkops("recipes", "tiny-tp2")

    head, first, of_first, second, differs = ran.out.splitlines()
    assert (ran.code, head.split("  ")[0]) == (0, "NAME")
    assert first.split()[:6] == ["tiny-qwen3-cpu-tp2", "tiny-tp2", "2", "3.5", "-", "unlocked"]
    assert of_first == "  tiny-qwen3-cpu with serve.port=8010, serve.executor=ray"  # of another service
    assert second.split()[0] == "tiny-qwen3-cpu-tp2-mp"
    assert differs == "  tiny-qwen3-cpu-tp2 with serve.executor=mp; without image.packages"


def test_on_a_narrow_terminal_each_recipe_of_a_service_is_a_block(
    sparkops: Sparkops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sparkops.operator.cli.terminal.sys.stdout.isatty", lambda: True)

    first, facts, *_ = sparkops("recipes", "tiny-tp2").out.splitlines()

    assert first == "tiny-qwen3-cpu-tp2"
    assert facts.startswith("  service tiny-tp2, 2 nodes, 3.5 GiB each")


def test_a_recipe_beside_the_directory_recipes_is_named_as_a_file(sparkops: Sparkops) -> None:
    Path("mine.yaml").write_text(yaml.safe_dump({**RECIPE, "name": "mine"}))

    ran = sparkops("recipe", "show", "mine")

    assert (ran.code, "next: Move mine.yaml to recipes/, or name it as a file: ./mine.yaml" in ran.err) == (2, True)
    assert sparkops("recipe", "show", "./mine.yaml").code == 0


def test_a_service_is_compared_in_json_too(sparkops: Sparkops) -> None:
    read = sparkops("recipes", "qwen3.5-122b", "--json").json

    [family], rows = read["services"], {row["name"]: row for row in read["recipes"]}
    assert (family["service"], family["vllm"]) == ("qwen3.5-122b", "0.23.0")
    assert family["recipes"] == list(rows)
    assert (rows["122b-autoround"]["base"], rows["122b-autoround"]["differs"]) == (None, {})
    assert rows["122b-nvfp4-sehyo-32k"]["base"] == "122b-nvfp4-sehyo"
    assert rows["122b-nvfp4-sehyo-32k"]["differs"] == {"serve.args.max-model-len": 32768}
    assert "fits" not in rows["122b-autoround"]


@pytest.mark.parametrize(
    ("service", "problem", "step"),
    [
        ("122b-fp8-tp2", "122b-fp8-tp2 is a recipe, expected a service", "sparkops recipes qwen3.5-122b"),
        ("qwen3.5-12b", "no recipe of service qwen3.5-12b", "Did you mean qwen3.5-122b? `sparkops recipes` lists all."),
        ("zzz", "no recipe of service zzz", "`sparkops recipes` lists all."),
    ],
)
def test_an_unknown_service_is_refused(sparkops: Sparkops, service: str, problem: str, step: str) -> None:
    ran = sparkops("recipes", service)

    assert (ran.code, ran.out, ran.err) == (2, "", f"sparkops: {problem}\n  next: {step}\n")


@pytest.mark.usefixtures("sparkops", "mine")
def test_recipes_of_the_user_are_listed_and_found_by_name(sparkops: Sparkops) -> None:
    listed = [row["name"] for row in sparkops("recipes", "--json").json["recipes"]]

    assert sorted(listed) == sorted([*NAMES, "q"])
    assert sparkops("recipe", "show", "q", "--json").json["description"] == RECIPE["description"]


def test_a_recipe_in_a_folder_that_replaces_a_shipped_one_is_named(sparkops: Sparkops) -> None:
    for file in ("recipes/theirs/stand-in.yaml", "recipes/122b-autoround.yaml"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(yaml.safe_dump({**RECIPE, "name": Path(file).stem}))

    in_folder, outside = sparkops("recipe", "show", "stand-in"), sparkops("recipe", "show", "122b-autoround")

    shipped_one = shipped.directory("recipes") / "stand-in.yaml"
    expected = f"recipes/theirs/stand-in.yaml is used in place of the recipe stand-in of sparkops, {shipped_one}"
    assert in_folder.err.strip() == expected
    assert outside.err == "", "a recipe in ./recipes itself is meant"


@pytest.mark.usefixtures("sparkops", "mine", "idle_docker")
@pytest.mark.local
def test_fits_reads_the_nodes_and_says_why_a_recipe_fits_nowhere(sparkops: Sparkops) -> None:
    Path("recipes/q.yaml").write_text(yaml.safe_dump({**RECIPE, "memory": {"claim_gib": 0.1, "basis": "x"}}))
    large = {**RECIPE, "name": "large", "memory": {"claim_gib": 900_000, "basis": "x"}}
    Path("recipes/large.yaml").write_text(yaml.safe_dump(large))
    Path("inventory.yaml").write_text("nodes:\n  here: {transport: local}\n")

    ran, services = sparkops("recipes", "chat", "--fits"), sparkops("recipes", "--fits")

    assert (ran.code, ran.err) == (0, "")
    head, first, reason, second, _ = ran.out.splitlines()
    assert head.split()[-2:] == ["FITS", "DESCRIPTION"]
    assert (first.split()[0], first.split()[7], second.split()[7:10]) == ("large", "no", ["now", "on", "here"])
    assert re.match("  does not fit: here: 900000 GiB claimed, .* GiB in total: .* short", reason)
    assert re.search(r"^q +chat .* now on here ", services.out, re.M)
    assert not re.search(r"^large ", services.out, re.M)
    assert re.search(r"^[0-9]+ recipes do not fit; `sparkops recipes SERVICE --fits` prints why$", services.err, re.M)
    [found] = [
        row["fits"] for row in sparkops("recipes", "chat", "--fits", "--json").json["recipes"] if row["name"] == "q"
    ]
    assert found == {"nodes": [["here"]], "now": [["here"]], "running": [], "reasons": []}


@pytest.mark.usefixtures("sparkops", "mine")
def test_without_fits_no_node_is_read_and_no_inventory_needed(sparkops: Sparkops) -> None:
    Path("inventory.yaml").write_text("nodes: [")

    assert sparkops("recipes", "chat").code == 0
    assert sparkops("recipes", "chat", "--fits").code == 2
    Path("inventory.yaml").unlink()
    assert sparkops("recipes", "--fits").err.startswith("sparkops: inventory not found: inventory.yaml\n")


@pytest.mark.usefixtures("sparkops", "mine", "idle_docker")
@pytest.mark.local
def test_a_node_that_cannot_be_read_is_named_and_the_others_are_shown(sparkops: Sparkops) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    lost = f"{{address: 127.0.0.1, port: {port}, user: ops}}"
    Path("inventory.yaml").write_text(f"nodes:\n  here: {{transport: local}}\n  lost: {lost}\n")

    ran = sparkops("recipes", "chat", "--fits")

    assert ran.code not in (0, 2)
    assert len(ran.out.splitlines()) == 2
    assert ran.err.startswith("sparkops: lost: cannot connect")


@pytest.mark.parametrize("name", NAMES)
def test_show_gives_the_whole_recipe_in_yaml_and_in_json(sparkops: Sparkops, name: str) -> None:
    whole = recipe_file.load(shipped.recipes()[name]).model_dump(mode="json", exclude_none=True)

    assert sparkops("recipe", "show", name, "--json").json == whole
    assert yaml.load(sparkops("recipe", "show", name).out, Loader=yaml.CSafeLoader) == whole
    assert sparkops("recipe", "show", name, "--source").out == shipped.recipes()[name].read_text()


@pytest.mark.parametrize("named", ["q", "q.yaml", "recipes/q.yaml", "recipes/q"])
@pytest.mark.usefixtures("sparkops", "mine")
def test_a_recipe_is_found_by_name_and_by_file(sparkops: Sparkops, named: str) -> None:
    assert sparkops("recipe", "show", named, "--json").json["name"] == "q"


def test_a_path_needs_no_suffix_and_a_directory_is_no_recipe(sparkops: Sparkops) -> None:
    Path("own").mkdir()
    Path("own/q.yaml").write_text(yaml.safe_dump(RECIPE))

    assert sparkops("recipe", "show", "own/q", "--json").json["name"] == "q"
    assert sparkops("recipe", "show", "./own").err.startswith("sparkops: ./own is a directory, expected a recipe\n")


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ("tiny-qwen3-gpu", "Did you mean tiny-qwen3-cpu? "),
        ("397b", "Did you mean 397b-int4-tp2 or 397b-nvfp4-tp2? "),
        ("zzz", ""),
        ("a/b/tiny-qwen3-cpu", "Did you mean"),
    ],
)
def test_an_unknown_recipe_suggests_the_nearest(sparkops: Sparkops, named: str, hint: str) -> None:
    ran = sparkops("recipe", "show", named)

    assert (ran.code, ran.err.splitlines()[0]) == (2, f"sparkops: recipe not found: {named}")
    assert ran.err.splitlines()[1].startswith(f"  next: {hint}")
    assert ran.err.endswith("`sparkops recipes` lists all.\n")


def test_the_name_of_a_service_leads_to_its_recipes(sparkops: Sparkops) -> None:
    ran = sparkops("recipe", "show", "qwen3.5-122b")

    assert (ran.code, ran.err) == (
        2,
        "sparkops: qwen3.5-122b is a service, expected a recipe\n  next: sparkops recipes qwen3.5-122b\n",
    )


def test_credentials_in_a_url_are_never_shown(sparkops: Sparkops) -> None:
    proxy = "http://user:s3cret@proxy.lan:3128"
    Path("q.yaml").write_text(
        yaml.safe_dump({**RECIPE, "serve": {"env": {"HTTP_PROXY": proxy}, "allow": ["HTTP_PROXY"]}})
    )
    Path("p.yaml").write_text(yaml.safe_dump({**RECIPE, "name": "p", "service": proxy}))

    shown = (
        sparkops("recipe", "show", "q.yaml"),
        sparkops("recipe", "show", "q.yaml", "--json"),
        sparkops("recipe", "show", "p.yaml"),
    )

    assert [ran.code for ran in shown] == [0, 0, 2]
    assert all("s3cret" not in ran.out + ran.err for ran in shown)
    assert all("http://***@proxy.lan:3128" in ran.out + ran.err for ran in shown)


def test_a_broken_recipe_is_named_with_its_line(sparkops: Sparkops) -> None:
    Path("q.yaml").write_text("name: q\nservce: chat\n")

    ran = sparkops("recipe", "show", "q.yaml")

    missing = ("description", "image", "model", "memory", "verified")
    assert (ran.code, ran.err.splitlines()) == (
        2,
        [
            "sparkops: q.yaml:2: servce: unknown key, did you mean 'service'?",
            *(f"q.yaml:1: {key}: missing, but required" for key in missing),
        ],
    )


def test_everything_that_is_wrong_with_a_recipe_is_listed_at_once(sparkops: Sparkops) -> None:
    image = {**RECIPE["image"], "mods": ["no-mod"], "template": "nope"}
    Path("q.yaml").write_text(yaml.safe_dump({**RECIPE, "name": "p", "image": image}))
    Path("r.yaml").write_text(yaml.safe_dump({**RECIPE, "serve": {"port": "x", "prot": 1}, "memory": {"basis": 1}}))

    parts, values = sparkops("recipe", "show", "q.yaml"), sparkops("recipe", "show", "r.yaml")

    named = [line.rpartition("q.yaml:")[2].split(": ")[1] for line in parts.err.splitlines()]
    assert (parts.code, named) == (2, ["name", "image.template", "image.mods[0]"])
    fields = [line.rpartition("r.yaml:")[2].split(": ")[1] for line in values.err.splitlines()]
    assert fields == ["memory.basis", "serve.port", "serve.prot", "memory.claim_gib"]


def test_the_committed_dockerfiles_are_as_rendered(sparkops: Sparkops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    ran = sparkops("recipe", "render", "--all", "--check")

    assert (ran.code, ran.err) == (0, f"{len({*NAMES, 'gateway', 'guard', 'hub'})} Dockerfiles up to date\n")


def test_render_writes_what_check_then_accepts(sparkops: Sparkops) -> None:
    written = sparkops("recipe", "render", "tiny-qwen3-cpu", "-o", "made")

    assert (written.code, written.err) == (0, "wrote made/tiny-qwen3-cpu.Dockerfile\n1 of 1 Dockerfile written\n")
    checked = sparkops("recipe", "render", "tiny-qwen3-cpu", "--check", "-o", "made")
    assert (checked.code, checked.err) == (0, "1 Dockerfile up to date\n")
    committed = ROOT / "Dockerfiles/tiny-qwen3-cpu.Dockerfile"
    assert Path("made/tiny-qwen3-cpu.Dockerfile").read_text() == committed.read_text()


def test_check_fails_on_a_stale_file_and_writes_nothing(sparkops: Sparkops) -> None:
    Path("Dockerfiles").mkdir()
    Path("Dockerfiles/tiny-qwen3-cpu.Dockerfile").write_text("FROM scratch\n")

    ran = sparkops("recipe", "render", "tiny-qwen3-cpu", "--check")

    expected = "sparkops: out of date: Dockerfiles/tiny-qwen3-cpu.Dockerfile\n  next: sparkops recipe render --all\n"
    assert (ran.code, ran.err) == (1, expected)
    assert Path("Dockerfiles/tiny-qwen3-cpu.Dockerfile").read_text() == "FROM scratch\n"


@pytest.mark.usefixtures("sparkops", "mine")
@pytest.mark.parametrize(("key", "value"), [("template", "nope"), ("mods", ["nope"])])
def test_an_unknown_part_fails_render_and_show(sparkops: Sparkops, key: str, value: object) -> None:
    data = {**RECIPE, "image": {**RECIPE["image"], key: value}}
    Path("recipes/q.yaml").write_text(yaml.safe_dump(data, sort_keys=False))

    for verb in ("render", "show"):
        ran = sparkops("recipe", verb, "q")
        assert (ran.code, ran.err.startswith("sparkops: recipes/q.yaml:")) == (2, True)
        assert f": image.{key}" in ran.err.splitlines()[0]
    assert not Path("Dockerfiles").exists()


def test_render_replaces_a_file_that_is_not_text(sparkops: Sparkops) -> None:
    Path("Dockerfiles").mkdir()
    file = Path("Dockerfiles/tiny-qwen3-cpu.Dockerfile")
    file.write_bytes(b"\xff\xfe")

    assert sparkops("recipe", "render", "tiny-qwen3-cpu", "--check").code == 1
    assert sparkops("recipe", "render", "tiny-qwen3-cpu").code == 0
    assert file.read_bytes().startswith(b"#")


def test_render_needs_a_recipe(sparkops: Sparkops) -> None:
    ran = sparkops("recipe", "render")

    assert (ran.code, ran.err) == (2, "sparkops: nothing to render\n  next: Pass recipes or --all.\n")
