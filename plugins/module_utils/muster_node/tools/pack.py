"""Packs a program for nodes and the tools that it imports into one text, and runs that with any Python 3.10+.

For the controller there is Program (plugin_utils/muster_controller/program.py); looks use this when they hand a
program to another user, unit or interpreter of the node.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from . import program

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM = "muster_node"
# Reading a file as Python does takes twenty times as long; a test holds that both find the same.
IMPORT = re.compile(r"^ *from (\.+)([\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


@cache
def pack(name: str) -> str:
    """Return a program as one text, which runs as a file as well. name: of its module, as imported here."""
    room = name.rsplit(".", 2)[0]
    sources: dict[str, str] = {}
    wanted = [name, program.__name__]
    while wanted:
        each = wanted.pop()
        own = ROOM + each.removeprefix(room)
        if own not in sources:
            sources[own] = source_of(each)
            wanted += imported(each, sources[own], room)
    return program.text_of(ROOM + name.removeprefix(room), dict(sorted(sources.items())))


def source_of(module: str) -> str:
    spec = find_spec(module)
    loader: Any = spec.loader if spec else None
    source = loader.get_source(module) if hasattr(loader, "get_source") else None
    if source is None:
        raise ModuleNotFoundError(f"there is no source of {module}", name=module)
    return str(source)


def imported(module: str, source: str, room: str) -> Iterator[str]:
    """Yield the modules of the room that a module imports, always as `from .. import x` or `from ..y import x`."""
    for dots, name, names in relative_imports(source):
        package = ".".join(module.split(".")[:-dots])
        if not f"{package}.".startswith(f"{room}."):
            raise ImportError(f"{module} imports from outside of {ROOM}", name=module)
        found = f"{package}.{name}" if name else package
        spec = find_spec(found)
        if spec is None or spec.submodule_search_locations is None:
            yield found
        else:
            yield from (f"{found}.{each}" for each in names)


def relative_imports(source: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield of each `from ..name import names` how many dots it has, the name, and the names."""
    for dots, name, names in IMPORT.findall(source):
        bare = re.sub(r"#.*", "", names).strip("() \n")
        yield len(dots), name, [each.split()[0] for each in bare.split(",") if each.strip()]


@cache
def framed(name: str) -> bytes:
    """Return a program as BOOTSTRAP reads it."""
    return program.framed(pack(name))


def sent(name: str, payload: Any) -> bytes:
    """Return the whole standard input of a call: the program, and the payload behind it."""
    return framed(name) + json.dumps(payload).encode()
