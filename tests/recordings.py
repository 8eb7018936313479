"""Read and store recorded output of real nvidia-smi programs (tests/unit/gpu_info/recorded).

Folders are stored in a short form. `recorded` returns the original output:

- `provenance.yml` may name another folder (`like:`). Missing files are equal to those of that folder.
- With `gpus: 8`, the last `<gpu>` of `query.xml` is repeated until there are 8, or those after the eighth are removed.
- `query.xml.patch` is a unified diff that is then applied to `query.xml`.
- A line with `Link 0-17:` represents one line for each of the links 0 to 17; so do the following lines, link by link.

To store the files of a folder in this form, optionally as patches of another folder:

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
GPU = re.compile(r"^\t<gpu id=.*?^\t</gpu>\n\n?", re.MULTILINE | re.DOTALL)
ONE_LINK = re.compile(r"\t Link (\d+):.*\n(?:\t Link \1:.*\n)*\n?|.*\n")
MANY_LINKS = re.compile(r"^\t Link ((\d+)-(\d+)):.*\n(?:\t Link \1:.*\n)*\n?", re.MULTILINE)
HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@\n", re.MULTILINE)


@lru_cache
def provenance(folder: Path) -> dict[str, Any]:
    """Return the provenance of a recording: printed_by, over, scenario, when, exit, and optionally like and gpus."""
    found: dict[str, Any] = yaml.safe_load((folder / PROVENANCE).read_text(encoding="utf-8"))
    return found


def recorded(folder: Path, name: str) -> str | None:
    """Return the text of a recorded file; None if the program printed nothing."""
    text = kept(folder, name)
    return None if text is None else each_link(text)


def kept(folder: Path, name: str) -> str | None:
    """Return the stored text of a file, in which a line can represent several links."""
    source, patch = provenance(folder), folder / f"{name}.patch"
    text = None
    if (folder / name).exists():
        text = (folder / name).read_bytes().decode()
    elif "like" in source:
        text = kept(folder.parent / source["like"], name)
    if text is not None:
        text = with_gpus(text, source.get("gpus"))
    return patched(text or "", patch.read_bytes().decode()) if patch.exists() else text


def with_gpus(text: str, number: int | None) -> str:
    """Return the output with this number of GPUs. The last GPU is repeated, or surplus GPUs at the end are removed."""
    gpus = list(GPU.finditer(text))
    if not gpus or number is None:
        return text
    blocks = [gpu[0] for gpu in gpus] + [gpus[-1][0]] * number
    return text[: gpus[0].start()] + "".join(blocks[:number]) + text[gpus[-1].end() :]


def each_link(text: str) -> str:
    """Replace each line that represents several links with one line per link."""

    def lines(kept: re.Match[str]) -> str:
        links = range(int(kept[2]), int(kept[3]) + 1)
        return "".join(kept[0].replace(f"\t Link {kept[1]}:", f"\t Link {link}:") for link in links)

    return MANY_LINKS.sub(lines, text)


def many_links(text: str) -> str:
    """Merge lines of consecutive links that differ only in the link number. This is the inverse of each_link."""
    blocks: list[tuple[str, list[str]]] = []
    for block in ONE_LINK.finditer(text):
        lines = block[0].replace(f"\t Link {block[1]}:", "\t Link {}:")
        if block[1] and blocks and blocks[-1][0] == lines and int(blocks[-1][1][-1]) + 1 == int(block[1]):
            blocks[-1][1].append(block[1])
        else:
            blocks.append((lines, [block[1]]))
    many = [(lines, f"{links[0]}-{links[-1]}" if links[1:] else links[0]) for lines, links in blocks]
    return "".join(lines.replace("\t Link {}:", f"\t Link {links}:") for lines, links in many)


def shorten(folder: Path, sibling: str = "") -> None:
    """Store a folder in the short form. A file is stored as a patch if the patch has less than half as many lines as
    the file."""
    other = folder.parent / sibling if sibling else folder
    names = {path.name.removesuffix(".patch") for path in (*folder.iterdir(), *other.iterdir())} - {PROVENANCE}
    texts = {name: many_links(recorded(folder, name) or "") for name in names}
    bases = {name: kept(other, name) if sibling else with_gpus(text, 1) for name, text in texts.items()}
    gpus, gpus_of_base = (len(GPU.findall(named.get("query.xml") or "")) for named in (texts, bases))
    for name, text in texts.items():
        base = with_gpus(bases[name] or "", gpus)
        patch = difference(base, text)
        whole = bases[name] is None or (patch != "" and 2 * patch.count("\n") >= text.count("\n"))
        for file in (folder / name, folder / f"{name}.patch"):
            file.unlink(missing_ok=True)
        if whole or not sibling:
            (folder / name).write_bytes((text if whole else bases[name] or "").encode())
        if patch and not whole:
            (folder / f"{name}.patch").write_bytes(patch.encode())
    source = re.sub(r"^(like|gpus): .*\n", "", (folder / PROVENANCE).read_text(encoding="utf-8"), flags=re.MULTILINE)
    source += f"like: {sibling}\n" if sibling else ""
    source += f"gpus: {gpus}\n" if gpus != gpus_of_base else ""
    (folder / PROVENANCE).write_text(source, encoding="utf-8")
    provenance.cache_clear()


def difference(before: str, after: str) -> str:
    """Return the unified diff of two texts without file names. Return "" for equal texts."""
    lines = difflib.unified_diff(lines_of(before), lines_of(after), n=1, lineterm="")
    return "".join(f"{line}\n" for line in list(lines)[2:])


def patched(before: str, patch: str) -> str:
    """Return a text with a unified diff applied. Raises ValueError if the diff does not fit exactly."""
    old, new, done = lines_of(before), [], 0
    nothing, *hunks = HUNK.split(patch)
    if nothing or not hunks:
        raise ValueError("not a unified diff")
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
    """Return the lines of a text. Raises ValueError if the final newline is missing."""
    *lines, rest = text.split("\n")
    if rest:
        raise ValueError("the last line has no end")
    return lines


if __name__ == "__main__":
    shorten(Path(sys.argv[1]), *sys.argv[2:])
