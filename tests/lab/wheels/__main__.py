"""`make wheel-facts`: writes tests/lab/wheels/facts.json and docs/evidence/wheels.md."""

from __future__ import annotations

import datetime
import json

from sparkops.config import recipe_file, shipped
from tests.lab.wheels import facts, table


def main() -> None:
    """Read the index; write facts and page."""
    loaded = [recipe_file.load(file) for file in shipped.recipes().values()]
    wheels = {requirement: dict(facts.read(requirement)) for requirement in facts.requirements(loaded)}
    mods = {one.name: dict(facts.outcomes(one)) for one in loaded if one.image.mods and wheels[str(one.image.vllm)]}
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    read_now = {"read": today, "wheels": wheels, "mods": mods}
    facts.FACTS.write_text(json.dumps(read_now, indent=1) + "\n")
    table.write(loaded, read_now)


if __name__ == "__main__":
    main()
