"""Lists the launches that the nodes of a cluster report.

Queries systemd's system manager and the user managers on every node, and therefore finds launches from any controller.
Shows for each launch its id, state, user, the user and controller that started it, nodes, GPU utilization, start time,
and the last output lines of the head node's ranks. An administrator sees all launches. Launch users see details only of
their own launches. A node that does not respond is named and does not affect the list for other nodes. Changes nothing
and renews no lease. Contacts every node with the connection settings of the inventory; use it with run_once.

jobs: For each launch id, the state as text, the user, own (whether it is a user launch), and the nodes that report it.
silent: For each node that did not respond, the reason.
over: Whether the launch had finished when the command stopped following its output.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from muster.launch.jobs import merge, outcome, table
from muster.launch.plan import PlanError
from muster_controller.launch.elsewhere import Heard, ask, find, opened, roots
from muster_controller.launch.following import Following
from muster_controller.nodes.connection import connect
from muster_controller.playbook.action import NO_NODES, ControllerAction, Options
from muster_controller.playbook.interruption import Interruption
from muster_controller.playbook.progress import Progress
from muster_controller.playbook.variables import node_variables

MOST_VERBOSE = 2  # at higher levels, Ansible's ssh prints the nodes' raw responses, which are logs


class ActionModule(ControllerAction):
    ROLE = "jobs"
    OPTIONS: ClassVar[Options] = {}

    def work(self) -> dict[str, Any]:
        Display().verbosity = min(Display().verbosity, MOST_VERBOSE)
        nodes = list(self.task_vars["groups"].get("gpu_nodes", []))
        if not nodes:
            raise AnsibleActionFail(NO_NODES)
        cluster = node_variables(self.task_vars, self._templar, self._loader, nodes[0])
        messages = opened({name: connect(self, name, self.task_vars) for name in nodes})
        progress = Progress(Display(), show_rank=None)
        if self.options["logs"]:
            try:
                found = find(messages, nodes, self.options["logs"], cluster)
            except PlanError as exc:
                raise AnsibleActionFail(" ".join(exc.problems)) from exc
            with (interruption := Interruption()):
                following = Following(found.plan, messages, progress.say, self.options["rank"])
                over = following.follow(lambda: interruption.came)
            progress.finish()
            state = "has finished" if over else "is still running"
            return {"over": over, "outcome": f"{self.options['logs']} {state}"}
        request = {
            **roots(cluster),
            "ended": self.options["newest"] if self.options["history"] else 0,
            "lines": self.options["lines"],
        }
        heard = ask(messages, nodes, "jobs", request)
        jobs = merge(heard.said)
        for line in [*table(jobs, heard.said, self.options["lines"]), *silent(heard)]:
            progress.say(line)
        progress.finish()
        if not heard.said:
            raise AnsibleActionFail("No node reported its launches. " + " ".join(silent(heard)))
        shown = [
            {"id": job.launch_id, "state": job.state, "user": job.user, "own": job.own, "nodes": list(job.here)}
            for job in jobs
        ]
        return {"jobs": shown, "silent": heard.silent, "outcome": outcome(jobs, heard.said, heard.silent)}


def silent(heard: Heard) -> list[str]:
    return [f"{name} did not report its launches: {why}" for name, why in heard.silent.items()]
