"""Detects whether a node is the controller itself, which is never rebooted."""

from __future__ import annotations

from pathlib import Path

from muster.inspect.facts import machine_digest

MACHINE_ID = Path("/etc/machine-id")


def is_own_machine(digest: str) -> bool:
    """Return whether the node is the controller. digest: the digest of the node's machine id in its facts."""
    return bool(digest) and MACHINE_ID.exists() and digest == machine_digest(MACHINE_ID.read_text().strip())
