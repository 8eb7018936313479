"""Questions that the last words of ranks answer, because a library compared, or counted, before it spoke."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .model import Question, no, yes
from .texts import TEXTS

if TYPE_CHECKING:
    from .case import LaunchCase
    from .model import CauseAnswer, CausePlace

BY_ID = {text.id: text for text in TEXTS}


def said(name: str, asks: str, *texts: str, containing: str = "") -> Question:
    """Whether a rank ended with one of these texts. containing: a regular expression for more of the same line."""
    patterns = [re.compile(BY_ID[one].pattern) for one in texts]
    more = re.compile(containing)

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        for failure in case.all_failures:
            if failure.rank is None or (place.rank not in (None, failure.rank)) or place.node not in ("", failure.node):
                continue
            for line in (failure.traceback or failure.summary).splitlines():
                if any(one.search(line) for one in patterns) and more.search(line):
                    return yes(line.strip()[:400], f"last words of {failure.where}", failure.when)
        return no("no rank ended with these words")

    return Question(name, asks, look)
