"""A checkpoint of AutoRound INT4 may hold dense layers in FP8, and vLLM's INC configuration knows nothing of them.

It takes them for unquantized: the weights load without their scales, and the model answers with noise. Mended, the
configuration looks at the checkpoint and gives each such layer the FP8 method that vLLM has. Reported upstream in June
2026 as issue 46311; where a vLLM looks at the checkpoint by itself, this mod leaves it alone.
"""

import mend

FILE = "model_executor/layers/quantization/inc.py"
MODULE = "model_executor/layers/quantization/inc_fp8_dense.py"
UPSTREAM = "    def maybe_update_config("


def after(line: str, *added: str) -> mend.Edit:
    """An edit that puts lines below one that is there."""
    return mend.Edit(line, line + "".join(added), UPSTREAM)


IMPORT = after(
    "from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead\n",
    "from vllm.model_executor.layers.quantization.inc_fp8_dense import Fp8Dense\n",
)
CREATE = after("        self.pack_factor = Fraction(32, weight_bits)\n", "        self.fp8_dense = Fp8Dense()\n")
RENAME = after(
    '    def apply_vllm_mapper(self, hf_to_vllm_mapper: "WeightsMapper"):\n',
    "        self.fp8_dense.rename(hf_to_vllm_mapper)\n",
)
CHOOSE = after(
    "    def get_quant_method(self, layer: torch.nn.Module, prefix: str):\n",
    "        if method := self.fp8_dense.method(layer, prefix, self.packed_modules_mapping):\n",
    "            return method\n",
)
LOOK = mend.Edit(
    "    def check_quantized(self, weight_bits: int) -> bool:\n",
    UPSTREAM + "self, model_name: str, **_: object) -> None:\n"
    "        self.fp8_dense.find(model_name)\n\n"
    "    def check_quantized(self, weight_bits: int) -> bool:\n",
    UPSTREAM,
)

root = mend.directory("vllm")
file = root / FILE
text = file.read_text(encoding="utf-8") if file.is_file() else ""
mended_upstream = UPSTREAM in text and "Fp8Dense" not in text
mend.change(
    root,
    {FILE: (IMPORT, CREATE, RENAME, CHOOSE, LOOK)},
    {} if mended_upstream else {MODULE: mend.beside("inc_fp8_dense.py")},
)
