"""The environments of a node that get a kernel: the one place of the workbench that knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..pytorch.environments import places

if TYPE_CHECKING:
    from collections.abc import Mapping


def environments(cluster: Mapping[str, Any]) -> dict[str, str]:
    """Paths by name, which stay when another environment is built. cluster: a node's variables of that role."""
    return {place.name: place.path for place in places(cluster)}
