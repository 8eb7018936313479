#!/usr/bin/env python3
"""Write inventory/lab/group_vars/all.yml: every option that a user may set, commented out, at its default.

The options and their meaning come from the roles' argument_specs. Run it with .venv/bin/python after a change there;
a test holds the file equal to what this prints with --show.
"""

from __future__ import annotations

import importlib
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "inventory/lab/group_vars/all.yml"
# The sandbox has an inventory of its own.
NOT_FOR_A_LAB = ("sandbox",)
HEAD = """\
---
# Every option of Muster, commented out, at its default. To change one, take away its "# " and edit the value.
# What holds for one node only, such as cluster_gpus, is written under its name in hosts.yml instead.
# Written by script/lab_options.py from the roles' meta/argument_specs.yml.
"""


def lab_options() -> str:
    """Return the text of the file."""
    roles = [path.parents[1].name for path in ROOT.glob("roles/*/meta/argument_specs.yml")]
    sys.path.insert(0, str(ROOT / "plugins/module_utils"))
    steps = importlib.import_module("muster.road.steps").STEPS
    order = [role for step in steps for role in step.roles]
    roles.sort(key=lambda role: (order.index(role) if role in order else len(order), role))
    return HEAD + "".join(_role(role) for role in roles if role not in NOT_FOR_A_LAB)


def _role(role: str) -> str:
    specs = yaml.safe_load((ROOT / "roles" / role / "meta/argument_specs.yml").read_text())
    main = next(iter(specs["argument_specs"].values()))
    rule = "#" * 120
    options = "".join(_option(name, option) for name, option in main.get("options", {}).items())
    return f"\n{rule}\n# {role}: {main['short_description']}\n{rule}\n{options}"


def _option(name: str, option: dict[str, Any]) -> str:
    description = option["description"]
    meaning = description if isinstance(description, str) else " ".join(description)
    if "choices" in option:
        meaning += f" One of {', '.join(map(str, option['choices']))}."
    lines = textwrap.wrap(meaning, width=120, initial_indent="# ", subsequent_indent="# ")
    # JSON is YAML on one line, with every text in quotes.
    return "\n".join(["", *lines, f"# {name}: {json.dumps(option.get('default'), ensure_ascii=False)}", ""])


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        sys.stdout.write(lab_options())
    else:
        TARGET.write_text(lab_options())
