"""What nodes wrote: it is quoted, and no command in it is completed with our own program and inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .commands import COMMAND, playbook, whole
from .printable import SEQUENCE, UNSEEN, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

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
LONG = 100_000  # characters of a text that is searched as a whole
MARKS = ("ansible", "script/")  # one of them is in every command


def commands_in(value: Any) -> set[str]:
    """The commands in all texts of a node's answer, with their options, in each form in which they may be shown later:
    without control characters, and on one line. What is in ADVICE does not count."""
    return {
        whole(found) for text in _texts(value) for form in _forms(text) for found in COMMAND.finditer(form)
    } - ADVICE


def _texts(value: Any) -> Iterator[str]:
    """All texts of a value, however deep, and those of a list also as one, such as the words of a command line."""
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
    return found | {" ".join(form.split()) for form in found}


def _marked(text: str) -> str:
    """The lines in which a command may be: the others of a long text, such as a log, are not worth the time."""
    return "\n".join(line for line in text.splitlines() if any(mark in line for mark in MARKS))


def quote(text: str) -> str:
    """The text on one line, in quotation marks that end where it does."""
    return '"{}"'.format(" ".join(text.split()).replace('"', "'"))
