"""Shows the state of a cluster on one screen.

Inspects all nodes in parallel, with one program and one round trip per node. Shows which nodes are ready, the node
ranks, the users of each GPU (a launch and its user, or a process or notebook outside of launches), versions and version
differences, and quarantined nodes with the reason. Adds results of earlier runs: the last smoke test compared with the
accepted state, the last health check and the last drift check. A node that does not respond gets a row as well, and
delays the screen by at most wait seconds. Connects as configured in the inventory, without root. Exception: if a launch
runs on a node with idle GPUs, only root can see whether the launch holds the GPUs. In this case administrators use
root; launch users (role launch_users) never do. Items that were not checked are reported as unknown. The same data is
kept as JSON in artifacts/<cluster>/status.json.

status: The content of the screen, as described in docs/status.md.
closing: The last line of the output (text), and the status that determines the color of the line.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from muster.status.judge import StatusFacts, StatusNode, as_dict, quarantine, ranks_of, sentence, status
from muster.status.screen import screen
from muster_controller.artifacts.past_runs import past
from muster_controller.artifacts.runs import write_json
from muster_controller.nodes.connection import connect
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.interruption import Interruption
from muster_controller.playbook.screens import Screens, size
from muster_controller.playbook.variables import load_roles, read_values
from muster_controller.status.status_looks import Looks

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.status.judge import ClusterStatus

MOST_VERBOSE = 2  # at higher levels, Ansible's ssh prints the nodes' responses
READ = (
    *("cluster_name", "cluster_artifacts_dir", "cluster_gpus", "cluster_nproc_per_node", "cluster_quarantined"),
    *("cluster_launch_nodes", "cluster_torch_version", "cluster_torchrun", "cluster_run_root"),
)
KEPT = "status.json"  # in the cluster's folder, because it belongs to no run
STANDARD_OUTPUT = "-"
SHORTEST = 1.0  # seconds between two screens


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Refreshes the screen until interrupted.
        "watch": {"type": "bool", "default": False},
        # Refresh interval in seconds. Used with watch.
        "seconds": {"type": "float", "default": 5.0},
        # Additional JSON output file on the controller. - prints JSON instead of the screen; with watch, one line per
        # refresh.
        "json": {"type": "str", "default": ""},
        # Fails the task if a node is not ready.
        "gate": {"type": "bool", "default": False},
        # Time in seconds to wait for silent nodes after the first response.
        "wait": {"type": "float", "default": 2.0},
    }

    def work(self) -> dict[str, Any]:
        Display().verbosity = min(Display().verbosity, MOST_VERBOSE)
        known = list(self.task_vars["groups"].get("gpu_nodes", []))
        names = [name for name in known if name in self.task_vars["ansible_play_hosts_all"]]
        if not names:
            raise AnsibleActionFail("No nodes to check: gpu_nodes is empty, or --limit excludes all nodes.")
        roles = load_roles(self._loader, "cluster", "pytorch")
        values = {name: read_values(self.task_vars, self._templar, roles, name, READ) for name in known}
        first = values[known[0]]
        self.folder = Path(first["cluster_artifacts_dir"], first["cluster_name"])
        self.nodes = nodes_of(values)
        looks = Looks(
            {name: connect(self, name, self.task_vars) for name in names},
            {name: request(values[name]) for name in names},
            self.options["wait"],
        )
        try:
            seen = self.watched(looks) if self.options["watch"] else self.once(looks, lambda: False)
        finally:
            looks.close()
        return self.result(seen)

    # ------------------------------------------------------------ inspection

    def once(self, looks: Looks, give_up: Callable[[], bool]) -> ClusterStatus:
        done = looks.round(give_up)
        asked = [node for name, node in self.nodes.items() if name in looks.requests]
        seen = status(
            StatusFacts(
                cluster=self.folder.name,
                nodes=asked,
                **done._asdict(),
                past=past(self.folder),
                now=time.time(),
                time=time.strftime("%Y-%m-%d %H:%M:%S %Z"),
            )
        )
        if not give_up():
            self.keep(seen)
            if not self.options["watch"]:
                self.show(seen, Screens(Display(), again=False))
        return seen

    def watched(self, looks: Looks) -> ClusterStatus:
        """Refresh the screen until interrupted."""
        screens = Screens(Display(), again=True)
        pause = max(SHORTEST, self.options["seconds"])
        with (interruption := Interruption()):

            def over() -> bool:
                return interruption.came

            while True:
                began = time.monotonic()
                seen = self.once(looks, over)
                if not over() or not screens.drawn:
                    self.show(seen, screens)
                while not over() and time.monotonic() < began + pause:
                    time.sleep(0.05)
                if over():
                    screens.end()
                    return seen

    # ------------------------------------------------------------ messages

    def show(self, seen: ClusterStatus, screens: Screens) -> None:
        if self.options["json"] == STANDARD_OUTPUT:
            indent = None if self.options["watch"] else 2
            Display().display(json.dumps(as_dict(seen), indent=indent))
            screens.drawn += 1
            return
        width, height = size()
        screens.show(screen(seen, width, height - 1 if screens.redraws else 0))

    def keep(self, seen: ClusterStatus) -> None:
        """Write the JSON files. If a write fails, only warn, so that the screen is still shown."""
        given = self.options["json"]
        paths = [self.folder / KEPT]
        if given not in ("", STANDARD_OUTPUT):
            paths.append(Path(given).expanduser().absolute())
        for path in paths:
            try:
                write_json(path, as_dict(seen))
            except OSError as error:
                Display().warning(f"Cannot write the cluster status to {path}: {error.strerror}")

    def result(self, seen: ClusterStatus) -> dict[str, Any]:
        gated = self.options["gate"] and not seen.all_ready
        closing = {
            "status": "healthy" if seen.all_ready else "degraded",
            "text": f"NOT READY: {sentence(seen)}" if gated else sentence(seen),
            "aside": self.options["json"] == STANDARD_OUTPUT,
        }
        said = {"status": as_dict(seen), "closing": closing}
        return {**said, "failed": True, "msg": closing["text"]} if gated else said


def nodes_of(values: dict[str, dict[str, Any]]) -> dict[str, StatusNode]:
    """Return all nodes of the inventory, because --limit does not change node ranks."""
    out = {name: quarantine(own["cluster_quarantined"]) for name, own in values.items()}
    chosen = next(iter(values.values()))["cluster_launch_nodes"]
    ranks = ranks_of(
        {
            name: own["cluster_nproc_per_node"]
            for name, own in values.items()
            if out[name] is None and (not chosen or name in chosen)
        }
    )
    return {
        name: StatusNode(name, own["cluster_gpus"], ranks.get(name, ()), out[name], own["cluster_torch_version"])
        for name, own in values.items()
    }


def request(own: dict[str, Any]) -> dict[str, Any]:
    environment = str(Path(own["cluster_torchrun"]).parents[1]) if "/" in own["cluster_torchrun"] else ""
    return {"environment": environment, "run_root": own["cluster_run_root"]}
