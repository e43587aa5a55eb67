"""Build commands that drop clean pages of model files from a node's page cache, without root."""

from __future__ import annotations

from sparkops.command import Command
from sparkops.config.node import NodeConfig
from sparkops.config.recipe import Recipe
from sparkops.node.docker.commands import MODELS, docker, model_dir

# A constant, not a file of templates/, because the guard runs it too and its image contains only the package. Links out
# of the directory are skipped. It needs only the standard library of Python 3.9, and always exits with 0.
PROGRAM = """\
import os, stat, sys
root, files, size, kept = os.path.realpath(sys.argv[1]), 0, 0, []
for place, _, names in os.walk(root, onerror=lambda error: kept.append(f"{error.filename}: {error.strerror}")):
    for path in (os.path.realpath(os.path.join(place, name)) for name in names):
        try:
            if not path.startswith(root + os.sep):
                raise OSError(0, "it is outside of the directory")
            if stat.S_ISREG(os.stat(path).st_mode):
                file = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                    files, size = files + 1, size + os.fstat(file).st_size
                finally:
                    os.close(file)
        except OSError as error:
            kept.append(f"{path}: {error.strerror}")
print(f"page cache dropped: {files} files, {size / 2**30:.1f} GiB in {root}", *kept[:3], sep="; ", end="")
print(f"; {len(kept) - 3} more kept" if len(kept) > 3 else "")
"""
TIMEOUT_S = 120.0


def drop(recipe: Recipe, node: NodeConfig) -> Command:
    """Drop the pages of the recipe's model with the node's own Python."""
    return drop_directory(f"{model_dir(node)}/{recipe.model.path}")


def drop_directory(directory: str) -> Command:
    """Drop the pages of all files in a directory."""
    return Command(("python3", "-c", PROGRAM, directory), timeout_s=TIMEOUT_S)


def drop_through(container: str, image: str, recipe: Recipe) -> Command:
    """Drop the pages in a container of `image` with the volumes of `container`, because the guard has no models."""
    options = ("--rm", "--network=none", f"--volumes-from={container}:ro", "--entrypoint=python3")
    return docker("run", *options, image, "-c", PROGRAM, f"{MODELS}/{recipe.model.path}", timeout_s=TIMEOUT_S)
