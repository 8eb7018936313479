"""What real nvidia-smi programs printed: the folders of tests/unit/gpu_info/recorded.

A folder holds whole files, or its provenance.yml names another folder (`like:`). Then `query.xml.patch` is a unified
diff on the other folder's `query.xml`, and a file that is missing is the same as in the other folder. This makes the
whole files of a folder into patches on a sibling:

    python tests/recordings.py tests/unit/gpu_info/recorded/580-h100-hot 580-h100-pair
"""

from __future__ import annotations

import difflib
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

RECORDED = Path(__file__).parent / "unit/gpu_info/recorded"
PROVENANCE = "provenance.yml"
HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@\n", re.MULTILINE)


@lru_cache
def provenance(folder: Path) -> dict[str, Any]:
    """Return where a recording comes from: printed_by, over, scenario, when, exit, and like."""
    found: dict[str, Any] = yaml.safe_load((folder / PROVENANCE).read_text(encoding="utf-8"))
    return found


def recorded(folder: Path, name: str) -> str | None:
    """Return the text of a recording's file, or None where the program printed none."""
    if (folder / name).exists():
        return (folder / name).read_bytes().decode()
    if "like" not in provenance(folder):
        return None
    text = recorded(folder.parent / provenance(folder)["like"], name)
    patch = folder / f"{name}.patch"
    return patched(text or "", patch.read_bytes().decode()) if patch.exists() else text


def shorten(folder: Path, sibling: str) -> None:
    """Replace the files of a folder, as far as that is shorter, by patches on those of its sibling."""
    names = {path.name for path in (*folder.iterdir(), *(folder.parent / sibling).iterdir())} - {PROVENANCE}
    for name in {name.removesuffix(".patch") for name in names}:
        text, other = recorded(folder, name) or "", recorded(folder.parent / sibling, name)
        patch = difference(other or "", text)
        (folder / name).unlink(missing_ok=True)
        (folder / f"{name}.patch").unlink(missing_ok=True)
        if other is None or patch.count("\n") >= text.count("\n"):
            (folder / name).write_bytes(text.encode())
        elif patch:
            (folder / f"{name}.patch").write_bytes(patch.encode())
    kept = re.sub(r"^like: .*\n", "", (folder / PROVENANCE).read_text(encoding="utf-8"), flags=re.MULTILINE)
    (folder / PROVENANCE).write_text(f"{kept}like: {sibling}\n", encoding="utf-8")
    provenance.cache_clear()


def difference(before: str, after: str) -> str:
    """Return the unified diff of two texts, without the names of files: empty where they are the same."""
    lines = difflib.unified_diff(lines_of(before), lines_of(after), n=1, lineterm="")
    return "".join(f"{line}\n" for line in list(lines)[2:])


def patched(before: str, patch: str) -> str:
    """Return a text with a unified diff applied to it. Raises ValueError where the diff does not fit exactly."""
    old, new, done = lines_of(before), [], 0
    nothing, *hunks = HUNK.split(patch)
    if nothing or not hunks:
        raise ValueError("this is no unified diff")
    for start, old_count, new_count, body in zip(*(hunks[part::4] for part in range(4)), strict=True):
        lines = lines_of(body)
        was = [line[1:] for line in lines if line[:1] in {" ", "-"}]
        now = [line[1:] for line in lines if line[:1] in {" ", "+"}]
        first = int(start) - 1 if was else int(start)
        if any(line[:1] not in {" ", "-", "+"} for line in lines):
            raise ValueError(f"the hunk at line {start} has a line that begins with none of ' ', '-' and '+'")
        if (len(was), len(now)) != (int(old_count or 1), int(new_count or 1)):
            raise ValueError(f"the hunk at line {start} has another number of lines than it says")
        if first < done or old[first : first + len(was)] != was:
            raise ValueError(f"the hunk at line {start} does not fit the text")
        new += old[done:first] + now
        done = first + len(was)
    return "".join(f"{line}\n" for line in new + old[done:])


def lines_of(text: str) -> list[str]:
    """Return the lines of a text. Raises ValueError where the last one does not end."""
    *lines, rest = text.split("\n")
    if rest:
        raise ValueError("the last line has no end")
    return lines


if __name__ == "__main__":
    shorten(Path(sys.argv[1]), sys.argv[2])
