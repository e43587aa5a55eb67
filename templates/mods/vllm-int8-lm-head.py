"""The output layer of a large vocabulary is the largest weight that every token reads: here in INT8 instead of BF16.

Each row is quantized on its own when the model has loaded, without calibration. It halves what a token reads of that
layer; albond's repository measured 51 instead of 38.4 tok/s with it and a second draft token.
"""

import mend

FILE = "model_executor/layers/vocab_parallel_embedding.py"
MODULE = "model_executor/layers/int8_lm_head.py"
UNQUANTIZED = """\
        if quant_method is None:
            quant_method = UnquantizedEmbeddingMethod()
"""
INT8 = """\
        if isinstance(self, ParallelLMHead) and type(quant_method).__name__.startswith("Unquantized"):
            from vllm.model_executor.layers.int8_lm_head import Int8LMHead

            quant_method = Int8LMHead()
"""

mend.change(
    mend.directory("vllm"),
    {FILE: (mend.Edit(UNQUANTIZED, UNQUANTIZED + INT8),)},
    {MODULE: mend.beside("int8_lm_head.py")},
)
