"""The files that mods add to vLLM, in a real vLLM: they import, and do on the CPU what they are for."""

from __future__ import annotations

import json

import pytest

from sparkops.config import shipped
from tests.fleet.fleet import Fleet as RealFleet

MODS = shipped.PACKAGE.parent / "templates/mods"
ADDED = {
    "inc_fp8_dense": MODS / "vllm-inc-fp8-dense/inc_fp8_dense.py",
    "int8_lm_head": MODS / "vllm-int8-lm-head/int8_lm_head.py",
}
LOAD = """
import json, sys, tempfile, types
from pathlib import Path

import torch
from safetensors.torch import save_file
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.models.utils import WeightsMapper

modules = {}
for name, text in json.loads(sys.argv[1]).items():
    modules[name] = types.ModuleType(name)
    exec(compile(text, name + ".py", "exec"), modules[name].__dict__)
"""
INT8 = """
torch.manual_seed(1)
layer, method = torch.nn.Module(), modules["int8_lm_head"].Int8LMHead()
method.create_weights(layer, 96, [20000], 96, 20000, params_dtype=torch.bfloat16)
layer.weight.data = torch.randn(20000, 96, dtype=torch.bfloat16) * torch.rand(20000, 1).bfloat16()
x = torch.randn(2, 3, 96, dtype=torch.bfloat16)
exact = x.float() @ layer.weight.data.float().T
method.process_weights_after_loading(layer)
logits = method.apply(layer, x)
print(json.dumps({
    "type": str(layer.weight.dtype),
    "shape": list(logits.shape),
    "same": str(logits.dtype) == str(x.dtype),
    "error": ((logits.float() - exact).abs().max() / exact.abs().max()).item(),
    "best": (logits.argmax(-1) == exact.argmax(-1)).float().mean().item(),
    "bias": (method.apply(layer, x, torch.ones(20000)) - logits).float().min().item(),
}))
"""
FP8 = """
Fp8Dense = modules["inc_fp8_dense"].Fp8Dense
linear = LinearBase.__new__(LinearBase)
packed = {"gate_up_proj": ["gate_proj", "up_proj"]}
prefix = "language_model.model.layers.0.mlp.shared_expert."


def checkpoint(scales):
    directory = Path(tempfile.mkdtemp())
    name = "model.language_model.layers.0.mlp.shared_expert."
    tensors = {"model.norm.weight": torch.zeros(4)}
    for projection in ("gate_proj", "up_proj", "down_proj"):
        tensors[name + projection + ".weight"] = torch.zeros(300, 128).to(torch.float8_e4m3fn)
    for projection, shape in scales.items():
        tensors[name + projection + ".weight_scale_inv"] = torch.zeros(shape)
    save_file(tensors, directory / "model-00001-of-00001.safetensors")
    found = Fp8Dense()
    found.find(str(directory))
    found.rename(WeightsMapper(orig_to_new_prefix={"model.language_model.": "language_model.model."}))
    return found


config = VllmConfig()
config.model_config = types.SimpleNamespace(dtype=torch.bfloat16)  # all that the method asks of a model


def outcome(act):
    try:
        with set_current_vllm_config(config):
            return type(act()).__name__
    except ValueError as error:
        return str(error)


whole = checkpoint({"gate_proj": (3, 1), "up_proj": (3, 1), "down_proj": (3, 1)})
half = checkpoint({"gate_proj": (3, 1)})
plain = checkpoint({})
print(json.dumps({
    "layers": sorted(whole.layers),
    "one": outcome(lambda: whole.method(linear, prefix + "down_proj", packed)),
    "fused": outcome(lambda: whole.method(linear, prefix + "gate_up_proj", packed)),
    "other": outcome(lambda: whole.method(linear, prefix.replace("0", "1") + "down_proj", packed)),
    "not linear": outcome(lambda: whole.method(torch.nn.Module(), prefix + "down_proj", packed)),
    "half": outcome(lambda: half.method(linear, prefix + "gate_up_proj", packed)),
    "plain": outcome(lambda: plain.method(linear, prefix + "down_proj", packed)),
    "shape": outcome(lambda: checkpoint({"gate_proj": (2, 1)})),
}))
"""


@pytest.fixture(scope="module")
def results(nodes: RealFleet, built: str) -> list[dict[str, object]]:
    """What both scripts print, from one container."""
    texts = json.dumps({name: file.read_text() for name, file in ADDED.items()})
    argv = ("docker", "run", "--rm", "--interactive", "--network=none", "--entrypoint=python", built, "-", texts)
    printed = nodes.node("node-1").exec(*argv, stdin=(LOAD + INT8 + FP8).encode())
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


@pytest.mark.matrix
@pytest.mark.vllm
def test_the_output_layer_in_int8_gives_nearly_the_same_logits(results: list[dict[str, object]]) -> None:
    logits = results[0]

    assert (logits["type"], logits["shape"], logits["same"], logits["best"]) == ("torch.int8", [2, 3, 20000], True, 1.0)
    assert float(str(logits["error"])) < 0.02
    assert float(str(logits["bias"])) > 0.9


@pytest.mark.matrix
@pytest.mark.vllm
def test_fp8_layers_are_found_by_their_scales_under_the_names_that_vllm_gives_them(
    results: list[dict[str, object]],
) -> None:
    fp8 = results[1]

    names = ("down_proj", "gate_proj", "up_proj")
    assert fp8["layers"] == [f"language_model.model.layers.0.mlp.shared_expert.{name}" for name in names]
    assert [fp8[key] for key in ("one", "fused")] == ["Fp8LinearMethod"] * 2
    assert [fp8[key] for key in ("other", "not linear", "plain")] == ["NoneType"] * 3


@pytest.mark.matrix
@pytest.mark.vllm
def test_a_checkpoint_that_is_only_partly_fp8_is_refused(results: list[dict[str, object]]) -> None:
    assert "and vLLM keeps them in one weight" in str(results[1]["half"])
    assert "expected the scales of an FP8 weight in blocks of 128" in str(results[1]["shape"])
