"""Packs a node program and the tools that it imports into one text, which runs with any Python 3.10+.

The controller uses NodeProgram (plugin_utils/muster_controller/nodes/program.py). Data collectors use this module to
run a program as another user, in a unit, or with another interpreter on the node.
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
# The package with the decisions, by the name under which code on nodes imports it.
DECIDES = "ansible.module_utils.muster"
# Parsing with ast takes twenty times as long. A test checks that both find the same imports.
IMPORT = re.compile(r"^ *from (\.+)([\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
OF_DECISIONS = re.compile(rf"^ *from ({re.escape(DECIDES)})(?![\w])([\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


@cache
def pack(name: str) -> str:
    """Return a program as one text, which can also be run as a file. name: the program's module name, as imported
    here."""
    room = name.rsplit(".", 2)[0]
    beside = f"{room.removesuffix(ROOM)}muster"  # the package with the decisions in this process
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
        raise ModuleNotFoundError(f"the source of {module} is not available", name=module)
    return str(source)


def imported(module: str, source: str, room: str, beside: str = "") -> Iterator[str]:
    """Yield the modules of a package (room) that a module imports. Such imports have the form `from .. import x` or
    `from ..y import x`.

    beside: the package with the decision code, which is imported by its full name.
    """
    for dots, name, names in imports(source, IMPORT):
        package = ".".join(module.split(".")[: -len(dots)])
        if not f"{package}.".startswith(f"{room}."):
            raise ImportError(f"{module} imports from outside of {room}", name=module)
        yield from modules(f"{package}.{name}" if name else package, names)
    for _, name, names in imports(source, OF_DECISIONS) if beside else ():
        yield from modules(beside + name, names)


def modules(found: str, names: list[str]) -> Iterator[str]:
    """Yield the module itself, or the imported modules if it is a package."""
    spec = find_spec(found)
    if spec is None or spec.submodule_search_locations is None:
        yield found
    else:
        yield from (f"{found}.{each}" for each in names)


def imports(source: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, str, list[str]]]:
    """For each `from ..name import names`, yield the dots (or their substitute), the name, and the imported names."""
    for before, name, names in pattern.findall(source):
        bare = re.sub(r"#.*", "", names).strip("() \n")
        yield before, name, [each.split()[0] for each in bare.split(",") if each.strip()]


@cache
def framed(name: str) -> bytes:
    """Return a packed program in the format that BOOTSTRAP reads."""
    return program.framed(pack(name))


def sent(name: str, payload: Any) -> bytes:
    """Return the standard input for a call: the program, followed by the payload."""
    return framed(name) + json.dumps(payload).encode()
