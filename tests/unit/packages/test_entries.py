"""Every file in cases/retarget is one source file of apt: as it is found, and as it must be with these addresses.

saved: as it was before it was first changed. Without `after` it stays as it is. On ubuntu unless it says otherwise.
"""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.packages.entries import retargeted


@cases(__file__, "retarget")
def test_case(case: dict[str, Any]) -> None:
    saved = case.get("saved")

    def done(text: str) -> str:
        wanted = (case.get("distribution", "ubuntu"), case.get("archive", ""), case.get("security", ""))
        return retargeted(case["path"], text, saved, *wanted)

    after = done(case["before"])
    assert after == case.get("after", case["before"])
    # With what was there before beside it, as from then on, a second time changes nothing.
    saved = case["before"] if saved is None else saved
    assert done(after) == after
