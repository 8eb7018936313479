"""The record of the last installation on a node. Only drift uses it.

No step uses it for decisions: it shows what has changed since, not what to do.
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
    """Return {record, why}. Without a usable record, it is empty and why has the reason."""
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
    """Write the record if its content changes; return whether it was written."""
    whole = to_write(now, parts)
    if not whole:
        return False
    text = json.dumps({"schema": SCHEMA, "at": time.time(), "by": by, "run": run, **whole}, indent=1)
    files.replace(PATH, f"{text}\n".encode(), mode=0o644, parents=True)
    return True


def to_write(now: Json, parts: list[str]) -> Json:
    """Return the new record; empty if unchanged. A part that could not be inspected keeps its recorded value. So does
    each part that is not in `parts`, if given and if a record exists."""
    there = read()["record"]
    whole = {**{name: there[name] for name in now["unseen"] if name in there}, **now}
    whole.pop("unseen")
    if parts and there:
        whole = {**there, **{name: whole[name] for name in parts if name in whole}}
    return {} if without_passing(there) == without_passing({**whole, "schema": SCHEMA}) else whole


def without_passing(record: Json) -> Json:
    return {name: value for name, value in record.items() if name not in PASSING}
