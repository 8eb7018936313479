"""Recordings of experiments in few archives, rewritten after each experiment, so that an aborted run keeps results."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def pack(folder: Path, archive: Path) -> None:
    """Replace the archive with the folder's content, without HTML pages, which are generated from the rest."""
    new = archive.with_suffix(".new")
    with tarfile.open(new, "w:gz") as packed:
        packed.add(folder, folder.name, filter=lambda one: None if one.name.endswith((".html", ".fifo")) else one)
    new.replace(archive)
