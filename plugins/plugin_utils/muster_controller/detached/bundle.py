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

HERE = Path(__file__).parents[1]
ROOMS = HERE.parents[1] / "module_utils"
MAIN = "detached.watcher"
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
    files = sorted(needed())
    packages = ["", *sorted({f"{name.partition('.')[0]}." for name in files})]
    for name in (*(f"{package}__init__" for package in packages), *files):
        yield f"{HERE.name}/{name.replace('.', '/')}.py", text_of(name)


def text_of(name: str) -> str:
    return HERE.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")


def needed() -> set[str]:
    """ROOM.FILE of this package for all that the watcher imports; not those for the eyes of a type checker alone."""
    found: set[str] = set()
    wanted = [MAIN]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += imported(text_of(name), name.partition(".")[0])
    return found


def imported(text: str, room: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        source = f"{HERE.name}.{room}.{node.module or ''}".rstrip(".") if node.level else str(node.module)
        package, _, name = source.partition(".")
        if package == HERE.name:
            yield from [name] if "." in name else [f"{name}.{each.name}" for each in node.names]
