"""What the model of a recipe lets through, and lint does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import assets, overlay, recipe_file
from sparkops.lint.check import check_recipe, findings, ignores_in_yaml
from sparkops.lint.finding import LintFinding
from sparkops.lint.rules.table import NAMES, RULES
from tests.examples import CUDA, RECIPE
from tests.lint.cases import KEY, TOKEN

TEMPLATES = assets.load_templates()
MODS = assets.load_mods()
MODEL = {"id": "org/q", "path": "q", "revision": "0123456789" * 4}
GOOD = {**RECIPE, "model": MODEL}


def text_of(**changes: Any) -> str:
    data = {key: {**GOOD.get(key, {}), **value} if isinstance(value, dict) else value for key, value in changes.items()}
    return yaml.safe_dump(GOOD | data, sort_keys=False)


def lint(tmp_path: Path, text: str, **others: str) -> list[LintFinding]:
    """The findings of q.yaml, beside which other recipes may lie."""
    for name, other in {**others, "q": text}.items():
        (tmp_path / f"{name}.yaml").write_text(other)
    file = tmp_path / "q.yaml"
    written = overlay.read(file)
    files = [file, *written.files.values()]
    texts = {path: path.read_text() for path in files}
    results = findings([check_recipe(recipe_file.load(file, parts=False), written, texts, TEMPLATES, MODS)], NAMES)
    return [finding._replace(file=Path(finding.file).name) for finding in results]


def places(results: list[LintFinding]) -> list[tuple[str, int, str]]:
    return [(finding.file, finding.line, finding.rule) for finding in results]


def line(text: str, of: str) -> int:
    return 1 + text[: text.index(of)].count("\n")


def test_a_recipe_with_nothing_wrong_passes(tmp_path: Path) -> None:
    assert lint(tmp_path, text_of()) == []


@pytest.mark.parametrize(
    ("changes", "rule", "at"),
    [
        ({"serve": {"env": {"A": TOKEN}, "allow": ["A"]}}, "secret", "A: "),
        ({"serve": {"args": {"x": ["abc", KEY]}, "allow": ["x"]}}, "secret", f"- {KEY}"),
        ({"verified": f"with {TOKEN}"}, "secret", "verified"),
        ({"model": {"revision": "main"}}, "model-revision", "revision"),
        ({"model": {"revision": "0123456"}}, "model-revision", "revision"),
        ({"image": {"mods": ["vllm-cpu-metadata", "no-such-mod"]}}, "missing-part", "mods:"),
        ({"image": {"mods": ["no-such.patch"]}}, "missing-part", "mods:"),
        ({"image": {"template": "no-such"}}, "missing-part", "template:"),
        ({"image": {"base": "debian"}}, "latest", "base:"),
        ({"image": {"base": "debian:latest"}}, "latest", "base:"),
        ({"image": {"base": "nvidia/cuda:13.0.2-devel-ubuntu24.04"}}, "torch-pin", "torch:"),
    ],
)
def test_a_rule_finds_what_it_is_for_on_the_line_of_the_value(
    tmp_path: Path, changes: dict[str, Any], rule: str, at: str
) -> None:
    text = text_of(**changes)

    assert places(lint(tmp_path, text)) == [("q.yaml", line(text, at), rule)]


@pytest.mark.parametrize(
    "changes",
    [
        {"serve": {"env": {"HF_TOKEN_PATH": "/run/x", "MAX_TOKENS": "4096"}, "allow": ["HF_TOKEN_PATH", "MAX_TOKENS"]}},
        {"serve": {"args": {"max-num-batched-tokens": 8192, "tokenizer": "org/q"}}},
        {"serve": {"env": {"TORCH_CUDA_ARCH_LIST": "9.0a"}}},  # nothing here is for CUDA
        {"image": {"mods": ["vllm-cpu-metadata"]}},
    ],
)
def test_a_rule_lets_pass_what_is_right(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert lint(tmp_path, text_of(**changes)) == []


def test_the_list_of_architectures_of_a_server_for_cuda_has_a_spark(tmp_path: Path) -> None:
    image = {"template": "vllm-wheels", "torch": CUDA, "vllm": "vllm==0.23.0", "base": "nvidia/cuda:13.0.2-devel"}
    text = text_of(image=image, serve={"env": {"TORCH_CUDA_ARCH_LIST": "9.0a"}})

    assert places(lint(tmp_path, text)) == [("q.yaml", line(text, "TORCH_CUDA"), "cuda-arch")]


def test_each_source_of_a_model_that_is_made_needs_a_revision(tmp_path: Path) -> None:
    sources = [{**MODEL, "path": "a"}, {"id": "org/b", "path": "b"}]
    step = {"script": "add-tensors", "inputs": {"model": "a", "donor": "b"}, "output": "q", "disk_gb": 1.0}
    text = text_of(model={"sources": sources, "steps": [step], "revision": None})

    assert places(lint(tmp_path, text)) == [("q.yaml", line(text, "- id: org/b"), "model-revision")]


def test_an_engine_that_reads_no_weights_needs_no_revision(tmp_path: Path) -> None:
    image = {"template": "stand-in", "base": "debian:bookworm-slim"}
    text = yaml.safe_dump({**GOOD, "engine": "stand-in", "image": image, "model": {"id": "x", "path": "x"}})

    assert lint(tmp_path, text) == []


def test_a_finding_of_the_dockerfile_has_its_line_there(tmp_path: Path) -> None:
    (finding,) = lint(tmp_path, text_of(image={"base": "debian:latest"}))

    assert finding.problem.startswith("rendered Dockerfile, line 3: the tag of debian:latest can move, expected a")


@pytest.mark.parametrize(
    "comment", ["  base: debian  # sparkops: ignore=latest ours", "  # sparkops: ignore=latest ours"]
)
def test_a_comment_covers_its_line_or_the_next_one(tmp_path: Path, comment: str) -> None:
    written = "  base: debian"
    lines = comment if comment.startswith(written) else f"{comment}\n\n{written}"

    assert lint(tmp_path, text_of(image={"base": "debian"}).replace(written, lines)) == []


def test_a_comment_covers_what_is_inside_the_value_and_nothing_behind_it(tmp_path: Path) -> None:
    changes = {
        "model": {"revision": "main"},
        "serve": {"env": {"A": TOKEN}, "allow": ["A"]},
        "image": {"mods": ["no-such"]},
    }
    text = text_of(**changes).replace("model:\n", "# sparkops: ignore=model-revision,secret ours\nmodel:\n")
    listed = text.replace("  mods:\n", "  # sparkops: ignore=missing-part ours\n  mods:\n")

    assert places(lint(tmp_path, text)) == [
        ("q.yaml", line(text, "mods:"), "missing-part"),
        ("q.yaml", line(text, "# sparkops"), "ignore-unused"),
        ("q.yaml", line(text, "A: "), "secret"),
    ]
    assert "missing-part" not in [finding.rule for finding in lint(tmp_path, listed)]


def test_a_comment_covers_a_list_whose_items_stand_as_far_out_as_its_key() -> None:
    text = "# sparkops: ignore=secret why\na:\n- b\n\n- c:\n    d\ne: f\n"

    assert [ignore.covers for ignore in ignores_in_yaml(text, "q.yaml")] == [range(2, 7)]


def test_a_comment_of_an_extended_recipe_is_reported_once(tmp_path: Path) -> None:
    parent = "# sparkops: ignore=secret why\n" + text_of(name="p")
    own = "name: q\nextends: p\ndescription: other\nverified: nothing\n"
    (tmp_path / "q.yaml").write_text(own)
    (tmp_path / "p.yaml").write_text(parent)
    read = [(overlay.read(tmp_path / name), recipe_file.load(tmp_path / name)) for name in ("q.yaml", "p.yaml")]
    texts = {tmp_path / "p.yaml": parent, tmp_path / "q.yaml": own}

    results = findings([check_recipe(recipe, written, texts, TEMPLATES, MODS) for written, recipe in read], NAMES)

    assert [(finding.line, finding.rule) for finding in results] == [(1, "ignore-unused")]


def test_a_comment_without_a_finding_or_reason_is_reported(tmp_path: Path) -> None:
    text = f"# sparkops: ignore=latest\n{text_of()}# sparkops: ignore=secret x\n"

    assert places(lint(tmp_path, text)) == [
        ("q.yaml", 1, "ignore-reason"),
        ("q.yaml", text.count("\n"), "ignore-unused"),
    ]


def test_an_inherited_value_is_reported_at_its_place(tmp_path: Path) -> None:
    parent = text_of(name="p", image={"base": "debian"}, serve={"env": {"A": TOKEN}, "allow": ["A", "B"]})
    own = "name: q\nextends: p\ndescription: other\nverified: nothing\nserve:\n  env:\n    B: " + KEY + "\n"

    assert places(lint(tmp_path, own, p=parent)) == [
        ("p.yaml", line(parent, "base:"), "latest"),
        ("p.yaml", line(parent, "A: "), "secret"),
        ("q.yaml", 7, "secret"),
    ]


def test_an_ignore_of_another_recipe_counts_where_its_value_is_used(tmp_path: Path) -> None:
    parent = text_of(name="p", image={"base": "debian"}).replace(
        "base: debian", "base: debian # sparkops: ignore=latest x"
    )

    assert lint(tmp_path, "name: q\nextends: p\ndescription: other\nverified: nothing\n", p=parent) == []


def test_no_finding_shows_a_secret(tmp_path: Path) -> None:
    results = lint(tmp_path, text_of(serve={"env": {"A": TOKEN, "B": KEY}, "allow": ["A", "B"]}))

    assert len(results) == 2
    assert all(secret not in f"{finding.problem} {finding.fix}" for finding in results for secret in (TOKEN, KEY))


def test_every_rule_of_recipes_is_tried_here() -> None:
    tried = {"model-revision", "missing-part", "secret", "latest", "cuda-arch", "ignore-reason", "ignore-unused"}

    assert {rule.name for rule in RULES if rule.reads != "Dockerfile"} == tried
