"""What a node has now, beside what was last installed there, and what its logs say of changes. All verbs need root.

look     what is there now, and what was written down; changes nothing
history  what dpkg's log, apt's history, the journal and the times of files say; changes nothing
keep     write down what is there now as what was last installed
condemn  have the step pytorch see that files of its environment were changed
"""

from __future__ import annotations

from typing import Any

from ..drift import environment, record
from ..drift.facts import facts
from ..drift.history import history
from ..tools.program import answer

Json = dict[str, Any]


def look(request: Json) -> Json:
    return {"now": facts(request), **record.read()}


def keep(request: Json) -> Json:
    """request: that of look, with {by, run, parts}: who does it, in which run, and of what alone ([] for all)."""
    now = facts(request)
    written = record.keep(now, request["by"], request["run"], request["parts"])
    return {"written": written, "unseen": now["unseen"]}


def condemn(request: Json) -> Json:
    """request: {environment, named, parts}."""
    asked = environment.by_environment(request, request["parts"])
    return {"removed": [path for _, link, parts in asked for path in environment.condemn(link, parts)]}


def main() -> None:
    answer({"look": look, "history": history, "keep": keep, "condemn": condemn})


if __name__ == "__main__":
    main()
