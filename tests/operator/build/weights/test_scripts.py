"""The scripts of templates/steps on tiny checkpoints: what they make, what they refuse, how they go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sparkops.config import programs, shipped
from sparkops.errors import UsageError
from sparkops.node.program import python
from sparkops.operator.build.weights import models
from sparkops.operator.build.weights.checkpoint import problems
from tests import gguf, safetensors
from tests.operator.build.weights.places import member
from tests.safetensors import Tensors, tensor

UP, DOWN = "layers.{}.shared_expert.up.weight", "layers.{}.experts.down.qweight"
MARKER = {"model": "org/q", "made": "d1"}
CONFIG = {"model_type": "tiny", "quantization_config": {"bits": 4, "extra_config": {"head": {"bits": 16}}}}
CHOOSE = r"\.shared_expert\."


def shards(layers: Mapping[str, Tensors]) -> dict[str, Tensors]:
    return {f"model-{name}.safetensors": tensors for name, tensors in layers.items()}


def base(root: Path) -> Path:
    """Three shards: two with a dense BF16 layer beside an INT4 one, one with MTP and nothing to replace."""
    layers: dict[str, Tensors] = {
        str(layer): {UP.format(layer): tensor("BF16", [4, 8], 1), DOWN.format(layer): tensor("I32", [2, 4], layer)}
        for layer in (1, 2)
    }
    extra = {"model_extra_tensors.safetensors": {"mtp.fc.weight": tensor("BF16", [2, 2], 7)}}
    return safetensors.checkpoint(root / "base", {**shards(layers), **extra}, CONFIG)


def donor(root: Path, shape: tuple[int, int] = (4, 8)) -> Path:
    """The same layers in FP8 with their scales, in other shards."""
    weights = {UP.format(layer): tensor("F8_E4M3", list(shape), 40 + layer) for layer in (1, 2)}
    scales = {UP.format(layer) + "_scale_inv": tensor("F32", [1, 1], 50 + layer) for layer in (1, 2)}
    return safetensors.checkpoint(root / "donor", {"a.safetensors": weights, "b.safetensors": scales})


def run(
    root: Path, script: str, args: Mapping[str, Any], inputs: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script as it runs in a container: its stdin stays open until it ends."""
    request = {
        "inputs": {word: str(root / path) for word, path in (inputs or {"base": "base", "donor": "donor"}).items()},
        "output": str(root / "out.partial"),
        "args": args,
        "marker": MARKER,
    }
    command = python(programs.load_step(script), request, interpreter=(sys.executable,))
    pipe = subprocess.PIPE
    with subprocess.Popen(command.argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin
        process.stdin.write(command.stdin.decode())
        process.stdin.flush()
        out, err = process.stdout.read(), process.stderr.read()  # type: ignore[union-attr]
        return subprocess.CompletedProcess(command.argv, process.wait(), out, err)


def output_of(root: Path, script: str, args: Mapping[str, Any], inputs: Mapping[str, str] | None = None) -> str:
    ran = run(root, script, args, inputs)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


HYBRID: dict[str, Any] = {"tensors": CHOOSE, "with": ["weight_scale_inv"], "count": 2}


def test_named_tensors_are_replaced_and_their_scales_come_along(tmp_path: Path) -> None:
    before, fp8 = safetensors.read_all(base(tmp_path)), safetensors.read_all(donor(tmp_path))
    output_of(tmp_path, "replace-tensors", HYBRID)
    after = safetensors.read_all(tmp_path / "out.partial")

    assert after == {**before, **fp8}
    assert after[UP.format(1)][0] == "F8_E4M3"
    assert after["mtp.fc.weight"] == before["mtp.fc.weight"]  # the index names it still


def test_shards_without_such_tensors_are_linked_and_take_no_room(tmp_path: Path) -> None:
    directory = base(tmp_path)
    donor(tmp_path)
    output_of(tmp_path, "replace-tensors", HYBRID)
    out = tmp_path / "out.partial"

    assert (out / "model_extra_tensors.safetensors").samefile(directory / "model_extra_tensors.safetensors")
    assert not (out / "model-1.safetensors").samefile(directory / "model-1.safetensors")
    assert not (out / "tokenizer.json").samefile(directory / "tokenizer.json")  # a person may edit it


def test_what_is_made_is_complete_and_says_what_it_is(tmp_path: Path) -> None:
    base(tmp_path)
    donor(tmp_path)
    output_of(tmp_path, "replace-tensors", HYBRID)
    models.publish(member("n1", tmp_path), "out")
    checkpoint = models.look(member("n1", tmp_path), ["out"]).checkpoints["out"]

    assert list(problems(checkpoint)) == []
    assert checkpoint.origin
    assert (checkpoint.origin.model, checkpoint.origin.steps) == ("org/q", "d1")
    assert checkpoint.noted
    assert set(checkpoint.noted) == set(checkpoint.files) - {".sparkops.json"}


def test_the_config_says_what_was_done(tmp_path: Path) -> None:
    base(tmp_path)
    donor(tmp_path)
    change = {"quantization_config": {"block": [128, 128], "bits": None}, "note": "hybrid"}
    output_of(tmp_path, "replace-tensors", {**HYBRID, "extra-config": {"bits": 8}, "config": change})
    config = json.loads((tmp_path / "out.partial/config.json").read_text())

    layers = {UP.format(layer).removesuffix(".weight"): {"bits": 8} for layer in (1, 2)}
    assert config == {
        "model_type": "tiny",
        "note": "hybrid",
        "quantization_config": {"block": [128, 128], "extra_config": {"head": {"bits": 16}, **layers}},
    }


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({}, "the argument `tensors` is missing: a regular expression"),
        ({"tensors": "nothing"}, "no tensor of the base has a name like nothing"),
        ({"tensors": "("}, "( is not a regular expression"),
        ({**HYBRID, "count": 144}, "2 tensors of the base have such a name, expected 144"),
        ({**HYBRID, "tensors": "experts.down"}, "the donor lacks 4 tensors: layers.1.experts.down.qweight"),
        ({**HYBRID, "with": ["scale"]}, "the donor lacks 2 tensors: layers.1.shared_expert.up.scale"),
        ({**HYBRID, "tensor": "x"}, "unknown arguments: tensor; expected: tensors, with, count, extra-config, config"),
    ],
)
def test_arguments_that_do_not_fit_end_it_before_anything_is_written(
    tmp_path: Path, args: dict[str, Any], why: str
) -> None:
    base(tmp_path)
    donor(tmp_path)
    ran = run(tmp_path, "replace-tensors", args)

    assert ran.returncode == 1
    assert ran.stderr.startswith(why)
    assert not (tmp_path / "out.partial").exists()


def test_another_shape_ends_it(tmp_path: Path) -> None:
    base(tmp_path)
    donor(tmp_path, shape=(8, 8))
    ran = run(tmp_path, "replace-tensors", HYBRID)

    assert ran.stderr.startswith("2 tensors have another shape in the donor: layers.1.shared_expert.up.weight")


def test_inputs_that_are_not_whole_end_it(tmp_path: Path) -> None:
    directory = base(tmp_path)
    donor(tmp_path)
    size = (directory / "model-2.safetensors").stat().st_size
    os.truncate(directory / "model-2.safetensors", size - 1)

    expected = f"model-2.safetensors has {size - 1} bytes, expected {size} by its header"
    assert expected in run(tmp_path, "replace-tensors", HYBRID).stderr
    (directory / "model-2.safetensors").unlink()
    assert "model-2.safetensors: No such file" in run(tmp_path, "replace-tensors", HYBRID).stderr
    assert "expected the inputs base and donor" in run(tmp_path, "replace-tensors", HYBRID, {"base": "base"}).stderr


def test_it_goes_on_with_the_shards_that_are_finished(tmp_path: Path) -> None:
    base(tmp_path)
    donor(tmp_path)
    output_of(tmp_path, "replace-tensors", HYBRID)
    out = tmp_path / "out.partial"
    finished = (out / "model-1.safetensors").stat().st_mtime_ns
    (out / "model-2.safetensors").unlink()
    (out / ".sparkops-model-2.safetensors").write_bytes(b"half a shard")
    printed = output_of(tmp_path, "replace-tensors", HYBRID)

    assert (out / "model-1.safetensors").stat().st_mtime_ns == finished
    assert ("model-1.safetensors is written" in printed, "model-2.safetensors is written" in printed) == (False, True)
    assert list(out.glob(".sparkops-model*")) == []


def test_it_does_not_go_on_with_shards_of_other_inputs(tmp_path: Path) -> None:
    base(tmp_path)
    fp8 = donor(tmp_path)
    output_of(tmp_path, "replace-tensors", HYBRID)
    index = (fp8 / "a.safetensors").read_bytes()
    (fp8 / "a.safetensors").write_bytes(index[:-1] + b"\xff")
    printed = output_of(tmp_path, "replace-tensors", HYBRID)

    assert "model-2.safetensors is written" in printed
    assert safetensors.read_all(tmp_path / "out.partial")[UP.format(2)] == safetensors.read_all(fp8)[UP.format(2)]


def full(root: Path) -> Path:
    """A checkpoint with MTP: a file of its own, and tensors in a file with others."""
    return safetensors.checkpoint(
        root / "donor",
        {
            "model-1.safetensors": {"layers.1.weight": tensor("BF16", [9]), "mtp.a.weight": tensor("BF16", [4], 3)},
            "mtp.safetensors": {"mtp.b.weight": tensor("F32", [2], 4), "model.mtp.c": tensor("BF16", [2], 5)},
            "rest.safetensors": {"smtp.weight": tensor("BF16", [2], 6)},
        },
    )


def small(root: Path) -> Path:
    """The same without MTP, quantized, as one file without an index."""
    (root / "base").mkdir()
    (root / "base/config.json").write_text('{"model_type": "tiny"}')
    safetensors.shard(root / "base/model-1.safetensors", {"layers.1.qweight": tensor("I32", [3], 2)})
    return root / "base"


def test_missing_weights_of_multi_token_prediction_are_added(tmp_path: Path) -> None:
    small(tmp_path)
    source = safetensors.read_all(full(tmp_path))
    printed = output_of(tmp_path, "add-tensors", {"config": {"mtp_num_hidden_layers": 1}})
    out = tmp_path / "out.partial"
    after = safetensors.read_all(out)

    assert set(after) == {"layers.1.qweight", "mtp.a.weight", "mtp.b.weight", "model.mtp.c"}
    assert {name: after[name] for name in set(after) - {"layers.1.qweight"}} == {
        name: source[name] for name in ("mtp.a.weight", "mtp.b.weight", "model.mtp.c")
    }
    assert (out / "mtp.safetensors").samefile(tmp_path / "donor/mtp.safetensors")
    assert (out / "model-1.safetensors").samefile(tmp_path / "base/model-1.safetensors")
    assert (out / "added-model-1.safetensors").exists()
    assert json.loads((out / "config.json").read_text())["mtp_num_hidden_layers"] == 1
    assert "3 tensors are added, 0 are there already" in printed
    models.publish(member("n1", tmp_path), "out")


def test_what_the_base_has_already_stays_as_it_is(tmp_path: Path) -> None:
    directory = base(tmp_path)
    safetensors.checkpoint(tmp_path / "donor", {"x.safetensors": {"mtp.fc.weight": tensor("BF16", [2, 2], 99)}})
    printed = output_of(tmp_path, "add-tensors", {"count": 1})

    assert safetensors.read_all(tmp_path / "out.partial") == safetensors.read_all(directory)
    assert "0 tensors are added, 1 are there already" in printed


def test_a_checkpoint_whose_index_forgot_a_file_is_mended_with_itself(tmp_path: Path) -> None:
    directory = base(tmp_path)
    file = directory / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    del index["weight_map"]["mtp.fc.weight"]
    file.write_text(json.dumps(index))
    printed = output_of(tmp_path, "add-tensors", {}, {"base": "base", "donor": "base"})
    mended = safetensors.read_all(tmp_path / "out.partial")

    assert "1 tensors are added, 0 are there already" in printed
    assert mended["mtp.fc.weight"] == tensor("BF16", [2, 2], 7)
    assert set(mended) == {*index["weight_map"], "mtp.fc.weight"}
    assert (tmp_path / "out.partial/model_extra_tensors.safetensors").samefile(
        directory / "model_extra_tensors.safetensors"
    )


def test_a_donor_without_such_tensors_ends_it(tmp_path: Path) -> None:
    base(tmp_path)
    donor(tmp_path)

    assert run(tmp_path, "add-tensors", {}).stderr.startswith("no tensor of the donor has a name like")
    assert run(tmp_path, "add-tensors", {"tensors": "shared", "count": 9}).stderr.startswith("4 tensors of the donor")


def test_one_step_after_the_other(tmp_path: Path) -> None:
    """A hybrid that gets MTP from a third checkpoint, as two steps of a recipe."""
    base(tmp_path)
    donor(tmp_path)
    output_of(tmp_path, "replace-tensors", HYBRID)
    models.publish(member("n1", tmp_path), "out")
    (tmp_path / "out").rename(tmp_path / "hybrid")
    safetensors.checkpoint(tmp_path / "third", {"x.safetensors": {"mtp.norm.weight": tensor("BF16", [2], 8)}})
    output_of(tmp_path, "add-tensors", {}, {"base": "hybrid", "donor": "third"})
    expected = {**safetensors.read_all(tmp_path / "hybrid"), **safetensors.read_all(tmp_path / "third")}

    assert safetensors.read_all(tmp_path / "out.partial") == expected
    models.publish(member("n1", tmp_path), "out")


def test_every_script_is_known_by_its_name() -> None:
    known = {file.stem for file in (shipped.PACKAGE.parent / "templates/steps").glob("*.py")}

    assert known == {"replace-tensors", "add-tensors", "gguf"}
    with pytest.raises(
        UsageError, match="unknown step script nothing, expected one of: add-tensors, gguf, replace-tensors"
    ):
        programs.load_step("nothing")


QWEN = {
    "model_type": "qwen3",
    "vocab_size": 4,
    "hidden_size": 4,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 2,
    "max_position_embeddings": 16,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 10000.0},
    "eos_token_id": 3,
    "pad_token_id": 3,
}
WORDS = {
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
    "pre_tokenizer": {"type": "ByteLevel"},
    "added_tokens": [{"id": 3, "content": "<end>", "special": True}],
}


def qwen(root: Path, **config: Any) -> Path:
    """A Qwen3 of one layer, of which two tensors are there."""
    tensors = {
        "model.norm.weight": tensor("BF16", [4], 1),
        "model.layers.0.self_attn.q_proj.weight": tensor("BF16", [4, 2], 2),
    }
    directory = safetensors.checkpoint(root / "base", {"model.safetensors": tensors}, {**QWEN, **config})
    (directory / "tokenizer.json").write_text(json.dumps(WORDS))
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    return directory


ALONE = {"base": "base"}


def test_a_gguf_file_has_the_values_and_tensors_of_the_checkpoint(tmp_path: Path) -> None:
    qwen(tmp_path)
    output_of(tmp_path, "gguf", {"file": "q.gguf"}, ALONE)
    values, tensors = gguf.read(tmp_path / "out.partial/q.gguf")

    assert (values["general.architecture"], values["qwen3.block_count"]) == ("qwen3", 1)
    assert values["tokenizer.ggml.tokens"] == ["a", "b", "ab", "<end>"]
    assert values["tokenizer.ggml.token_type"] == [1, 1, 1, 3]
    assert values["tokenizer.ggml.merges"] == ["a b"]
    assert values["tokenizer.chat_template"] == "{{ messages }}"
    assert {name: (shape, kind) for name, (shape, kind, _) in tensors.items()} == {
        "blk.0.attn_q.weight": ((2, 4), "BF16"),
        "output_norm.weight": ((4,), "F32"),
    }
    before = safetensors.read_all(tmp_path / "base")
    assert tensors["blk.0.attn_q.weight"][2] == before["model.layers.0.self_attn.q_proj.weight"][2]
    norm = before["model.norm.weight"][2]
    assert tensors["output_norm.weight"][2] == b"".join(b"\0\0" + norm[at : at + 2] for at in range(0, 8, 2))


def test_a_gguf_file_is_complete_and_says_what_it_is(tmp_path: Path) -> None:
    qwen(tmp_path)
    output_of(tmp_path, "gguf", {}, ALONE)
    checkpoint = models.publish(member("n1", tmp_path), "out")

    assert set(checkpoint.files) == {"model.gguf", ".sparkops.json"}
    assert checkpoint.origin
    assert (checkpoint.origin.model, checkpoint.origin.steps) == ("org/q", "d1")
    assert list(models.look(member("n1", tmp_path)).checkpoints) == ["base", "out"]


def test_a_gguf_file_of_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    qwen(tmp_path, model_type="llama")
    ran = run(tmp_path, "gguf", {}, ALONE)

    assert (ran.returncode, ran.stderr) == (1, f"{tmp_path}/base is a model of type 'llama', expected qwen3\n")
