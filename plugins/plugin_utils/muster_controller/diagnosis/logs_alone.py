"""Diagnose logs without an inventory and without Ansible, for the command `muster why`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.diagnosis.case import LaunchCase
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from muster.diagnosis.foreign import case_of_logs
from muster.diagnosis.words import diagnosis

from .foreign_logs import read_logs, read_standard_input

if TYPE_CHECKING:
    from muster.diagnosis.words import Diagnosis


STANDARD_INPUT = "-"


def diagnosed(source: str) -> tuple[Diagnosis, tuple[str, ...]]:
    """Return the diagnosis of a file, a folder, a pattern or standard input, and what was left out.

    Raises PlanError if there are no logs.
    """
    logs = read_standard_input() if source == STANDARD_INPUT else read_logs(source)
    case = LaunchCase(case_of_logs(logs.texts, []))
    return diagnosis(case, decide(case, CAUSES)), logs.left_out
