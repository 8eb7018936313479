"""What is kept of experiments: few files, written again after each, so that a run that is cut off leaves the rest."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def pack(folder: Path, archive: Path) -> None:
    """Replace an archive by what a folder holds now, but for pages, which are made of the rest."""
    new = archive.with_suffix(".new")
    with tarfile.open(new, "w:gz") as packed:
        packed.add(folder, folder.name, filter=lambda one: None if one.name.endswith((".html", ".fifo")) else one)
    new.replace(archive)
