"""The arguments of a recipe, judged by the parser of its engine inside its image."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.command import Command, Completed
from sparkops.config import assets, recipe_file
from sparkops.config.recipe import Recipe
from sparkops.errors import CommandFailed, ImageRejected
from sparkops.node.member import Member
from sparkops.node.node import OnLine
from sparkops.node.progress import Event
from sparkops.operator.build.images import arguments, build
from sparkops.operator.build.images.arguments import Answer, Arguments
from sparkops.operator.build.render.context import Context
from sparkops.operator.fleet.guards import leases
from tests.examples import RECIPE, recipe

SCRIPT = assets.load_parser("vllm")
PARSER = """
import argparse, os
def make_arg_parser(parser):
    parser.add_argument("model")
    for name in ("host", "port", "served-model-name", "chat-template", "tool-parser-plugin", "reasoning-parser",
                 "tool-call-parser", "config", "max-model-len"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--kv-cache-dtype", choices=["auto", "fp8", os.environ.get("FORK_DTYPE", "auto")])
    parser.add_argument("--enable-auto-tool-choice", action=argparse.BooleanOptionalAction)
    return parser
def validate_parsed_serve_args(args):
    if args.chat_template:
        raise ValueError(f"no template {args.chat_template}")
    if args.enable_auto_tool_choice and not args.tool_call_parser:
        raise TypeError("Error: --enable-auto-tool-choice requires --tool-call-parser")
"""
VLLM = {
    "torch/__init__.py": "__version__ = '2.13.0+cpu'",
    "vllm/__init__.py": "",
    "vllm/platforms/__init__.py": "class Platform:\n    device_type = ''\ncurrent_platform = Platform()",
    "vllm/utils/argparse_utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser",
    "vllm/entrypoints/openai/cli_args.py": PARSER,
    "vllm/tool_parsers.py": "class ToolParserManager:\n    list_registered = staticmethod(lambda: ['hermes'])",
    "vllm/reasoning.py": "class ReasoningParserManager:\n    list_registered = staticmethod(lambda: ['qwen3'])",
    "vllm/config/cache.py": "",
}
"""The modules of a vLLM that the script uses."""


@pytest.fixture
def judge(tmp_path: Path) -> Callable[..., Answer]:
    """The answer of that vLLM to a recipe with these arguments."""
    for path, text in VLLM.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    def ask(serve: dict[str, Any], **env: str) -> Answer:
        asked = Arguments(recipe(serve={"args": serve, "env": env, "allow": [*serve, *env]}), SCRIPT)
        words = asked.command("image").argv
        ran = subprocess.run(
            [sys.executable, "-S", *words[words.index("-") :]],
            input=asked.command("image").stdin,
            env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            check=True,
        )
        return asked.answer(ran.stdout.decode())

    return ask


@pytest.mark.local
@pytest.mark.parametrize(
    ("args", "problem", "faults"),
    [
        ({"max-model-len": 4096, "enable-auto-tool-choice": False}, "", ()),
        (
            {"max-model-len": 4096, "b12x-mode": "fast"},
            "vllm serve: error: unrecognized arguments: --b12x-mode=fast",
            ("b12x-mode",),
        ),
        (
            {"kv-cache-dtype": "fp9"},
            "vllm serve: error: argument --kv-cache-dtype: invalid choice: 'fp9'",
            ("kv-cache-dtype",),
        ),
        ({"tool-call-parser": "qwen9"}, "no parser qwen9", ("tool-call-parser",)),
        ({"reasoning-parser": "qwen9", "max-model-len": 1}, "no parser qwen9", ("reasoning-parser",)),
        (
            {"enable-auto-tool-choice": True, "max-model-len": 1},
            "Error: --enable-auto-tool-choice requires --tool-call-parser",
            ("enable-auto-tool-choice",),
        ),
        ({"tool-call-parser": "mine", "tool-parser-plugin": "/models/mine.py"}, "", ()),
        ({"chat-template": "/models/q/chat.jinja"}, "", ()),
        ({"chat-template": "/opt/none.jinja"}, "no template /opt/none.jinja", ("chat-template",)),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_the_words_of_the_parser_come_with_the_flags_at_fault(
    judge: Callable[..., Answer], args: dict[str, Any], problem: str, faults: tuple[str, ...]
) -> None:
    answer = judge(args)

    assert answer.problem.startswith(problem)
    assert bool(answer.problem) is bool(problem)
    assert (answer.faults, answer.unjudged) == (faults, "")


@pytest.mark.local
def test_variables_of_the_recipe_are_those_of_the_parser(judge: Callable[..., Answer]) -> None:
    assert judge({"kv-cache-dtype": "own"}, FORK_DTYPE="own").problem == ""


@pytest.mark.local
def test_a_file_of_flags_on_the_node_leaves_the_recipe_unjudged(judge: Callable[..., Answer]) -> None:
    answer = judge({"config": "/models/q/flags.yaml"})

    assert (answer.problem, "a file of the node" in answer.unjudged) == ("", True)
    assert (answer.verdict.ok, answer.verdict.found) == (True, f"not checked: {answer.unjudged}")


def test_the_refusal_names_file_line_and_field(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(yaml.safe_dump({**RECIPE, "name": "base", "serve": {"args": {"seed": 1}}}))
    text = "name: q\nextends: base\ndescription: d\nverified: no\nserve:\n  args:\n    max-model-len: 5\n"
    (tmp_path / "q.yaml").write_text(text.replace("no", "'no'"))
    asked = Arguments(recipe_file.load(tmp_path / "q.yaml"), SCRIPT)

    words = asked.refusal(Answer("bad value", ("max-model-len", "seed", "port")))

    own, inherited, ours = words.splitlines()
    assert own == f"{tmp_path}/q.yaml:7: serve.args.max-model-len: bad value"
    assert inherited.startswith(f"{tmp_path}/base.yaml:")
    assert inherited.endswith(": serve.args.seed: bad value")
    assert ours == f"{tmp_path}/q.yaml:5: serve: bad value"
    assert asked.refusal(Answer("bad")) == f"{tmp_path}/q.yaml:6: serve.args: bad"


def test_the_refusal_of_a_set_value_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(yaml.safe_dump({**RECIPE, "serve": {"args": {"dtype": "bfloat16"}}}))
    asked = Arguments(recipe_file.load(tmp_path / "q.yaml", set_=["args.dtype=bogus"]), SCRIPT)

    assert asked.refusal(Answer("invalid choice", ("dtype",))) == "--set args.dtype: invalid choice"


def test_an_image_is_asked_again_only_for_other_arguments() -> None:
    def digest(**changes: Any) -> str:
        return Arguments(recipe(**changes), SCRIPT).digest

    asked = Arguments(recipe(), SCRIPT)

    assert digest(description="other", memory={"claim_gib": 3.0}) == asked.digest
    others = {digest(serve={"args": {"seed": 1}}), digest(serve={"env": {"VLLM_USE_V1": "1"}}), digest(service="b")}
    assert len(others | {asked.digest}) == 4
    assert asked.changed({arguments.KEY: "0"})
    assert not asked.changed({arguments.KEY: asked.digest})
    assert not asked.changed({}), "the image of an earlier version, or one whose parser could not judge"
    assert not asked.changed(None)


@pytest.mark.parametrize("printed", ["", "Traceback", "[]", "{}", '{"unjudged": {}, "problems": {}}'])
def test_what_is_no_answer_is_refused(printed: str) -> None:
    with pytest.raises(ValueError, match="expected one JSON object"):
        Arguments(recipe(), SCRIPT).answer(printed)


def test_only_an_engine_with_a_script_has_its_arguments_judged() -> None:
    assert assets.load_parser("stand-in") == b""
    assert arguments.of(recipe(), b"") is None


@dataclass
class Docker:
    """A node whose gate prints nothing, and whose parser prints `answer`; None: its container fails."""

    answer: dict[str, Any] | None
    labels: dict[str, str] = field(default_factory=dict)
    ran: list[tuple[str, ...]] = field(default_factory=list)
    name: str = "n1"
    cancel: threading.Event = field(default_factory=threading.Event)

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        """See Node.run."""
        _ = stdin, on_line
        self.ran.append(command.argv)
        asked = command.stdin == SCRIPT
        completed = Completed(self.name, command, 1 if asked and self.answer is None else 0, "", "no vllm.config")
        if completed.exit_code:
            raise CommandFailed(completed)
        return replace(completed, stdout=f"a warning\n{json.dumps(self.answer)}" if asked else "")

    def trusted(self, tag: str) -> dict[str, Any]:
        """See Engine.trusted."""
        return {"Id": tag, "Config": {"Labels": self.labels}}


def order(tmp_path: Path) -> build.BuildOrder:
    (tmp_path / "q.yaml").write_text(yaml.safe_dump({**RECIPE, "serve": {"args": {"seed": 1}}}))
    loaded: Recipe = recipe_file.load(tmp_path / "q.yaml")
    gate = build.Gate(lambda image: Command(("docker", "run", image)), labels=lambda _: {"sparkops.torch": "2"})
    return build.BuildOrder("q", Context((), {}, "0" * 64), 0.0, gate, arguments=Arguments(loaded, SCRIPT))


def answered(problem: str = "", *faults: str) -> dict[str, Any]:
    return {"problems": {"q": problem}, "faults": {"q": faults}, "unjudged": {}}


def member(docker: Docker) -> Member:
    return Member("n1", None, docker, docker)  # type: ignore[arg-type]  # one object for both


def test_an_image_keeps_the_answer_as_a_label(tmp_path: Path) -> None:
    asked, events = order(tmp_path), list[Event]()

    verdicts, labels = build.pass_gate(member(Docker(answered())), asked, {"Id": "sha256:1"}, events.append)

    assert asked.arguments
    assert labels == {"sparkops.torch": "2", arguments.KEY: asked.arguments.digest}
    assert [str(verdict) for verdict in verdicts] == ["arguments: accepted by the parser of the image"]
    assert events[-1].text == "gate passed: arguments: accepted by the parser of the image"


def test_an_image_whose_parser_refuses_gets_no_tag(tmp_path: Path) -> None:
    docker = Docker(answered("vllm serve: error: unrecognized arguments: --seed=1", "seed"))

    with pytest.raises(ImageRejected) as refused:
        build.pass_gate(member(docker), order(tmp_path), {"Id": "sha256:1"}, lambda _: None)

    file = tmp_path / "q.yaml"
    assert str(refused.value).startswith("n1: the parser of the image refuses the arguments:\n")
    assert str(refused.value).endswith(": serve.args.seed: vllm serve: error: unrecognized arguments: --seed=1")
    assert str(file) in str(refused.value)
    assert refused.value.next_step.startswith("Change or remove it, or name an image whose engine has it")
    assert [(row["name"], row["ok"]) for row in refused.value.verdicts] == [("arguments", False)]


def test_an_image_whose_parser_does_not_run_passes_and_is_not_asked_again(tmp_path: Path) -> None:
    verdicts, labels = build.pass_gate(member(Docker(None)), order(tmp_path), {"Id": "sha256:1"}, lambda _: None)

    assert [str(one) for one in verdicts] == ["arguments: not checked: the parser does not run: no vllm.config"]
    assert labels == {"sparkops.torch": "2"}


@pytest.mark.parametrize(
    ("accepted", "refused"), [("other", True), ("own", False), (None, False)], ids=["other", "same", "no label"]
)
def test_changed_arguments_of_a_gated_image_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepted: str | None, refused: bool
) -> None:
    monkeypatch.setattr(leases, "on_node", lambda *_: nullcontext())
    asked = order(tmp_path).arguments
    assert asked
    labels = {} if accepted is None else {arguments.KEY: asked.digest if accepted == "own" else accepted}
    docker = Docker(answered("no", "seed"), labels)

    with pytest.raises(ImageRejected, match="seed: no") if refused else nullcontext():
        build.require_accepted(member(docker), "sparkops/q:1", asked, lambda _: None, 0.0)

    assert len(docker.ran) == refused
