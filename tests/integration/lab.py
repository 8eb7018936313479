"""A user inventory of sandbox machines: inventory/lab, filled in."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import yaml

from paths import ROOT, SANDBOX

if TYPE_CHECKING:
    from pathlib import Path

    from machines import Machine

KEY = SANDBOX / "id_ed25519"
SANDBOX_KNOWS = SANDBOX / "known_hosts"


def make_lab(folder: Path, nodes: dict[str, dict[str, Any]], **variables: Any) -> Path:
    """Write an inventory of these nodes that handles host keys like inventory/lab."""
    (folder / "group_vars").mkdir(parents=True)
    shutil.copy(ROOT / "inventory/lab/group_vars/gpu_nodes.yml", folder / "group_vars/gpu_nodes.yml")
    common = {
        "cluster_name": "lab",
        "ansible_user": "admin",
        "ansible_ssh_private_key_file": str(KEY),
        # Share no connection with other runs.
        "ansible_control_path": "none",
        **variables,
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"gpu_nodes": {"vars": common, "hosts": nodes}}))
    return folder


def at(*machines: Machine, **variables: Any) -> dict[str, dict[str, Any]]:
    """Return nodes for make_lab with the addresses of these machines."""
    return {machine.name: {"ansible_host": machine.address, **variables} for machine in machines}
