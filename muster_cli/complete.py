"""Values for shell completion, read from the inventory and the artifacts folder. Contacts no node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from . import clusters

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .verbs import VerbSource

LAUNCH = re.compile(r"\d{8}-\d{6}-\w+")


def values(project: VerbSource, kind: str, cluster: str) -> list[str]:
    """Return nodes, launches or environments of a cluster; nothing if the cluster is unknown."""
    try:
        inventory = clusters.chosen(cluster, clusters.registered(project.root))
    except clusters.UnknownClusterError:
        return []
    if kind == "nodes":
        return sorted({name for file in clusters.FILES for name in hosts(parsed(inventory / file))})
    if kind == "launches":
        folder = clusters.state(project.root) / "artifacts" / inventory.name
        return sorted((one.name for one in folder.glob("2*") if LAUNCH.fullmatch(one.name)), reverse=True)
    values = parsed(inventory / "group_vars/all.yml")
    named = [values.get(option) for option in ("cluster_environments", "cluster_own_environments")]
    return sorted(name for one in named if isinstance(one, dict) for name in one)


def parsed(path: Path) -> dict[str, Any]:
    """Return a YAML mapping; empty for anything else, such as a file with vault values."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def hosts(groups: Any) -> Iterator[str]:
    """Yield the hosts of groups and their children."""
    for group in groups.values() if isinstance(groups, dict) else ():
        if isinstance(group, dict):
            yield from map(str, group.get("hosts") or ())
            yield from hosts(group.get("children"))
