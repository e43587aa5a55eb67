"""`make arguments`: the arguments of each recipe, judged by the parser of the vLLM that the recipe pins."""
