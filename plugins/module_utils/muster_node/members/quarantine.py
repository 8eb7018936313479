"""The node's copy of its quarantine entry. The inventory is authoritative. The copy blocks launches that use an
outdated inventory."""

from __future__ import annotations

import json
import os
from typing import Any

from ..tools import files, trust

Json = dict[str, Any]

FOLDER = "/var/lib/muster"
FILE = f"{FOLDER}/quarantine.json"
MOST = 4096  # bytes
PARTS = ("reason", "since", "by")


def kept() -> Json | None:
    """Return {reason, since, by} from the copy; None if the copy does not exist or does not belong to root."""
    try:
        said = json.loads(files.read(FILE, most=MOST, owner=0))
    except (OSError, ValueError):
        return None
    return {name: str(said[name]) for name in PARTS if name in said} if isinstance(said, dict) else None


def look(_request: Json) -> Json:
    return {"kept": kept()}


def keep(request: Json) -> Json:
    """Write the copy; return {changed}. request: {quarantine, check}."""
    wanted = {name: str(request["quarantine"][name]) for name in PARTS if name in request["quarantine"]}
    changed = kept() != wanted
    if changed and not request["check"]:
        os.umask(0o022)
        trust.make_folder(FOLDER)
        files.replace(FILE, json.dumps(wanted).encode(), mode=0o644)  # readable for launch users
    return {"changed": changed}


def forget(request: Json) -> Json:
    """Remove the copy; return {changed}. request: {check}."""
    if request["check"]:
        return {"changed": os.path.lexists(FILE)}
    return {"changed": files.remove(FILE)}
