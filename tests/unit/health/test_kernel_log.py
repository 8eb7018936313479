"""Xids that a real driver logged for failing programs are kept, but are not reported as node faults.

recorded/kernel_580_h200.txt is the driver's part of dmesg on an H200 under driver 580.159.04 (tests/gpu/run.py,
2026-11-27), with the GPU's id and serial number replaced: a device-side assert (Xid 43), a write out of bounds (31),
and a write to a misaligned address (13).
"""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from looked_at import HERE, looked
from muster.diagnosis.causes.gpu import XID, XID_OF_PROGRAM
from muster.diagnosis.model import CausePlace
from muster.health import kernel_log as rules
from muster.health.facts import facts
from muster.health.xids import XID_LINE
from muster.verdict.check import collect
from muster_node.looks import kernel_log
from muster_node.tools.kernel_lines import from_ring, kind_of
from sparse import case_of

# In the format of `dmesg --raw`, which the look runs: with the level before each line.
RING = re.sub(r"^", "<4>", (HERE / "recorded/kernel_580_h200.txt").read_text(), flags=re.MULTILINE)
LINES, CUT = kernel_log.sort(from_ring(RING))


def test_driver_lines_are_kept() -> None:
    xids = [match for _, text in LINES if (match := XID_LINE.search(text))]
    assert [(one[1], int(one[2])) for one in xids] == [
        ("0000:00:06", 43),
        ("0000:00:06", 31),
        ("0000:00:06", 13),
        ("0000:00:06", 13),
    ], "the newest two lines of each Xid and GPU"
    assert any(kind_of(text)[0] == "loaded" for _, text in LINES)
    assert CUT == {}


def test_xids_caused_by_programs_are_not_node_faults() -> None:
    looks, request = looked({"base": "server"})
    lines: list[dict[str, Any]] = [kernel_log.line_of(text, 200 - when) for when, text in LINES]
    looks["kernel_log"] = {"why": "", "source": "dmesg", "lines": lines, "read": 20, "reach": None, "cut": CUT}
    judged = collect(rules.judge(facts(looks, request), request))
    assert [one.id for one in judged.findings] == []
    assert "gpu.xid" not in {one["id"] for one in judged.skipped}
    worse = copy.deepcopy(looks)
    worse["kernel_log"]["lines"][-1]["text"] = lines[-1]["text"].replace("): 13,", "): 79,")
    found = collect(rules.judge(facts(worse, request), request)).findings
    assert [(one.id, one.status) for one in found] == [("gpu.xid", "fail")]


@pytest.mark.parametrize("number", [43, 31, 13])
def test_diagnosis_blames_the_program(number: int) -> None:
    kernel: Any = [{"at": when, "text": text} for when, text in LINES if f": {number}," in text]
    case = case_of({"records": {"node1": {"end": {"kernel": kernel}}}})
    assert XID_OF_PROGRAM.look(case, CausePlace("node1")).word == "yes"
    assert XID.look(case, CausePlace("node1")).word == "no"
