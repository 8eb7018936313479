"""What nodes wrote: it is quoted, and no command in it is completed with our own program and inventory."""

from __future__ import annotations

from typing import Any

from .commands import COMMAND, playbook, whole
from .printable import UNSEEN, printable

# What our own modules and programs advise from a node, word for word: all of them run a step again as it is.
ADVICE = frozenset(
    (
        playbook("playbooks/baseline.yml"),
        playbook("playbooks/network.yml"),
        playbook("playbooks/network.yml", ssh_mesh_mode="manage"),
        playbook("site.yml", tags="baseline"),
        playbook("site.yml", tags="baseline", node_baseline_mode="manage"),
        playbook("site.yml", tags="baseline", package_sources_mode="manage"),
        playbook("site.yml", tags="gpu_stack", container_toolkit_mode="manage"),
        playbook("site.yml", tags="gpu_stack", cuda_toolkit_mode="manage"),
        playbook("site.yml", tags="gpu_stack", dcgm_mode="manage"),
        playbook("site.yml", tags="gpu_stack", nccl_mode="manage"),
        playbook("site.yml", tags="gpu_stack", rdma_mode="manage"),
        playbook("site.yml", tags="launch_users", launch_users_mode="manage"),
        playbook("site.yml", tags="network", cluster_hosts_mode="manage"),
        playbook("site.yml", tags="network", shared_data_mode="manage"),
        playbook("site.yml", tags="workbench", workbench_mode="manage"),
    )
)
MARKS = ("ansible", "script/")  # one of them is in every command


def commands_in(value: Any) -> set[str]:
    """The commands in all texts of a node's answer, with their options, in each form in which they may be shown later:
    without control characters, and on one line. What is in ADVICE does not count."""
    if isinstance(value, dict):
        return {found for part in value.items() for found in commands_in(part)}
    if isinstance(value, (list, tuple)):
        words = " ".join(part for part in value if isinstance(part, str))
        return {found for part in (*value, words) for found in commands_in(part)}
    if not isinstance(value, str):
        return set()
    bare = UNSEEN.sub("", value)
    if not any(mark in bare for mark in MARKS):
        return set()
    forms = {form for text in (value, printable(value), bare) for form in (text, " ".join(text.split()))}
    return {whole(found) for form in forms for found in COMMAND.finditer(form)} - ADVICE


def quote(text: str) -> str:
    """The text on one line, in quotation marks that end where it does."""
    return '"{}"'.format(" ".join(text.split()).replace('"', "'"))
