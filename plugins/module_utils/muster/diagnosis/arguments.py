"""Parses the options of torchrun and other launchers from the command line of each node's launcher, which is untrusted
input."""

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
    "world_size": "world size",
}
OWN = {"node_rank": "--node-rank", "nproc_per_node": "--nproc-per-node"}
# Options of accelerate launch and deepspeed, by their meaning for torchrun.
OF_OTHERS = {
    "num_machines": "nnodes",
    "num_nodes": "nnodes",
    "machine_rank": "node_rank",
    "main_process_ip": "master_addr",
    "main_process_port": "master_port",
    "num_processes": "world_size",
    "num_gpus": "nproc_per_node",
}
KNOWN = {**{name: name for name in (*SHARED, *OWN)}, **OF_OTHERS}
HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,252}")


def is_host(text: str) -> bool:
    """Return whether a text from a log or a process is a valid host name or address."""
    return HOST.fullmatch(text) is not None


def arguments(argv: Sequence[str]) -> dict[str, str]:
    """Return the known options of a launcher under torchrun's names, without the script and its arguments.

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
            found[KNOWN[name]] = value
    return found


def told(case: LaunchCase) -> dict[str, dict[str, str]]:
    """Return the options of each node's launcher. Nodes whose options are unknown are left out."""
    found = dict(case.seen.get("told", {}))
    for node in case.nodes:
        agents = case.seen["agents"].get(node, [])
        record = case.record(node)
        program = record["program"] if record else None
        known = arguments(agents[0]["argv"] if agents else program.get("argv", []) if program else [])
        if known:
            found[node] = known
    return found
