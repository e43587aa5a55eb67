"""A checkpoint's config.json can only hold a list where Transformers 5 wants a set of RoPE keys to pass over.

A list then ends the load with a TypeError. Mended upstream in two steps: the subtraction in Transformers 5.5,
the union in 5.10.
"""

import mend

SUBTRACTION = mend.Edit(
    old="            received_keys -= ignore_keys\n",
    new="            received_keys -= set(ignore_keys)\n",
)
UNION = mend.Edit(
    old="self.ignore_keys_at_rope_validation = self.ignore_keys_at_rope_validation | {",
    new="self.ignore_keys_at_rope_validation = set(self.ignore_keys_at_rope_validation or ()) | {",
    fixed="set(self.ignore_keys_at_rope_validation or []) | {",
)

mend.rewrite("transformers", "modeling_rope_utils.py", SUBTRACTION, UNION)
