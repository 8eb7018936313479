"""Fragments that document options of several modules: those of a role, as `role_options.launch`, and common ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parents[2] / "roles"


def fragment(role: str, *only: str, **renamed: str) -> str:
    """Return the options that a role declares, in the format of module documentation.

    only: names of the options to return; if empty, all options. renamed: options that have another name in the module.
    """
    specs = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    declared: dict[str, dict[str, Any]] = specs["argument_specs"]["main"]["options"]
    names = {name: renamed.get(name, name.removeprefix(f"{role}_")) for name in declared}
    names = {name: own for name, own in names.items() if not only or own in only}
    known = re.compile(rf"\b({'|'.join(names)})\b")

    def described(option: dict[str, Any]) -> list[str]:
        texts = option["description"]
        paragraphs = [texts] if isinstance(texts, str) else texts
        return [known.sub(lambda found: f"O({names[found[0]]})", text) for text in paragraphs]

    options = {own: {**declared[name], "description": described(declared[name])} for name, own in names.items()}
    return yaml.safe_dump({"options": options})


PYTORCH = ("variant", "python", "index_url", "extra_index_urls", "find_links", "source_builds", "keep", "full_look")


class ModuleDocFragment:
    FIREWALL = fragment("firewall")
    LAUNCH = fragment("launch", launch_args="script_args", launch_as="run_as")
    LAUNCH_USERS = fragment("launch_users", "memlock", "nofile", "tasks")
    PYTORCH = fragment("pytorch", *PYTORCH)
    SHARED_DATA = fragment("shared_data", "mounts", "scratch", "scratch_gb")
    NODE = """
options:
  node:
    description: Name of the node in the inventory, used in messages.
    type: str
    required: true
"""
    MODE = """
options:
  mode:
    description: V(manage) makes the changes that are needed. V(verify) changes nothing and fails if changes are needed.
    type: str
    choices: [manage, verify]
    default: manage
"""
    POSIX = """
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""
    DEBIAN = """
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: debian}
"""
