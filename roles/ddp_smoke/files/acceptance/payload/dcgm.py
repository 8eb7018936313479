"""DCGM's own diagnostics of a node's GPUs, where they are installed and its host engine runs.

The form of `dcgmi diag -j` is that of DCGM 3 ("DCGM GPU Diagnostic", results with gpu_ids or gpu_id) and of DCGM 4
("DCGM Diagnostic", results with entity_id):
https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

MOST = 20  # failures that are told
MOST_TEXT = 300  # characters of one
HEADS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
BAD = ("fail", "warn")


def run(level: int, seconds: float) -> dict[str, Any]:
    """{level, tests, bad: [{test, gpu, status, text}]}, or why there is no result."""
    program = shutil.which("dcgmi")
    if not program:
        return {"level": level, "skipped": "DCGM is not installed"}
    words = [program, "diag", "--run", str(level), "--json"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"level": level, "why": f"dcgmi diag did not end within {seconds:g} s"}
    except OSError as problem:
        return {"level": level, "why": f"dcgmi does not start: {problem.strerror}"}
    said = parsed(done.stdout)
    if said is None:
        text = " ".join((done.stdout + done.stderr).split())[:MOST_TEXT]
        return {"level": level, "why": f"dcgmi diag ended with {done.returncode} and no result: {text}"}
    return {"level": level, **said}


def parsed(text: str) -> dict[str, Any] | None:
    """{tests, bad}; None where it is no result of a diagnosis."""
    try:
        # Before the JSON there can be a line for people.
        whole = json.loads(text[max(text.find("{"), 0) :])
        head = next(whole[name] for name in HEADS if name in whole)
        tests = [test for category in head["test_categories"] for test in category["tests"]]
        bad = [said for test in tests for said in failures(test)]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None
    return {"tests": len(tests), "bad": bad[:MOST], "more": max(len(bad) - MOST, 0)}


def failures(test: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {
            "test": str(test["name"])[:80],
            "gpu": str(one.get("gpu_id", one.get("gpu_ids", one.get("entity_id", ""))))[:20],
            "status": str(one["status"]).lower(),
            "text": words(one.get("warnings") or one.get("info") or "")[:MOST_TEXT],
        }
        for one in test["results"]
        if str(one.get("status")).lower() in BAD
    ]


def words(said: Any) -> str:
    """A text, a list of them, or of {warning: text}."""
    if isinstance(said, list):
        return " ".join(words(one) for one in said)
    return str(said.get("warning", "")) if isinstance(said, dict) else str(said)
