"""Events that an operator must know: the list of them, their form for receivers, and when they are due. Pure."""
