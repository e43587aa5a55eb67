"""From a release and the state of the nodes to an intent: placement, plan, preview."""
