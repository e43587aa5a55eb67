"""Every command of a swap fails once: what served before serves on, alone, and the lock is free."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from sparkops.errors import SparkopsError
from sparkops.fleet import blue_green
from tests.fleet_unit.test_crash import BESIDE, IN_PLACE, Begun, Scene, good_end


class Once:
    """Lets the n-th changing command fail, and only that."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen: list[str] = []

    def __call__(self, line: str) -> int:
        if line.startswith("docker") and not line.endswith("show"):
            self.seen.append(line)
            return int(len(self.seen) == self.number)
        return 0


@pytest.mark.parametrize(("scene", "code"), [(IN_PLACE, 6), (BESIDE, 1)], ids=["in-place", "beside"])
def test_whichever_command_fails_blue_serves_in_the_end(scene: Scene, code: int, tmp_path: Path) -> None:
    begun, outcomes, number = Begun(scene, tmp_path).first(), {}, 1
    while True:
        with closing(begun.again()) as world:
            world.machines["n1"].fails = once = Once(number)
            error = SparkopsError("none")
            try:
                with world.order() as order:
                    blue_green.deploy(order, begun.release(world, "2"), scene.wish())
            except SparkopsError as caught:
                error = caught
            if len(once.seen) < number:
                break
            serves = world.serving() == begun.release(world, "1").id
            outcomes[once.seen[number - 1].split(" --")[0]] = (error.exit_code, serves, good_end(world))
        number += 1

    assert set(map(str, outcomes.values())) == {str((code, True, []))}, outcomes
    assert number > 6
