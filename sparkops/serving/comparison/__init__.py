"""What the release that serves answers, kept to compare the next one with it before the switch."""
