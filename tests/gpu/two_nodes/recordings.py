"""Pack the recordings of experiments into few archives. Archives are rewritten after each experiment, so that an
aborted run keeps its results."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def pack(folder: Path, archive: Path) -> None:
    """Write the folder's content to the archive, except HTML pages, which can be generated from the other files."""
    new = archive.with_suffix(".new")
    with tarfile.open(new, "w:gz") as packed:
        packed.add(folder, folder.name, filter=lambda one: None if one.name.endswith((".html", ".fifo")) else one)
    new.replace(archive)
