"""An output layer whose weight is INT8 with one scale for each row of the vocabulary."""

import torch
from torch.nn import Parameter
from torch.nn.functional import linear

from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.triton_utils import tl, triton

TOKENS = 16  # the fewest that a tile of tl.dot holds; a step of decoding has hardly more
ROWS = 128
COLUMNS = 128
CHUNK = 16384  # rows that are quantized at a time, so that the float32 copy stays small


class Int8LMHead(UnquantizedEmbeddingMethod):
    """Loads the weight as it is, quantizes it once, and multiplies without ever writing it out again."""

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Put the INT8 weight in the place of the loaded one."""
        weight, scale = quantized(layer.weight.data)
        layer.weight = Parameter(weight, requires_grad=False)
        layer.weight_scale = Parameter(scale, requires_grad=False)

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """The logits of each token of `x`, in its type."""
        tokens = x.reshape(-1, x.shape[-1])
        product = on_gpu if x.is_cuda else on_cpu
        logits = product(tokens, layer.weight, layer.weight_scale).reshape(*x.shape[:-1], -1)
        return logits if bias is None else logits + bias


def quantized(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The weight in INT8, and the float32 scale of each row: the largest value of a row becomes 127."""
    small = torch.empty_like(weight, dtype=torch.int8)
    scale = torch.empty(len(weight), dtype=torch.float32, device=weight.device)
    for start in range(0, len(weight), CHUNK):
        rows = slice(start, start + CHUNK)
        exact = weight[rows].float()
        scale[rows] = exact.abs().amax(dim=1).clamp(min=1e-12) / 127
        small[rows] = (exact / scale[rows, None]).round().to(torch.int8)
    return small, scale


def on_cpu(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The product in plain torch, to check the kernel against."""
    return (linear(x.float(), weight.float()) * scale).to(x.dtype)


def on_gpu(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The product in one launch; each INT8 value is read once for up to 16 tokens."""
    x = x.contiguous()
    logits = torch.empty(len(x), len(weight), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(len(weight), ROWS), triton.cdiv(len(x), TOKENS))
    multiply[grid](x, weight, scale, logits, len(x), len(weight), x.shape[1], TOKENS, ROWS, COLUMNS)
    return logits


@triton.jit
def multiply(
    x_ptr,
    weight_ptr,
    scale_ptr,
    logits_ptr,
    tokens,
    rows,
    width,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """One tile of the logits. INT8 values are exact in every type that `x` may have."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    total = tl.zeros((TOKENS, ROWS), dtype=tl.float32)
    for start in range(0, width, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        x = tl.load(
            x_ptr + token[:, None] * width + column[None, :],
            mask=(token[:, None] < tokens) & (column[None, :] < width),
            other=0.0,
        )
        weight = tl.load(
            weight_ptr + row[None, :] * width + column[:, None],
            mask=(row[None, :] < rows) & (column[:, None] < width),
            other=0,
        )
        total += tl.dot(x, weight.to(x.dtype))
    scale = tl.load(scale_ptr + row, mask=row < rows, other=0.0)
    tl.store(
        logits_ptr + token[:, None] * rows + row[None, :],
        (total * scale[None, :]).to(logits_ptr.dtype.element_ty),
        mask=(token[:, None] < tokens) & (row[None, :] < rows),
    )
