"""The results of a node's own health checks on the node: the last one, and a bounded history."""

from __future__ import annotations

import json
from typing import Any

from . import files, trust

FOLDER = "/var/lib/muster/node-check"
LAST, HISTORY = "last.json", "history.jsonl"
MOST_KEPT = 2000  # a week of checks every five minutes
MOST_BYTES = 4_000_000
METRICS = "muster_node.prom"
DAY = 86400.0  # seconds


def last(folder: str = FOLDER) -> dict[str, Any]:
    """Return the last answer, or {} if there is none."""
    return _object(files.text(f"{folder}/{LAST}") or "")


def summary(folder: str = FOLDER) -> dict[str, Any]:
    """Return the last answer without its findings, and the faults of its day; {} if no check is scheduled."""
    found = last(folder)
    if "when" in found:
        found["day"] = _of_day(folder, float(found["when"]))
    return {name: found[name] for name in ("when", "status", "owner", "reason", "interval", "day") if name in found}


def _of_day(folder: str, end: float) -> dict[str, object]:
    """Count the checks of the day before `end` (seconds since the epoch), and return the last fault of the node."""
    day = [one for one in history(folder) if 0 <= end - float(one.get("when", 0)) < DAY]
    faults = [one for one in day if one.get("owner") == "node"]
    latest = {name: faults[-1].get(name) for name in ("when", "reason")} if faults else {}
    return {"checks": len(day), "faults": len(faults), **latest}


def history(folder: str = FOLDER, most: int = MOST_KEPT) -> list[dict[str, Any]]:
    """Return the newest answers, the oldest first."""
    text = files.text(f"{folder}/{HISTORY}", most=MOST_BYTES) or ""
    return [one for line in text.splitlines()[-most:] if (one := _object(line))]


def last_full(folder: str = FOLDER) -> float | None:
    """Return the time of the last full check."""
    return max((float(one.get("when", 0)) for one in history(folder) if one.get("form") == "full"), default=None)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}  # a truncated last line
    return found if isinstance(found, dict) else {}


def keep(answer: dict[str, Any], report: dict[str, Any], folder: str = FOLDER) -> None:
    """Write the last result with its findings, and append the answer to the history. Raises OSError."""
    trust.make_folder(folder)
    lines = [*history(folder, MOST_KEPT - 1), answer]
    text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in lines)
    files.replace(f"{folder}/{HISTORY}", text.encode(), mode=0o644)
    files.replace(f"{folder}/{LAST}", json.dumps({**answer, **report}).encode(), mode=0o644)


def write_metrics(folder: str, text: str) -> None:
    """Write the metrics atomically, because node_exporter reads the file at any time. Raises OSError.

    The folder may belong to the account of node_exporter, which could replace it by a link.
    """
    with files.folder(folder) as handle:
        files.replace(METRICS, text.encode(), mode=0o644, within=handle)
