#!/usr/bin/env python3
"""Write the generated parts of docs/changes.md: what each role puts on a node, what stays, and lines of code.

The names come from roles/wipe/files/owned.yml and the vars of the roles. Run it with .venv-dev/bin/python after a
change of them. A test compares the file with the output of --show. --names prints the names of the page as JSON.
"""

from __future__ import annotations

import importlib
import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "plugins/module_utils"))
TARGET = ROOT / "docs/changes.md"
END = "<!-- end of it -->"
STAYS = "stays"
PARTS = (
    *("plugins/module_utils/muster_node", "library", "roles", "plugins/module_utils/muster"),
    *("plugins/plugin_utils/muster_controller", "plugins/action", "muster_cli"),
)


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / "roles" / name).read_text(encoding="utf-8"))


def declared() -> dict[str, dict[str, dict[str, str]]]:
    """Return, by role and kind of change, the names with their remarks."""
    known: dict[str, Any] = {}
    for path in sorted(ROOT.glob("roles/*/vars/main.yml")):
        known.update(read(str(path.relative_to(ROOT / "roles"))) or {})
    return {
        role: {
            kind: {name: remark for entry, remark in entries.items() for name in names(known.get(entry, entry), known)}
            for kind, entries in kinds.items()
        }
        for role, kinds in read("wipe/files/owned.yml").items()
    }


def names(value: Any, known: dict[str, Any]) -> list[str]:
    """Return the names in a variable of a role, such as a list of files or packages. Options have their default
    values, as in default('/var/lib')."""
    if isinstance(value, str):
        variable = re.fullmatch(r"\{\{ (\w+) \}\}", value)
        if variable:
            return names(known[variable[1]], known)
        plain = re.sub(r"\{\{ \w+ \| default\('([^']*)'(?:, true)?\) \}\}", r"\1", value)
        plain = re.sub(r"\{\{ (_\w+) \}\}", lambda found: str(known[found[1]]), plain)
        return plain.split("|")
    if isinstance(value, dict):
        named = [value[key] for key in ("path", "key", "name", "of") if key in value]
        value = named or [*value.values()]
    return list(dict.fromkeys(name for one in value for name in names(one, known)))


def page() -> str:
    """Return the page. Raises ValueError if a mark is missing."""
    text = TARGET.read_text(encoding="utf-8")
    own = declared()
    stays = own.pop(STAYS)
    parts = {"code": lines(), "roles": "\n".join(map(section, own, own.values())), STAYS: table(stays)}
    for name, part in parts.items():
        before, mark, after = text.partition(f"<!-- {name}: written by script/changes.py -->\n")
        if END not in after:
            raise ValueError(f"{TARGET.name} has no mark for {name}, or no end of it")
        text = f"{before}{mark}\n{part}\n{END}{after.partition(END)[2]}"
    return text


def lines() -> str:
    count = runpy.run_path(str(ROOT / "script/size"))["count"]()[0]
    rows = [f"| `{part}` | {round(count[part], -3):,} |" for part in PARTS]
    return "\n".join(["| part | lines of code, about |", "|---|---|", *rows, ""])


def section(role: str, kinds: dict[str, dict[str, str]]) -> str:
    purpose = next(iter(read(f"{role}/meta/argument_specs.yml")["argument_specs"].values()))["short_description"]
    texts = read("wipe/files/undo.yml")
    undo: dict[str, list[str]] = {}
    for kind in kinds:
        text = importlib.import_module("muster.road.changes").undo_of(role, kind, texts)
        undo.setdefault(text.replace(texts["default"], "[wipe](retire.md#wipe)"), []).append(kind)
    ways = "".join(f"- To undo {', '.join(there)}: {text}\n" for text, there in undo.items())
    return f"### {role}\n\n{purpose}.\n\n{table(kinds)}\n{ways}"


def table(kinds: dict[str, dict[str, str]]) -> str:
    """Return one row for each kind and remark."""
    rows = ["| kind | names | remark |", "|---|---|---|"]
    for kind, entries in kinds.items():
        for remark in dict.fromkeys(entries.values()):
            there = ", ".join(f"`{name}`" for name in entries if entries[name] == remark)
            rows.append(f"| {kind} | {there} | {remark} |")
    return "\n".join([*rows, ""])


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        sys.stdout.write(page())
    elif sys.argv[1:] == ["--names"]:
        print(json.dumps(declared()))
    else:
        TARGET.write_text(page(), encoding="utf-8")
