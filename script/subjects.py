#!/usr/bin/env python3
"""Write the lists of the subjects of a node's health, and of the inspections that they need.

The subjects are the files of muster/health with LOOKS and judge. Only modules that are imported by name are copied to a
node, so the lists are generated. Run it with .venv-dev/bin/python after a new subject or a change of LOOKS. A test
compares the files with the output of --show.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UTILS = ROOT / "plugins/module_utils"
SUBJECTS = UTILS / "muster/health/every_subject.py"
LOOKS = UTILS / "muster_node/looks/subjects.py"
TEXT = '''\
"""{title} Written by script/subjects.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
{imports}
)

if TYPE_CHECKING:
    from types import ModuleType

{name}: dict[str, ModuleType] = {{
{entries}
}}
'''


def listings() -> dict[Path, str]:
    """Return the text of each file."""
    sys.path.insert(0, str(UTILS))
    folder = SUBJECTS.parent
    modules = {
        path.stem: importlib.import_module(f"muster.health.{path.stem}") for path in sorted(folder.glob("[!_]*.py"))
    }
    subjects = {
        name: module for name, module in modules.items() if hasattr(module, "LOOKS") and hasattr(module, "judge")
    }
    common = importlib.import_module("muster.health.facts").LOOKS
    looks = sorted({*common, *(look for subject in subjects.values() for look in subject.LOOKS)})
    return {
        SUBJECTS: listing("SUBJECTS", "The subjects of a node's health.", list(subjects)),
        LOOKS: listing("LOOKS", "The data collectors of a node's health.", looks),
    }


def listing(name: str, title: str, modules: list[str]) -> str:
    return TEXT.format(
        title=title,
        name=name,
        imports="\n".join(f"    {module}," for module in modules),
        entries="\n".join(f'    "{module}": {module},' for module in modules),
    )


if __name__ == "__main__":
    for target, text in listings().items():
        if sys.argv[1:] == ["--show"]:
            sys.stdout.write(text)
        else:
            target.write_text(text)
