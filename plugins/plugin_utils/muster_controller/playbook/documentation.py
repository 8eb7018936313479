"""The options of a module as its documentation declares them, for its action plugin: a default stands there alone."""

from __future__ import annotations

import ast
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

from .variables import project_root

SPECIFIES = ("type", "required", "default", "choices", "elements", "aliases")


def documented_options(module: str) -> dict[str, dict[str, Any]]:
    """Read what ansible's validation of arguments wants to know of each option from library/MODULE.py."""
    source = (project_root() / "library" / f"{module}.py").read_text(encoding="utf-8")
    texts = {
        ast.unparse(statement.targets[0]): ast.literal_eval(statement.value)
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
    }
    options = yaml_load(texts["DOCUMENTATION"]).get("options", {})
    return {name: specified(option) for name, option in options.items()}


def specified(option: dict[str, Any]) -> dict[str, Any]:
    """What of a documented option is not for people alone."""
    spec = {key: value for key, value in option.items() if key in SPECIFIES}
    if "suboptions" in option:
        spec["options"] = {name: specified(inner) for name, inner in option["suboptions"].items()}
    return spec
