"""Parses torchrun's options from the command line of each node's launcher, which is untrusted input."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .case import LaunchCase

# Options that must be the same on all nodes of a launch, with their CLI names.
SHARED = {
    "nnodes": "--nnodes",
    "rdzv_id": "--rdzv-id",
    "rdzv_backend": "--rdzv-backend",
    "rdzv_endpoint": "--rdzv-endpoint",
    "master_addr": "--master-addr",
    "master_port": "--master-port",
}
OWN = {"node_rank": "--node-rank", "nproc_per_node": "--nproc-per-node"}
KNOWN = {**SHARED, **OWN}
HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,252}")


def is_host(text: str) -> bool:
    """Return whether a text from a log or a process is a valid host name or address."""
    return HOST.fullmatch(text) is not None


def arguments(argv: Sequence[str]) -> dict[str, str]:
    """Return the known options of torchrun, without the script and its arguments.

    An option can be spelled --node-rank or --node_rank. Its value can follow after "=" or as the next word.
    """
    found: dict[str, str] = {}
    words = iter(argv)
    for word in words:
        if not word.startswith("--"):
            if word.endswith(".py") and found:
                break
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if not equals and name in KNOWN:
            value = next(words, "")
        if name in KNOWN:
            found[name] = value
    return found


def told(case: LaunchCase) -> dict[str, dict[str, str]]:
    """Return the options of each node's launcher. Nodes whose options are unknown are left out."""
    found = {}
    for node in case.nodes:
        agents = case.seen["agents"].get(node, [])
        record = case.record(node)
        program = record["program"] if record else None
        known = arguments(agents[0]["argv"] if agents else program.get("argv", []) if program else [])
        if known:
            found[node] = known
    return found
