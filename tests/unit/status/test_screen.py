"""Complete status screens: input from the nodes, and all expected lines."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from cases import cases
from muster.status.judge import StatusFacts, StatusNode, as_dict, quarantine, ranks_of, sentence, status
from muster.status.past import PastRun, PastRuns
from muster.status.screen import screen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NOW = 1_795_000_000.0  # 2026-11-18T11:06:40+00:00
ENDED = "2026-11-18T08:06:40+00:00"  # three hours before


def spread(given: Mapping[str, Any]) -> dict[str, Any]:
    """Expand {"node[1-3]": x} to three nodes. If a node occurs several times, its mappings are merged."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        for one in names(name):
            before = found.get(one)
            found[one] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return found


def names(text: str) -> Iterator[str]:
    span = re.fullmatch(r"(.*)\[(\d+)-(\d+)\](.*)", text)
    if not span:
        yield text
        return
    for number in range(int(span[2]), int(span[3]) + 1):
        yield f"{span[1]}{number:0{len(span[2]) if span[2].startswith('0') else 1}}{span[4]}"


def answer(**said: Any) -> dict[str, Any]:
    """Return the answer of an idle node. gpus: number of GPUs."""
    gpus = said.pop("gpus", 0)
    listed = [{"index": str(number), "name": "H100", "used": "4", "busy": "0"} for number in range(gpus)]
    return {
        "who": {"uid": 1000, "name": "admin", "launch_user": False, "root": False},
        "kernel": "6.8.0-71-generic",
        "driver": "580.178.04" if gpus else "",
        "torch": {"version": "2.13.0+cu130" if gpus else "2.13.0+cpu", "cuda": "13.0" if gpus else None, "why": ""},
        "disk": {"path": "/var", "free": 900_000_000_000, "read_only": False},
        "devices": gpus,
        "gpus": listed,
        "computing": {},
        "why": "",
        "launches": [],
        "held": {},
        "seats_seen": True,
        "sees_all": True,
        **said,
    }


def given(case: Mapping[str, Any]) -> StatusFacts:
    nodes = spread(case["nodes"])
    out = {name: quarantine(own.get("quarantine", False)) for name, own in nodes.items()}
    ranks = ranks_of({name: max(1, own.get("gpus", 0)) for name, own in nodes.items() if not out[name]})
    past = {name: PastRun(**kept) for name, kept in case.get("past", {}).items() if name != "book"}
    return StatusFacts(
        cluster="lab",
        nodes=[
            StatusNode(name, own.get("gpus", 0), ranks.get(name, ()), out[name], own.get("torch", ""))
            for name, own in nodes.items()
        ],
        answers={name: answer(**said) for name, said in spread(case.get("answers", {})).items()},
        silent=spread(case.get("silent", {})),
        not_root=spread(case.get("not_root", {})),
        past=PastRuns(**past, book=case.get("past", {}).get("book", {})),
        now=NOW,
        time="2026-11-18 11:06:40 UTC",
    )


@cases(__file__, "screen")
def test_status_screen_matches_the_case(case: dict[str, Any]) -> None:
    seen = status(given(case))
    for wanted in case["screens"]:
        lines = screen(seen, wanted["width"], wanted.get("height", 0))
        assert "\n".join(line.text for line in lines) == wanted["text"].rstrip("\n")
        assert max(len(line.text) for line in lines) <= wanted["width"]
        assert not wanted.get("height") or len(lines) <= wanted["height"]
    assert sentence(seen) == case["sentence"]
    assert seen.all_ready is case.get("ready", True)
    json.dumps(as_dict(seen))
