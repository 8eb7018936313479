"""Handles text written by nodes. Such text is quoted, and commands in it are not completed with the program and the
inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .commands import COMMAND, playbook, whole
from .printable import SEQUENCE, UNSEEN, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

# Commands that Muster's own modules and programs print on nodes, verbatim: each only runs a step again.
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
        playbook("site.yml", tags="slurm", slurm_mode="manage"),
        playbook("site.yml", tags="watch", monitoring_mode="manage"),
        playbook("site.yml", tags="watch", watch_mode="manage"),
        playbook("site.yml", tags="workbench", workbench_mode="manage"),
    )
)
LONG = 100_000  # characters; longer texts are searched only in lines with a mark
MARKS = ("ansible", "script/")  # every command contains one of them


def commands_in(value: Any) -> set[str]:
    """Return the commands, with their options, in all texts of a node's answer, except those in ADVICE. Each command is
    returned in every form in which it can be shown later: without control characters, on one line, and quoted."""
    return {
        whole(found) for text in _texts(value) for form in _forms(text) for found in COMMAND.finditer(form)
    } - ADVICE


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of a nested value. The texts of a list are also yielded joined, because they can be the words of
    a command line."""
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            left += [*part, *part.values()]
        elif isinstance(part, (list, tuple)):
            left += part
            yield " ".join(one for one in part if isinstance(one, str))


def _forms(text: str) -> set[str]:
    forms = {text}
    if UNSEEN.search(text):
        forms |= {printable(text), UNSEEN.sub("", text), UNSEEN.sub("", SEQUENCE.sub("", text))}
    found = {form if len(form) <= LONG else _marked(form) for form in forms if any(mark in form for mark in MARKS)}
    found |= {" ".join(form.split()) for form in found}
    return found | {form.replace('"', "'") for form in found}


def _marked(text: str) -> str:
    """Return the lines that may contain a command, because a search of all lines of a long log would take too long."""
    return "\n".join(line for line in text.splitlines() if any(mark in line for mark in MARKS))


def quote(text: str) -> str:
    """Return the text on one line in double quotes. Double quotes within the text are replaced."""
    return '"{}"'.format(" ".join(text.split()).replace('"', "'"))
