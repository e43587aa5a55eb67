"""The two releases of `make demo`."""

from __future__ import annotations

from itertools import pairwise

from sparkops.config import assets, recipe_file
from sparkops.config.assets import BuildInputs
from sparkops.config.recipe import Recipe
from sparkops.config.release import Release
from sparkops.operator.build.render.context import build_context
from tests.examples import INPUTS
from tests.operator.demo import __main__ as demo
from tests.places import ROOT


def loaded(argv: tuple[str, ...]) -> Recipe:
    """The recipe of one of the demo's deploys."""
    changes = [word for option, word in pairwise(argv) if option == "--set"]
    return recipe_file.load(ROOT / argv[1], None, changes)


def test_the_swap_brings_another_release_from_the_same_image() -> None:
    first, second = loaded(demo.FIRST), loaded(demo.SECOND)
    images = [
        build_context(demo_recipe, assets.load_templates(), assets.load_mods(), BuildInputs()).digest
        for demo_recipe in (first, second)
    ]

    assert images[0] == images[1]
    assert Release(first, INPUTS).id != Release(second, INPUTS).id
    assert (first.service, first.model.path) == (demo.SERVICE, demo.MODEL)


def test_the_old_release_is_still_warm_when_the_rollback_comes() -> None:
    assert loaded(demo.FIRST).swap.keep_old_s >= 300
