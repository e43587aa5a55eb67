"""The model: where its files come from and where they lie."""

from __future__ import annotations

from sparkops.config.fields import Line, RelativePath, Section
from sparkops.config.smoke import Positive


class Model(Section):
    """The weights. They lie on the node, in a directory under its `model_dir`."""

    id: Line
    """Name of the model on its hub, or any name for a model of your own."""
    revision: Line | None = None
    """Commit of the model repository; part of the release."""
    path: RelativePath
    """Directory under the node's `model_dir`."""
    size_gb: Positive | None = None
    """Size on disk in GB (10^9 bytes), as its publisher states it."""
