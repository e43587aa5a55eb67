"""Program 1, on the operator's machine: builds, deploys, and shows the fleet."""
