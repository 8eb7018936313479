#!/usr/bin/env python3
"""Write plugins/module_utils/muster_node/looks/subjects.py: the inspections needed for a node's health.

They come from LOOKS in the files of muster/health. Ansible copies only modules that are imported by name to a node, so
the list is generated. Run it with .venv-dev/bin/python after a change of LOOKS. A test compares the file with the
output of --show.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UTILS = ROOT / "plugins/module_utils"
TARGET = UTILS / "muster_node/looks/subjects.py"
TEXT = '''\
"""The data collectors of node health. Written by script/subjects.py from the LOOKS in muster/health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
{imports}
)

if TYPE_CHECKING:
    from types import ModuleType

LOOKS: dict[str, ModuleType] = {{
{entries}
}}
'''


def listing() -> str:
    """Return the text of the file."""
    sys.path.insert(0, str(UTILS))
    common = importlib.import_module("muster.health.facts").LOOKS
    subjects = importlib.import_module("muster.health.subjects").subjects()
    names = sorted({*common, *(look for subject in subjects.values() for look in subject.LOOKS)})
    return TEXT.format(
        imports="\n".join(f"    {name}," for name in names),
        entries="\n".join(f'    "{name}": {name},' for name in names),
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        sys.stdout.write(listing())
    else:
        TARGET.write_text(listing())
