"""Packs a program for nodes and the tools that it imports into one text, and runs that with any Python 3.10+.

For the controller there is Program (plugin_utils/muster_controller/program.py); looks use this when they hand a
program to another user, unit or interpreter of the node.
"""

from __future__ import annotations

import ast
import json
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from . import program

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM = "muster_node"
# What decides, by the name under which everything on nodes imports it.
DECIDES = "ansible.module_utils.muster"


@cache
def pack(name: str) -> str:
    """Return a program as one text, which runs as a file as well. name: of its module, as imported here."""
    room = name.rsplit(".", 2)[0]
    beside = f"{room.removesuffix(ROOM)}muster"  # where the decisions lie here
    there = {room: ROOM, beside: DECIDES}
    sources: dict[str, str] = {}
    wanted = [name, program.__name__]
    while wanted:
        each = wanted.pop()
        here = room if each.startswith(f"{room}.") else beside
        own = there[here] + each.removeprefix(here)
        if own not in sources:
            sources[own] = source_of(each)
            wanted += imported(each, sources[own], here, beside)
    return program.text_of(ROOM + name.removeprefix(room), dict(sorted(sources.items())))


def source_of(module: str) -> str:
    spec = find_spec(module)
    loader: Any = spec.loader if spec else None
    source = loader.get_source(module) if hasattr(loader, "get_source") else None
    if source is None:
        raise ModuleNotFoundError(f"there is no source of {module}", name=module)
    return str(source)


def imported(module: str, source: str, room: str, beside: str = "") -> Iterator[str]:
    """Yield the modules of the room that a module imports, always as `from .. import x` or `from ..y import x`.

    beside: the room of the decisions, which are imported by their whole name.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom):
            continue
        if not node.level:
            if not beside or not f"{node.module}.".startswith(f"{DECIDES}."):
                continue
            found = beside + str(node.module).removeprefix(DECIDES)
        else:
            package = ".".join(module.split(".")[: -node.level])
            if not f"{package}.".startswith(f"{room}."):
                raise ImportError(f"{module} imports from outside of {room}", name=module)
            found = f"{package}.{node.module}" if node.module else package
        spec = find_spec(found)
        if spec is None or spec.submodule_search_locations is None:
            yield found
        else:
            yield from (f"{found}.{each.name}" for each in node.names)


@cache
def framed(name: str) -> bytes:
    """Return a program as BOOTSTRAP reads it."""
    return program.framed(pack(name))


def sent(name: str, payload: Any) -> bytes:
    """Return the whole standard input of a call: the program, and the payload behind it."""
    return framed(name) + json.dumps(payload).encode()
