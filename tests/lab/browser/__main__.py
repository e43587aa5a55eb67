"""`python -m tests.lab.browser`: pictures of the page with a made-up fleet of four nodes, for docs/."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.lab.browser.chromium import browser
from tests.lab.browser.test_page import Fleet, open_page
from tests.operator.status.page.pictures import fleet
from tests.places import ROOT

PICTURES = (("ui", 1180, 874, False), ("ui-narrow", 400, 860, True))
"""Name, width and height in pixels, and whether it is dark."""
MOST_BYTES = 150_000


def main() -> None:
    """Write the pictures. Raises ValueError for one that is too large for a repository."""
    shown = Fleet(fleet(4, time.time()))
    with tempfile.TemporaryDirectory() as scratch, browser(Path(scratch)) as page, shown.served() as site:
        for name, width, height, dark in PICTURES:
            open_page(page, site, width, dark=dark)
            page.sized(width, height, dark=dark)
            taken = page.picture()
            if len(taken) > MOST_BYTES:
                raise ValueError(f"{name}: {len(taken)} bytes, expected at most {MOST_BYTES}")
            (ROOT / f"docs/captures/{name}.png").write_bytes(taken)


if __name__ == "__main__":
    main()
