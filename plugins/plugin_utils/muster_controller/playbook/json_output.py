"""The result of a run as one JSON object on standard output, for `muster --json`; docs/json.md describes it."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from muster.verdict.printable import printable_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

REQUESTED = "MUSTER_JSON"  # environment variable that the command sets
# Keys of results, and their keys in the object.
RESULTS = {name: name for name in ("verdict", "jobs", "drift", "diagnosis", "artifacts")}


class JsonOutput:
    """Collects results of tasks on the controller. All other output goes to standard error.

    status: of the last line, when the run has ended.
    """

    def __init__(self) -> None:
        self.status = ""
        self.results: dict[str, Any] = {}
        self.descriptor = -1
        if os.environ.get(REQUESTED):
            sys.stdout.flush()
            self.descriptor = os.dup(1)
            os.dup2(2, 1)

    def take(self, result: Mapping[str, Any]) -> None:
        self.results.update((key, result[name]) for name, key in RESULTS.items() if name in result)
        if isinstance(result.get("status"), dict):
            self.results["cluster"] = result["status"]

    def end(self, status: str, line: str, report: str, failures: Mapping[str, Any]) -> None:
        """Write the object with printable texts.

        failures: node -> task and reason. report: path of the report; "" without one.
        """
        self.status = status
        if self.descriptor < 0:
            return
        stopped = [{"node": node, "task": one.task, "why": one.why} for node, one in failures.items()]
        found = {"schema": 1, "status": status, "summary": line, "report": report, "failures": stopped, **self.results}
        with os.fdopen(os.dup(self.descriptor), "w", encoding="utf-8") as stream:
            plain = json.loads(json.dumps(found, default=str))  # texts of nodes may be in values of any type
            stream.write(f"{json.dumps(printable_parts(plain), ensure_ascii=False)}\n")


JSON_OUTPUT = JsonOutput()
