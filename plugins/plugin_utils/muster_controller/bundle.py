"""The watcher as one file: this package as far as it needs no Ansible, and the rooms that it imports, as a zip."""

from __future__ import annotations

import ast
import io
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
ROOMS = HERE.parents[1] / "module_utils"
MAIN = "watcher"
ENTRY = f"from {HERE.name}.{MAIN} import main\n\nmain()\n"
# A zip has a time for each file; the same program shall be the same bytes.
BEGINNING = (1980, 1, 1, 0, 0, 0)


@cache
def watcher_program() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in (*sources(), ("__main__.py", ENTRY)):
            bundle.writestr(zipfile.ZipInfo(name, BEGINNING), text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def sources() -> Iterator[tuple[str, str]]:
    for room in ("muster", "muster_node"):
        for path in sorted((ROOMS / room).rglob("*.py")):
            yield str(path.relative_to(ROOMS)), path.read_text(encoding="utf-8")
    yield f"{HERE.name}/__init__.py", ""
    for name in sorted(needed()):
        yield f"{HERE.name}/{name}.py", (HERE / f"{name}.py").read_text(encoding="utf-8")


def needed() -> set[str]:
    """The files of this package that the watcher imports; not those for the eyes of a type checker alone."""
    found: set[str] = set()
    wanted = [MAIN]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += imported((HERE / f"{name}.py").read_text(encoding="utf-8"))
    return found


def imported(text: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            yield from [node.module] if node.module else [each.name for each in node.names]
