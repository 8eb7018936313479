"""What is printed for a log alone: one screen, at most three possible causes, and commands without unknown parts."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cases import document_of, load_cases
from muster.diagnosis.case import UNNAMED, LaunchCase
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from muster.diagnosis.foreign import case_of_logs
from muster.diagnosis.log_sources import Known
from muster.diagnosis.texts import TEXTS
from muster.diagnosis.words import MOST_POSSIBLE, diagnosis
from paths import ROOT

ROWS, COLUMNS = 24, 120
HERE = Path(__file__).parent / "cases"
SCHEMA = json.loads((ROOT / "docs/results.schema.json").read_text(encoding="utf-8"))
LOGS: dict[str, tuple[dict[str, str], list[Known]]] = {
    **{text.id: ({"node1.log": text.example}, []) for text in TEXTS},
    **{
        name: (case["logs"], [Known(node, more[0], tuple(more[1:])) for node, more in case.get("known", {}).items()])
        for name, case in load_cases(HERE / "foreign").items()
    },
    **{report["source"]: (report["files"], []) for report in document_of(HERE / "reports/open.yml")},
}


@cache
def shown(name: str) -> Any:
    logs, known = LOGS[name]
    case = LaunchCase(case_of_logs(logs, known))
    return diagnosis(case, decide(case, CAUSES))


@pytest.mark.parametrize("name", LOGS)
def test_diagnosis_of_a_log_fits_on_a_screen(name: str) -> None:
    lines = shown(name)["lines"]
    assert sum(-(-len(line) // COLUMNS) for line in lines) <= ROWS, "\n".join(lines)
    assert len([line for line in lines if line.startswith("     Check: ")]) <= MOST_POSSIBLE


@pytest.mark.parametrize("name", LOGS)
def test_commands_have_no_unknown_part(name: str) -> None:
    said = shown(name)
    causes = [*said["causes"], *said["candidates"]]
    commands = [step["command"] for one in causes for step in (one["fix"], one["check"]) if "command" in step]
    printed = [found[1] for line in said["lines"] if (found := re.search(r"\brun: (.+)", line))]
    for command in (*commands, *printed):
        assert not re.search(r"\{\w+\}|<\w+>|:0\b|''", command), command
        assert UNNAMED not in command


@pytest.mark.parametrize("name", LOGS)
def test_json_follows_its_schema(name: str) -> None:
    jsonschema.validate(shown(name), {"$ref": "#/$defs/diagnosis", "$defs": SCHEMA["$defs"]})
