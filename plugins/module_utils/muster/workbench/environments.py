"""The environments of a node that get a kernel: the one place of the workbench that knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .files import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping


def environments(cluster: Mapping[str, Any]) -> dict[str, str]:
    """Paths by name, which stay when another environment is built. cluster: a node's variables of that role."""
    # Where the site keeps a torchrun of its own, that is the default one.
    return {DEFAULT: cluster["cluster_torchrun"].rpartition("/")[0].rpartition("/")[0]}
