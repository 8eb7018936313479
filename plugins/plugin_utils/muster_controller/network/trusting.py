"""Makes first contact with many nodes from an action: compares host keys, prompts once, and pins new keys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.utils.display import Display

from muster.network import known_hosts, trust
from muster_controller.nodes.connection import connect
from muster_controller.playbook.variables import node_variables
from muster_node.tools import files

from .first_contact import Road, meet, read, road_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible.plugins.action import ActionBase

AT_ONCE = 32


@dataclass(frozen=True)
class HostKeyChanges:
    """rows: the decision about each host key. project: the path of the known_hosts file. before, after: the text of
    this file; in check mode, the file is not written."""

    rows: Sequence[trust.HostKeyDecision]
    project: str
    before: str
    after: str

    @property
    def result(self) -> dict[str, Any]:
        changed = self.after != self.before
        found = {"changed": changed, "nodes": [told(row) for row in self.rows]}
        if changed:
            headers = {"before_header": self.project, "after_header": self.project}
            found["diff"] = {"before": self.before, "after": self.after, **headers}
        return found


def compare_and_pin(
    action: ActionBase,
    task_vars: Mapping[str, Any],
    names: Sequence[str],
    project: str,
    *,
    confirmed: bool,
    replace: Sequence[str] = (),
    again: str,
) -> HostKeyChanges:
    """Compare and pin the host keys. names: the nodes of the play. again: the command to show if no user can answer the
    prompt."""
    rows = look(action, task_vars, names, project, list(replace))
    before = read(project)
    say("\n".join(trust.table(rows)))
    for line in trust.leftover_lines(known_hosts.left_behind(before, task_vars["groups"]["gpu_nodes"]), project):
        say(line)
    if not action._task.check_mode and not confirmed:
        confirm(rows, again)
    after = before
    for row in rows:
        if row.action in ("pin", "ask") and row.key:
            after = known_hosts.pinned(after, row.node, row.host, row.key, replace=row.replace)
    if after != before and not action._task.check_mode:
        write(project, after)
    return HostKeyChanges(rows, project, before, after)


def look(
    action: ActionBase, task_vars: Mapping[str, Any], names: Sequence[str], project: str, replace: list[str]
) -> list[trust.HostKeyDecision]:
    roads = [road(action, task_vars, name) for name in names]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # Ansible keeps the current task in a context variable, which threads do not inherit.
        looks = [pool.submit(copy_context().run, meet, one, project, replace) for one in roads]
        return [one.result() for one in looks]


def road(action: ActionBase, task_vars: Mapping[str, Any], name: str) -> Road:
    """Return the arguments with which Ansible would call ssh for the node."""
    wanted = node_variables(task_vars, action._templar, action._loader, name)["cluster_host_key"]
    return road_to(name, connect(action, name, task_vars).connection, wanted)


def confirm(rows: Sequence[trust.HostKeyDecision], again: str) -> None:
    """Ask the user to trust the new keys. Raises AnsibleActionFail if the user does not."""
    question = trust.question(rows)
    if not question:
        return
    try:
        answer = Display().prompt_until(f"\n{question} [yes/no]")
    except AnsibleError:  # no terminal, the terminal of another session (su -c), or Ctrl-C
        raise AnsibleActionFail(f"Nothing was pinned. {question} Check the keys, then run: {again}") from None
    if answer.decode(errors="replace").strip().lower() not in ("y", "yes"):
        raise AnsibleActionFail(f"Nothing was pinned. Check the keys, then run: {again}")


def told(row: trust.HostKeyDecision) -> dict[str, str]:
    key = row.key
    return {
        "node": row.node,
        "address": row.address,
        "type": key.type if key else "",
        "fingerprint": key.fingerprint if key else "",
        "state": row.state,
        "why": row.why,
    }


def say(text: str) -> None:
    if text:
        Display().display(text)


def write(path: str, text: str) -> None:
    """Write the file atomically, readable by all users because it contains no secrets."""
    files.replace(path, text.encode("utf-8", "surrogateescape"), mode=0o644)
