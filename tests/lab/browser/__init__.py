"""The page of `sparkops ui` in Debian's Chromium: `make ui`."""
