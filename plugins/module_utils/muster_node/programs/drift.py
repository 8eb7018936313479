"""Reports the current state of a node, the record of the last installation, and logged changes. All verbs need root.

look     return the current state, the record and the data for the next boot; changes nothing
history  return entries of dpkg's log, apt's history and the journal, and file times; changes nothing
keep     record the current state as installed
condemn  make the step pytorch detect that files of the environment were changed
"""

from __future__ import annotations

from typing import Any

from ..drift import environment, record
from ..drift.facts import facts
from ..drift.history import history
from ..tools import boot
from ..tools.program import answer

Json = dict[str, Any]


def look(request: Json) -> Json:
    return {
        "now": facts(request),
        **record.read(),
        "boot": boot.look(),
    }


def keep(request: Json) -> Json:
    """Record the current state. request: fields of look, and {by: user, run, parts: parts to record, [] for all}."""
    now = facts(request)
    written = record.keep(now, request["by"], request["run"], request["parts"])
    return {"written": written, "unseen": now["unseen"]}


def condemn(request: Json) -> Json:
    """Mark an environment as changed. request: {environment, named, parts}."""
    asked = environment.by_environment(request, request["parts"])
    return {"removed": [path for _, link, parts in asked for path in environment.condemn(link, parts)]}


def main() -> None:
    answer({"look": look, "history": history, "keep": keep, "condemn": condemn})


if __name__ == "__main__":
    main()
