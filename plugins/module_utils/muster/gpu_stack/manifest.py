"""Build the as-installed manifest of a node: the packages of the GPU stack with their versions and sources."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = 1
UNKNOWN = "not in any configured repository of the node"


def manifest(node: str, facts: Mapping[str, Any], origins: Mapping[str, str]) -> dict[str, Any]:
    """Return the manifest. facts: facts of the node (inspect/facts.py), including the subject `stack`.

    The manifest contains no timestamps, so it changes only when the node changes.
    """
    system, stack = facts["system"], facts["stack"]
    devices = [device["id"] for device in facts["gpus"]["devices"]]
    return {
        "schema": SCHEMA,
        "node": node,
        "system": f"{system['id']}-{system['version']}",
        "kernel": stack["running"],
        "gpus": {device: devices.count(device) for device in sorted(set(devices))},
        "driver": {
            "loaded": stack["loaded"],
            "on_disk": {kernel: look["module"] for kernel, look in sorted(stack["kernels"].items()) if look["module"]},
        },
        "packages": {
            name: {"version": package["version"], "from": origins.get(name, UNKNOWN)}
            for name, package in sorted(stack["packages"].items())
            if package["state"] == "installed"
        },
    }


def origins(policy: str) -> dict[str, str]:
    """Return the source of each package's installed version. policy: output of apt-cache policy.

    The lines below the installed version (marked with ***) list its sources and their priorities. dpkg's status file is
    not counted as a source.
    """
    found: dict[str, str] = {}
    name, inside = "", False
    for line in policy.splitlines():
        head = re.match(r"(\S+):$", line)
        if head:
            name, inside = head[1], False
        elif line.startswith(" *** "):
            inside = True
        elif inside and (place := re.match(r" {8,}-?\d+ (\S+)( \S+)?", line)):
            if not place[1].startswith("/"):
                uri = re.sub(r"//[^/@]*@", "//", place[1]).rstrip("/")
                suite = (place[2] or "").strip()
                found.setdefault(name, uri if suite in ("", "Packages") else f"{uri} {suite}")
        else:
            inside = False
    return found


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two manifests are equal, ignoring the package sources, which change when a mirror changes."""
    return _without_origins(one) == _without_origins(other)


def _without_origins(given: Mapping[str, Any]) -> dict[str, Any]:
    packages = {name: package.get("version") for name, package in given.get("packages", {}).items()}
    return {**given, "packages": packages}
