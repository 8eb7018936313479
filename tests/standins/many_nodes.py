"""Simulate many nodes: Ansible's real SSH connections run a stub of the ssh program, which answers.

Run as a program, this module supervises a launch on the given number of nodes and prints the result and the cost:

    PYTHONPATH=... python tests/standins/many_nodes.py FOLDER NODES SECONDS
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader, init_plugin_loader

from launch_shapes import a_plan, a_settings
from muster.launch.messages import Identity
from muster.launch.watch import pace
from muster.verdict.redaction import Redaction
from muster_controller.artifacts.keeping import Keeping
from muster_controller.launch.logs import LogBook
from muster_controller.launch.supervisor import Supervisor
from muster_controller.nodes.connection import NodeConnection

SSH = Path(__file__).parent / "programs/ssh_to_many.sh"
PATIENCE = 300.0


class Started(Supervisor):
    """A supervisor of a launch that skips the checks of the nodes."""

    def prepare(self) -> None:
        for name in self.reports.by_node:
            nobody = Identity(uid=1000, gid=1000, name="nobody", launch_user=False, boot="")
            self.prepared.readers[name] = nobody


def connect(name: str) -> NodeConnection:
    connection = connection_loader.get("ssh", PlayContext(), new_stdin=None)
    connection.set_options(direct={"host": name, "ssh_executable": str(SSH), "pipelining": True})
    return NodeConnection(name, connection, "python3")


def main() -> None:
    folder, nodes, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    os.environ |= {"MUSTER_STANDIN": str(folder), "MUSTER_STANDIN_WAIT": str(pace(nodes).wait)}
    init_plugin_loader()
    said: list[str] = []
    entry = {"run_dir": "/x", "work_dir": "/y", "cache_root": "/z", "argv": [], "env": {}, "unit": "x", "seats": []}
    plan = a_plan(nodes, user="nobody", entry=entry)
    logs = LogBook(folder / "launch", plan, lambda *_line: None, Redaction([]), Keeping(said.append))
    connections = {name: connect(name) for name in plan.names}
    supervisor = Started(plan, connections, a_settings(shared=True), logs, said.append)
    # Delays of a busy machine must not count as silent nodes.
    supervisor.pace = replace(supervisor.pace, notice=PATIENCE, patience=PATIENCE, lease=PATIENCE)
    threading.Timer(seconds, (folder / "end-of-launch").touch).start()
    began = time.monotonic()
    record = supervisor.launch()
    used = resource.getrusage(resource.RUSAGE_SELF)
    decision = record.decision
    print(
        json.dumps(
            {
                "ending": decision.ending.name if decision else [finding.summary for finding in record.preflight],
                "said": said,
                "unseen": record.unseen,
                "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
                "threads": threading.active_count(),
                "megabytes": used.ru_maxrss // 1024,
                "seconds": round(time.monotonic() - began, 1),
                "cpu": round(used.ru_utime + used.ru_stime, 2),
                "looks": len((folder / "looks").read_bytes()) if (folder / "looks").exists() else 0,
            }
        )
    )


if __name__ == "__main__":
    main()
