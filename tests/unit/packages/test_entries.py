"""Every file in cases/retarget contains an apt source file, and its expected content with new URLs.

saved: content before the first change. If `after` is omitted, the file must not change. The default distribution is
ubuntu.
"""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.packages.entries import retargeted


@cases(__file__, "retarget")
def test_apt_source_file_matches_the_case(case: dict[str, Any]) -> None:
    saved = case.get("saved")

    def done(text: str) -> str:
        wanted = (case.get("distribution", "ubuntu"), case.get("archive", ""), case.get("security", ""))
        return retargeted(case["path"], text, saved, *wanted)

    after = done(case["before"])
    assert after == case.get("after", case["before"])
    # With the original content saved beside it, a second run changes nothing.
    saved = case["before"] if saved is None else saved
    assert done(after) == after
