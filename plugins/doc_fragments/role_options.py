"""Options of roles in the documentation of the modules that have the same: `role_options.launch`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parents[2] / "roles"


def fragment(role: str, **renamed: str) -> str:
    """Return what the role declares, as a module's documentation has it. renamed: options that are named otherwise."""
    specs = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    declared: dict[str, dict[str, Any]] = specs["argument_specs"]["main"]["options"]
    names = {name: renamed.get(name, name.removeprefix(f"{role}_")) for name in declared}
    known = re.compile(rf"\b({'|'.join(names)})\b")

    def described(option: dict[str, Any]) -> list[str]:
        texts = option["description"]
        paragraphs = [texts] if isinstance(texts, str) else texts
        return [known.sub(lambda found: f"O({names[found[0]]})", text) for text in paragraphs]

    options = {names[name]: {**option, "description": described(option)} for name, option in declared.items()}
    return yaml.safe_dump({"options": options})


class ModuleDocFragment:
    FIREWALL = fragment("firewall")
    LAUNCH = fragment("launch", launch_args="script_args", launch_as="run_as")
