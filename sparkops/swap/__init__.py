"""The machine that decides a swap. Pure: values in, values out."""
