"""The operator's side of the guards: their container, requests, leases, events."""
