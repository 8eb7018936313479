"""The record of the last installation on a node. Only the drift check uses the record.

No step bases decisions on the record: it only shows what has changed since the installation.
"""

from __future__ import annotations

import json
import time
from typing import Any

from ..tools import files

Json = dict[str, Any]

PATH = "/var/lib/muster/installed.json"
MOST = 2_000_000  # bytes
SCHEMA = 1
# Fields that differ at every inspection.
PASSING = ("at", "by", "run", "booted", "unseen")


def read() -> Json:
    """Return {record, why}. If there is no usable record, record is empty and why gives the reason."""
    try:
        found = json.loads(files.read(PATH, most=MOST, owner=0))
    except FileNotFoundError:
        return {"record": {}, "why": "no installation has been recorded yet"}
    except (OSError, ValueError) as error:
        return {"record": {}, "why": f"{PATH} cannot be used: {error}"[:300]}
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return {"record": {}, "why": f"{PATH} was written by another version of Muster"}
    return {"record": found, "why": ""}


def keep(now: Json, by: str, run: str, parts: list[str]) -> bool:
    """Write the record if its content changes; return whether the record was written."""
    whole = to_write(now, parts)
    if not whole:
        return False
    text = json.dumps({"schema": SCHEMA, "at": time.time(), "by": by, "run": run, **whole}, indent=1)
    files.replace(PATH, f"{text}\n".encode(), mode=0o644, parents=True)
    return True


def to_write(now: Json, parts: list[str]) -> Json:
    """Return the new record; {} if nothing changed. A part keeps its recorded value if it could not be inspected, or if
    `parts` is not empty and does not list it."""
    there = read()["record"]
    whole = {**{name: there[name] for name in now["unseen"] if name in there}, **now}
    whole.pop("unseen")
    if parts and there:
        whole = {**there, **{name: whole[name] for name in parts if name in whole}}
    return {} if without_passing(there) == without_passing({**whole, "schema": SCHEMA}) else whole


def without_passing(record: Json) -> Json:
    return {name: value for name, value in record.items() if name not in PASSING}
