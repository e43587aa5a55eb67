"""Make an INT4 or FP8 checkpoint of a small model, rounded to nearest, and verify that it still gives its answers.

    python quantize.py int4|fp8 MODEL OUT

It runs inside the image that serves it, beside tiny_model.py. INT4 is symmetric in groups of GROUP, in the layout of
GPTQ (qweight, qzeros, scales, g_idx) with AutoRound's entry in config.json, which vLLM runs with its Marlin kernels.
FP8 is E4M3 with one scale per matrix (weight, weight_scale) and dynamic scales of activations.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tiny_model  # type: ignore[import-not-found]
import torch  # type: ignore[import-not-found]
from safetensors.torch import load_file, save_file  # type: ignore[import-not-found]
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM  # type: ignore[import-not-found]

GROUP = 32
ZERO = 8  # of unsigned 4-bit values
FP8_MAX = 448.0
Tensors = dict[str, Any]
INT4_CONFIG = {
    "quant_method": "auto-round",
    "packing_format": "auto_round:auto_gptq",
    "bits": 4,
    "group_size": GROUP,
    "sym": True,
    "data_type": "int",
}
FP8_CONFIG = {"quant_method": "fp8", "activation_scheme": "dynamic"}


def int4(name: str, weight: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of a linear layer in GPTQ's layout, and its rounded weight under its own name."""
    outputs, inputs = weight.shape
    groups = weight.float().reshape(outputs, inputs // GROUP, GROUP)
    scales = (groups.abs().amax(-1, keepdim=True) / (ZERO - 1)).clamp(min=1e-8).bfloat16()
    codes = (groups / scales.float()).round().clamp(-ZERO, ZERO - 1)
    yield name, (codes * scales.float()).reshape(outputs, inputs).bfloat16()
    layer = name.removesuffix(".weight")
    unsigned = (codes.reshape(outputs, inputs).t().to(torch.int64) + ZERO).contiguous()
    yield f"{layer}.qweight", packed(unsigned, 0)
    # GPTQ's first format stores zero points less one.
    yield f"{layer}.qzeros", packed(torch.full((inputs // GROUP, outputs), ZERO - 1, dtype=torch.int64), 1)
    yield f"{layer}.scales", scales.reshape(outputs, inputs // GROUP).t().contiguous()
    yield f"{layer}.g_idx", torch.arange(inputs, dtype=torch.int32) // GROUP


def packed(values: Any, axis: int) -> Any:
    """Return eight 4-bit values in each int32, the first in the lowest bits, along an axis."""
    moved = values.movedim(axis, -1)
    parts = moved.reshape(*moved.shape[:-1], moved.shape[-1] // 8, 8)
    words = (parts << (torch.arange(8) * 4)).sum(-1)
    signed = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
    return signed.movedim(-1, axis).contiguous()


def fp8(name: str, weight: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of a linear layer in FP8, and its rounded weight under a name of its own."""
    scale = (weight.float().abs().max() / FP8_MAX).clamp(min=1e-12)
    codes = (weight.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    yield f"rounded:{name}", (codes.float() * scale).bfloat16()
    yield name, codes
    yield f"{name}_scale", scale.reshape(())


def layers(tensors: Tensors) -> list[str]:
    """Return the names of the linear layers' weights: those of attention and MLP."""
    return [name for name in tensors if "_proj.weight" in name]


def check(source: Path, rounded: Tensors) -> None:
    """Verify the answers of the model with its rounded weights. Raises SystemExit for a wrong one."""
    words = AutoTokenizer.from_pretrained(source)
    model = Qwen3ForCausalLM(Qwen3Config.from_pretrained(source)).bfloat16()
    model.load_state_dict(rounded, strict=False)
    model.tie_weights()
    for question, expected in tiny_model.ANSWERS.items():
        given = tiny_model.answer(model, words, question)
        if given != expected:
            raise SystemExit(f"{question} {given!r}, expected {expected!r}")


def main() -> None:
    """Quantize, check, write."""
    kind, source, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    quantize: Callable[[str, Any], Iterator[tuple[str, Any]]] = {"int4": int4, "fp8": fp8}[kind]
    tensors = load_file(source / "model.safetensors")
    chosen = layers(tensors)
    rounded, written = dict(tensors), {name: tensor for name, tensor in tensors.items() if name not in chosen}
    for name in chosen:
        for new_name, tensor in quantize(name, tensors[name]):
            if tensor.dtype == torch.bfloat16 and new_name.removeprefix("rounded:") == name:
                rounded[name] = tensor
            else:
                written[new_name] = tensor
    check(source, rounded)
    out.mkdir(parents=True, exist_ok=True)
    save_file(written, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = INT4_CONFIG if kind == "int4" else FP8_CONFIG
    (out / "config.json").write_text(json.dumps(config, indent=2))
    for file in source.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            (out / file.name).write_bytes(file.read_bytes())
    print(f"{kind}: {len(chosen)} matrices quantized", flush=True)


if __name__ == "__main__":
    main()
