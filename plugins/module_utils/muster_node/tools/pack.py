"""Packs a program for nodes and the tools that it imports into one text, and runs that with any Python 3.10+.

For the controller there is Program (plugin_utils/muster_controller/nodes/program.py); looks use this when they hand a
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
# What decides, by the name under which everything on nodes imports it.
DECIDES = "ansible.module_utils.muster"
# Reading a file as Python does takes twenty times as long; a test holds that both find the same.
IMPORT = re.compile(r"^ *from (\.+)([\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
OF_DECISIONS = re.compile(rf"^ *from ({re.escape(DECIDES)})(?![\w])([\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


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
    for dots, name, names in imports(source, IMPORT):
        package = ".".join(module.split(".")[: -len(dots)])
        if not f"{package}.".startswith(f"{room}."):
            raise ImportError(f"{module} imports from outside of {room}", name=module)
        yield from modules(f"{package}.{name}" if name else package, names)
    for _, name, names in imports(source, OF_DECISIONS) if beside else ():
        yield from modules(beside + name, names)


def modules(found: str, names: list[str]) -> Iterator[str]:
    """Yield a module, or those of a folder that are named."""
    spec = find_spec(found)
    if spec is None or spec.submodule_search_locations is None:
        yield found
    else:
        yield from (f"{found}.{each}" for each in names)


def imports(source: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield of each `from ..name import names` its dots, or what stands for them, the name, and the names."""
    for before, name, names in pattern.findall(source):
        bare = re.sub(r"#.*", "", names).strip("() \n")
        yield before, name, [each.split()[0] for each in bare.split(",") if each.strip()]


@cache
def framed(name: str) -> bytes:
    """Return a program as BOOTSTRAP reads it."""
    return program.framed(pack(name))


def sent(name: str, payload: Any) -> bytes:
    """Return the whole standard input of a call: the program, and the payload behind it."""
    return framed(name) + json.dumps(payload).encode()
