"""`make demo` on two nodes in containers, and the pure parts that it shares with `sparkops demo`."""
