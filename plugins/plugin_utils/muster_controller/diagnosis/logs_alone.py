"""Diagnose logs without an inventory and without Ansible, for the command `muster why`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from muster.diagnosis.case import LaunchCase
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from muster.diagnosis.foreign import case_of_logs
from muster.diagnosis.words import diagnosis

from .foreign_logs import ForeignLogs, read_logs

if TYPE_CHECKING:
    from muster.diagnosis.words import Diagnosis

STANDARD_INPUT = "-"
MOST_INPUT = 4_000_000  # bytes of standard input: the last ones


def diagnosed(source: str) -> tuple[Diagnosis, tuple[str, ...]]:
    """Return the diagnosis of a file, a folder, a pattern or standard input, and what was left out.

    Raises PlanError if there are no logs.
    """
    if source == STANDARD_INPUT:
        text = sys.stdin.buffer.read()[-MOST_INPUT:].decode("utf-8", "replace")
        logs = ForeignLogs({"standard input": text})
    else:
        logs = read_logs(source)
    case = LaunchCase(case_of_logs(logs.texts, []))
    return diagnosis(case, decide(case, CAUSES)), logs.left_out
