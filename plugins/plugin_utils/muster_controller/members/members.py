"""Shared code of the actions that change the members of the cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ansible import context
from ansible.errors import AnsibleActionFail

from muster.launch.jobs import merge, who
from muster.members import quarantine
from muster.members.quarantine import OPTION, SINCE
from muster.verdict.words import few
from muster_controller.artifacts.record import operator
from muster_controller.launch.elsewhere import ask, opened, roots
from muster_controller.nodes.asking import ask_nodes
from muster_controller.nodes.connection import connect
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.command_line import chosen_tags
from muster_controller.playbook.variables import node_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster_controller.launch.elsewhere import Heard
    from muster_controller.nodes.asking import NodeAnswer
    from muster_controller.playbook.action import ControllerAction

MEMBERS = NodeProgram("members")


class Members:
    """The nodes of the inventory, with their variables and connections."""

    def __init__(self, action: ControllerAction, task_vars: Mapping[str, Any]) -> None:
        self.action = action
        self.task_vars = task_vars
        self.sources: tuple[str, ...] = tuple(context.CLIARGS.get("inventory") or ())
        names = task_vars["groups"].get("gpu_nodes", [])
        self.nodes = {name: node_variables(task_vars, action._templar, action._loader, name) for name in names}

    @property
    def first(self) -> Mapping[str, Any]:
        return next(iter(self.nodes.values()), {})

    @property
    def chosen(self) -> list[str]:
        return list(self.first.get("cluster_launch_nodes") or [])

    def taking_part(self, without: Sequence[str] = (), again: Sequence[str] = ()) -> list[str]:
        """Return the nodes that take part in launches. without: nodes to exclude. again: quarantined nodes to
        include."""
        return [
            name
            for name, own in self.nodes.items()
            if name not in without and (name in again or not own[OPTION]) and (not self.chosen or name in self.chosen)
        ]

    def ask(self, verb: str, requests: Mapping[str, dict[str, Any]]) -> dict[str, NodeAnswer]:
        """Send one verb of the program members to all these nodes."""
        return ask_nodes(self.action, MEMBERS, verb, requests)

    def launches(self, asked: Sequence[str], names: Sequence[str]) -> tuple[dict[str, str], Heard]:
        """Return sentences about running launches that use any of `names`, by launch id, and the responses of the
        queried nodes."""
        messages = opened({name: connect(self.action, name, self.task_vars) for name in asked})
        heard = ask(messages, list(asked), "jobs", {**roots(self.first), "ended": 0, "lines": 0})
        messages.close()
        found = {}
        for job in merge(heard.said):
            told = job.first("nodes", list) or []
            of_ours = [name for name in names if name in told or name in job.here]
            if of_ours and not job.over:
                found[job.launch_id] = f"{few(of_ours)}: launch {job.launch_id} of {who(job)} is running"
        return found, heard


def refuse(why: Sequence[str]) -> None:
    """Stop the run if there is a reason."""
    if why:
        raise AnsibleActionFail("\n".join(["Nothing was changed.", *why]))


def refuse_part(why: str) -> None:
    """Reject --limit and tags. The first play does so, too, unless --skip-tags always skipped it."""
    if context.CLIARGS.get("subset") or chosen_tags() != (["all"], []):
        refuse([f"Run it without --limit and tags: {why}."])


def quarantine_entry(reason: str, *, automatic: bool = False) -> dict[str, Any]:
    """Return the value of cluster_quarantined for a node that is quarantined for this reason."""
    by = f"the health check of {operator()}" if automatic else operator()
    return quarantine.entry(reason, by, time.strftime(SINCE, time.gmtime()), automatic=automatic)


def quarantined(reason: str) -> dict[str, Any]:
    """Return the quarantine as variables of the node."""
    return {OPTION: quarantine_entry(reason)}


def quarantine_said(value: Any) -> tuple[bool, str]:
    """Read the value of cluster_quarantined. Return whether the node is quarantined, and the reason."""
    return bool(value), str(value["reason"]) if isinstance(value, dict) else ""
