"""An invented failed launch with its diagnosis."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import samples

if TYPE_CHECKING:
    from muster.report import Artifacts

END = 1_000_000.0
RAISED = "RuntimeError: sample 17 is broken"
FOLLOWED = "RuntimeError: [/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.9.0.13]:40112"
STUCK_IN = "wait_for_a_file (train.py:41)"


def kept(count: int, ranks: int, *, hostile: bool = False) -> Artifacts:
    """Return a run in which a rank on node3 raised, the others followed node by node, and the last rank was stopped."""
    names = samples.names(count)
    raised = samples.HOSTILE if hostile else RAISED
    culprit = ("node3", 2 * ranks + 1)
    stopped = count * ranks - 1
    symptoms: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        for rank in range(place * ranks, (place + 1) * ranks):
            own = (name, rank) == culprit
            when = END - 6 if own else END - 5 + 0.4 * abs(place - 2) + 0.05 * (rank % ranks)
            ends.append({"rank": rank, "node": name, "local_rank": rank % ranks, "gone_at": when})
            if rank == stopped:
                ends[-1]["gone_at"] = None
                continue
            symptoms.append(
                {
                    "id": "rank.exception" if own else "rank.victim",
                    "node": name,
                    "rank": rank,
                    "when": when,
                    "line": raised if own else FOLLOWED,
                    "victim": not own,
                }
            )
    shot = {"rank": stopped, "state": "T", "said": 9.0, "stack": [STUCK_IN], "flight": None, "wchan": ""}
    cause = {
        "says": f"rank {culprit[1]} on node3 ended by an exception of its own: {raised}",
        "word": "confirmed",
        "proofs": [{"source": f"last words of rank {culprit[1]}", "text": raised}],
        "open": [],
    }
    other = {**cause, "says": "node3 ran out of memory", "word": "ruled out", "proofs": []}
    asked = {**other, "word": "possible", "open": ["kernel.oom: requires root"]}
    parts = {
        "Symptom": f"rank {culprit[1]}, node3: {raised}",
        "Where": f"node3, rank {culprit[1]}",
        "Cause": f"{cause['says']} [confirmed: {raised} (last words)]",
        "Ruled out": "node3 ran out of memory",
        "Next step": "Read the traceback in its log",
    }
    well = samples.healthy(count)
    summary = f"node3: rank {culprit[1]}: {RAISED}"
    found = [samples.finding("launch.exception", "fail", "node3", f"rank {culprit[1]}: {RAISED}")]
    verdict = {**well.verdict, "status": "failed", "summary": summary, "findings": [*found, *well.verdict["findings"]]}
    return replace(
        samples.failed(max(count, 4)) if hostile else replace(well, verdict=verdict, smoke={}),
        diagnosis={
            "schema": 1,
            "word": "confirmed",
            "lines": [f"{name}: {text}" for name, text in parts.items()],
            "parts": parts,
            "causes": [cause],
            "candidates": [],
            "also_seen": [asked],
            "ruled_out": [other],
            "symptoms": symptoms,
            "not_looked": {names[-1]: "no answer within 13 s"},
        },
        evidence={
            "schema": 1,
            "launch": {
                "began": END - 3600,
                "stop_began": END - 1,
                "nodes": [
                    {"node": name, "ranks": list(range(place * ranks, (place + 1) * ranks))}
                    for place, name in enumerate(names)
                ],
            },
            "ranks": ends,
            "snapshots": {names[-1]: {"at": END - 1.5, "ranks": [shot]}},
        },
    )
