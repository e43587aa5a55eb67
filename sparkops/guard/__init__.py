"""Program 2, on each node: keeps what is wanted running, and leads a service's swaps."""
