"""The launches of a cluster, as its nodes know them.

Asks every node which launches it has, in the system's manager of units and in users' own ones. So it does not matter
from which controller they were begun. Shows of each its id, its state, whose it is and who began it from where, its
nodes, how busy its GPUs are, since when, and the last lines of what the head node's ranks wrote. Who logs in as an
administrator sees all of them. A launch user sees their own, and of others that they are there. A node that does not
answer is named, and hides nothing of the others. Nothing is changed, and no lease renewed. Contacts every node by the
connection that the inventory gives it; use it with run_once.

jobs: Of each launch id, state in words, user, own (whether it is that user's own), and the nodes that know it.
silent: By node that did not say, why.
over: Whether the launch was over when its output had been shown.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster.launch.jobs import merge, outcome, table
from muster.launch.plan import PlanError
from muster_controller.launch.elsewhere import Heard, ask, find, opened, roots
from muster_controller.launch.following import Following
from muster_controller.nodes.connection import connect
from muster_controller.playbook.action import NO_NODES, ControllerAction, Options
from muster_controller.playbook.interruption import Interruption
from muster_controller.playbook.progress import Progress
from muster_controller.playbook.variables import node_variables

MOST_VERBOSE = 2  # with more, Ansible's ssh shows what nodes answer as it comes, and that is logs


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Includes finished launches whose logs are still on the nodes (cluster_run_keep).
        "history": {"type": "bool", "default": False},
        # Number of finished launches to read per owner and node.
        "newest": {"type": "int", "default": 20},
        # Number of output lines to show per launch.
        "lines": {"type": "int", "default": 2},
        # Id of a launch whose output is followed until it finishes or the user interrupts.
        "logs": {"type": "str", "default": ""},
        # Rank whose output logs shows. -1 shows all ranks and torchrun.
        "rank": {"type": "int", "default": 0},
    }

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
            state = "is over" if over else "still runs"
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
            raise AnsibleActionFail("No node said which launches it has. " + " ".join(silent(heard)))
        shown = [
            {"id": job.launch_id, "state": job.state, "user": job.user, "own": job.own, "nodes": list(job.here)}
            for job in jobs
        ]
        return {"jobs": shown, "silent": heard.silent, "outcome": outcome(jobs, heard.said, heard.silent)}


def silent(heard: Heard) -> list[str]:
    return [f"{name} did not say which launches it has: {why}" for name, why in heard.silent.items()]
