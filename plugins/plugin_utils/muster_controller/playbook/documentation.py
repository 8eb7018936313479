"""Options that a module's documentation or a role declares, for the actions that accept these options."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.common.yaml import yaml_load
from ansible.plugins.loader import fragment_loader
from ansible.utils.plugin_docs import get_docstring

from .variables import project_root

EMPTY: dict[str, Any] = {"bool": False, "dict": {}, "int": 0, "list": []}  # by type; others are text
SPECIFIES = ("type", "required", "default", "choices", "elements", "aliases")


def documented_options(module: str) -> dict[str, dict[str, Any]]:
    """Return the options of library/MODULE.py in the format of Ansible's argument validation."""
    path = project_root() / "library" / f"{module}.py"
    documentation = get_docstring(str(path), fragment_loader, is_module=True)[0]
    return {name: specified(option) for name, option in documentation.get("options", {}).items()}


def role_options(role: str) -> dict[str, dict[str, Any]]:
    """Return the options that a role declares, in the same format as module_options and without the role's prefix.

    Only the role evaluates a default that is a template. Outside the role, the default is empty.
    """
    path = project_root() / "roles" / role / "meta/argument_specs.yml"
    specs = yaml_load(path.read_text(encoding="utf-8"))["argument_specs"]
    declared = {name.removeprefix(f"{role}_"): specified(one) for name, one in specs["main"]["options"].items()}
    for spec in declared.values():
        if "{{" in str(spec.get("default")):
            spec["default"] = None if "choices" in spec else EMPTY.get(spec["type"], "")
    return declared


def specified(option: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a documented option that the argument validation uses."""
    spec = {key: value for key, value in option.items() if key in SPECIFIES}
    if "suboptions" in option:
        spec["options"] = {name: specified(inner) for name, inner in option["suboptions"].items()}
    return spec
