"""The FP8 layers of a checkpoint whose other layers are INT4: found by their scales, and run by vLLM's FP8 method."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from vllm.logger import init_logger
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.quantization.fp8 import Fp8Config, Fp8LinearMethod

logger = init_logger(__name__)

SCALE = ".weight_scale_inv"
BLOCK = 128  # rows and columns that share one scale


class Fp8Dense:
    """Which layers of the checkpoint are FP8."""

    def __init__(self) -> None:
        self.layers: set[str] = set()

    def find(self, model: str) -> None:
        """Look into the checkpoint's files. Raises ValueError for a scale that does not fit its weight."""
        directory = Path(model)
        if not directory.is_dir():
            return
        tensors = {name: told for file in sorted(directory.glob("*.safetensors")) for name, told in header(file).items()}
        scales = [name for name in tensors if name.endswith(SCALE)]
        for name in scales:
            weight = tensors.get(name.removesuffix("_scale_inv"), {"dtype": "nothing", "shape": []})
            blocks = [-(-length // BLOCK) for length in weight["shape"]]
            if weight["dtype"] != "F8_E4M3" or blocks != tensors[name]["shape"]:
                raise ValueError(f"{name}: expected the scales of an FP8 weight in blocks of {BLOCK}, found {weight}")
        self.layers = {name.removesuffix(SCALE) for name in scales}
        if self.layers:
            logger.info("%d layers of the checkpoint are FP8 and keep their scales", len(self.layers))

    def rename(self, mapper) -> None:
        """Follow the names that vLLM gives to the model's modules."""
        self.layers = set(mapper.apply_list(sorted(self.layers)))

    def method(self, layer, prefix: str, packed: Mapping[str, Sequence[str]]) -> Fp8LinearMethod | None:
        """vLLM's FP8 method for an FP8 layer, else None. Raises ValueError for a fused layer that is only partly FP8."""
        if not self.layers or not isinstance(layer, LinearBase):
            return None
        parent, dot, name = prefix.rpartition(".")
        parts = {f"{parent}{dot}{part}" for part in packed.get(name, [name])}
        if not parts & self.layers:
            return None
        if parts - self.layers:
            raise ValueError(f"{prefix}: only some of {sorted(parts)} are FP8, and vLLM keeps them in one weight")
        config = Fp8Config(
            is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=[BLOCK, BLOCK]
        )
        return Fp8LinearMethod(config)


def header(file: Path) -> dict[str, dict]:
    """Type and shape of each tensor of a safetensors file: a length of 8 bytes, then so many bytes of JSON."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        told = json.loads(opened.read(length))
    return {name: tensor for name, tensor in told.items() if name != "__metadata__"}
