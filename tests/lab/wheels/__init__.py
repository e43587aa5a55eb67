"""What the wheels of vLLM contain, read from the package index without downloading them whole."""
