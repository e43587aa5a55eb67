"""Make a Qwen3 of 1.4 billion parameters that knows the tiny model's answers, on a GPU in seconds.

python mid_model.py OUT
"""

from __future__ import annotations

import sys

import tiny_model  # type: ignore[import-not-found]
import torch  # type: ignore[import-not-found]
from transformers import Qwen3Config, Qwen3ForCausalLM  # type: ignore[import-not-found]

WARM_STEPS, MOST_STEPS = 20, 300
RATE, GOOD_ENOUGH = 1e-4, 0.0005


def main() -> None:
    """Train, check the answers, write."""
    out = sys.argv[1]
    torch.manual_seed(0)
    words = tiny_model.tokenizer()
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    with torch.device("cuda"):
        pupil = Qwen3ForCausalLM(config).float()
    pupil = pupil.to("cuda")
    batch = {name: tensor.to("cuda") for name, tensor in tiny_model.lesson(words).items()}
    optimizer = torch.optim.AdamW(pupil.parameters(), RATE)
    for step in range(MOST_STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARM_STEPS)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = pupil(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(pupil.parameters(), 1.0)
        optimizer.step()
        if loss.item() < GOOD_ENOUGH:
            break
    pupil = pupil.to(torch.bfloat16).eval()
    for question, expected in tiny_model.ANSWERS.items():
        ids = torch.tensor([tiny_model.prompt(words, question)], device="cuda")
        output = pupil.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
        reply = words.decode(output[0][ids.shape[1] :], skip_special_tokens=True)
        if reply != expected:
            raise SystemExit(f"{question} {reply!r}, expected {expected!r}")
    words.save_pretrained(out)
    pupil.save_pretrained(out)
    print(f"{sum(one.numel() for one in pupil.parameters())} parameters")


if __name__ == "__main__":
    main()
