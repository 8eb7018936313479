"""Paths and keys of the evidence of a launch on the controller: evidence/{start,snapshot,end}/<node>.json."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from typing import TYPE_CHECKING, Any

from muster.diagnosis.evidence import NodeRecord, Snapshot
from muster.verdict import reading
from muster_controller.artifacts.private_files import FILE, make_folder
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

START, SNAPSHOT, END = "start", "snapshot", "end"
SHAPES: dict[str, type[Any]] = {START: NodeRecord, SNAPSHOT: Snapshot, END: NodeRecord}
MOST_FILE = 4_000_000  # bytes
# Next to the folders of all launches, so that a shared launch folder does not contain the key.
KEY_FILE = "evidence.key"
SECRET_BYTES = 64  # hexadecimal digits


def path_of(folder: Path, moment: str, node: str) -> Path:
    return folder / "evidence" / moment / f"{node}.json"


def kept(folder: Path, nodes: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield the moment, the node and the content of each evidence file of a launch."""
    for moment, shape in SHAPES.items():
        for node in nodes:
            try:
                text = files.read(str(path_of(folder, moment, node)), most=MOST_FILE)
                yield moment, node, reading.read(shape, json.loads(text))[0]
            except (OSError, ValueError, RecursionError):
                continue  # missing or incomplete


def key_of(secret: bytes, launch_id: str) -> str:
    return hmac.new(secret, launch_id.encode(), hashlib.sha256).hexdigest()


def kept_key(folder: Path) -> str:
    """Return the key of a launch, or "" if the secret no longer exists."""
    try:
        secret = files.read(str(folder.parent / KEY_FILE), most=SECRET_BYTES)
    except OSError:
        return ""
    return key_of(secret, folder.name)


def shared_secret(folder: Path, new: bytes) -> bytes:
    """Return the secret of all launches in the parent folder, from which the key of each launch is derived. If there
    is no secret, store the new one. Raises OSError."""
    path = folder.parent / KEY_FILE
    make_folder(path.parent)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE)
    except FileExistsError:
        known = files.read(str(path), most=SECRET_BYTES)
        return known if len(known) == SECRET_BYTES else new
    with os.fdopen(handle, "wb") as stream:
        stream.write(new)
    return new
