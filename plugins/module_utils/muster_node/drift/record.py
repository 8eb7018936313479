"""What was last installed on a node, as a run that got that far has left it: for drift alone.

No step decides by it: it says what changed since, and not what is to be done.
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
# What is another thing at each look, and no change.
PASSING = ("at", "by", "run", "booted", "unseen")


def read() -> Json:
    """{record, why}: an empty record where there is none, or none that can be used, and why."""
    try:
        found = json.loads(files.read(PATH, most=MOST, owner=0))
    except FileNotFoundError:
        return {"record": {}, "why": "nothing was written down yet"}
    except (OSError, ValueError) as error:
        return {"record": {}, "why": f"{PATH} cannot be used: {error}"[:300]}
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return {"record": {}, "why": f"{PATH} was written by another version of Muster"}
    return {"record": found, "why": ""}


def keep(now: Json, by: str, run: str, parts: list[str]) -> bool:
    """Write it where it says something else; whether it did."""
    whole = to_write(now, parts)
    if not whole:
        return False
    text = json.dumps({"schema": SCHEMA, "at": time.time(), "by": by, "run": run, **whole}, indent=1)
    files.replace(PATH, f"{text}\n".encode(), mode=0o644, parents=True)
    return True


def to_write(now: Json, parts: list[str]) -> Json:
    """What the record is to say; nothing where it does. A part that could not be seen stays as it was, and so does
    each that is not in `parts`, where that names some and there is a record."""
    there = read()["record"]
    whole = {**{name: there[name] for name in now["unseen"] if name in there}, **now}
    whole.pop("unseen")
    if parts and there:
        whole = {**there, **{name: whole[name] for name in parts if name in whole}}
    return {} if without_passing(there) == without_passing({**whole, "schema": SCHEMA}) else whole


def without_passing(record: Json) -> Json:
    return {name: value for name, value in record.items() if name not in PASSING}
